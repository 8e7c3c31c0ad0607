package main

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fencepost/fencepost/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/writer"
)

// BenchmarkCopy copies messages of 100 bytes of JSON from a partition to a directory, and writes the same rows
// from memory. A broker in the same process takes a part of the processor.
//
//	GOMAXPROCS=1 go test -run '^$' -bench Copy .
func BenchmarkCopy(b *testing.B) {
	const n, inFile = 400_000, 100_000
	brokers, stop, err := embedded()
	if err != nil {
		b.Fatal(err)
	}
	defer stop()
	if err := createTopic(b.Context(), brokers, topic, 1); err != nil {
		b.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(split(brokers)...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	rows := make([]row, 0, n)
	for i := range n {
		m := message(i)
		client.Produce(b.Context(), m, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
		rows = append(rows, row{Offset: int64(i), Time: time.UnixMilli(int64(i)), Key: m.Key, Value: m.Value})
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	log := func() *writer.Writer {
		st, err := dirstore.Open(b.TempDir(), nil)
		if err != nil {
			b.Fatal(err)
		}
		w, err := writer.Open(b.Context(), st, fence.NewToken(1), &writer.Options{Init: &manifest.InitOptions{Probe: quickProbe}})
		if err != nil {
			b.Fatal(err)
		}
		return w
	}
	rate := func(b *testing.B) {
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	}
	b.Run("memory", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			w := log()
			b.StartTimer()
			d, err := delta.NewWriter(b.Context(), w, &delta.WriterOptions[row]{})
			for i := 0; i < n && err == nil; i += batch {
				if err = d.Write(b.Context(), rows[i:min(i+batch, n)]); err == nil && d.Pending() >= inFile {
					err = d.Commit(b.Context())
				}
			}
			if err == nil {
				err = d.Commit(b.Context())
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
	b.Run("kafka", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			w := log()
			ctx, done := context.WithCancel(b.Context())
			l := &lake{brokers: split(brokers), topic: topic, rows: inFile, flush: time.Second, committed: func(at cursor, _ uint64) {
				if at.Offset == n {
					done()
				}
			}}
			b.StartTimer()
			if err := l.copyPartition(ctx, w, 0); ctx.Err() == nil {
				b.Fatal(err)
			}
		}
		rate(b)
	})
}
