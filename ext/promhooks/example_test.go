package promhooks_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// A log whose leader, requests and compactor are measured.
func Example() {
	ctx := context.Background()
	reg := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	m, err := promhooks.New(reg, &promhooks.Options{Prices: &promhooks.Prices{Put: 0.005, Get: 0.0004, List: 0.005}})
	if err != nil {
		log.Fatal(err)
	}
	st := m.Store(memstore.New(nil)) // or store.Open(ctx, "s3://bucket/orders")
	opts := &fencepost.Options{
		Leader: &leader.Options{Hooks: m.Leader("log", leader.Hooks{})},
		Writer: &writer.Options{Hooks: m.Writer(writer.Hooks{})},
	}
	err = fencepost.Run(ctx, st, opts, func(ctx context.Context, s *fencepost.Session) error {
		_, err := s.Append(ctx, [][]byte{[]byte("one"), []byte("two")})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), Hooks: m.Compactor(compactor.Hooks{})})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Once(ctx); err != nil {
		log.Fatal(err)
	}
	r, err := reader.Open(ctx, st, &reader.Options{Hooks: m.Reader(reader.Hooks{})})
	if err != nil {
		log.Fatal(err)
	}
	for _, err := range r.Read(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "fencepost_writer_records_total", "fencepost_reader_records_total", "fencepost_compactor_folded_records_total":
			fmt.Println(f.GetName(), f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	n, err := testutil.GatherAndCount(reg, "fencepost_leader_leads")
	fmt.Println("elections:", n, err)
	// Output:
	// fencepost_compactor_folded_records_total 2
	// fencepost_reader_records_total 2
	// fencepost_writer_records_total 2
	// elections: 1 <nil>
}

// Hooks of one's own are called after those that measure.
func ExampleMetrics_Writer() {
	ctx := context.Background()
	m, err := promhooks.New(prometheus.NewRegistry(), nil)
	if err != nil {
		log.Fatal(err)
	}
	opts := &fencepost.Options{
		Writer: &writer.Options{Hooks: m.Writer(writer.Hooks{
			Acknowledged: func(a writer.Acknowledgement) { fmt.Println("acknowledged up to offset", a.First+uint64(a.Records)) },
			Ended: func(e writer.Ending) {
				if errors.Is(e.Err, writer.ErrFenced) {
					fmt.Println("fenced: the writer of epoch", e.Epoch)
				}
			},
		})},
	}
	st, fenced := memstore.New(nil), false
	err = fencepost.Run(ctx, st, opts, func(ctx context.Context, s *fencepost.Session) error {
		if !fenced { // something else opens the next epoch, past the election
			fenced = true
			w, err := writer.Open(ctx, st, fence.NewToken(s.Epoch()+1), nil)
			if err != nil {
				return err
			}
			defer w.Close(ctx)
		}
		_, err := s.Append(ctx, [][]byte{[]byte("one"), []byte("two")})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// fenced: the writer of epoch 1
	// acknowledged up to offset 2
}

// The members of a group are measured like leaders.
func ExampleMetrics_Group() {
	m, err := promhooks.New(prometheus.NewRegistry(), nil)
	if err != nil {
		log.Fatal(err)
	}
	opts := &group.RunOptions{
		Group:  &group.Options{Partitions: 8, Hooks: m.Group(group.Hooks{})},
		Writer: &writer.Options{Hooks: m.Writer(writer.Hooks{})}, // of all partitions together
	}
	fmt.Println(opts.Validate())
	// Output: <nil>
}
