package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// virtualProbe is short, and waits in virtual time.
func virtualProbe() *probe.Options {
	o := *quickProbe.Probe
	o.Clock = clock.Go()
	return &o
}

// inBackground runs something until stop is called, and wants no other end.
func inBackground(t *testing.T, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// keysOf lists what a store has below a prefix.
func keysOf(t *testing.T, st store.Store, prefix string) (keys []string) {
	t.Helper()
	for info, err := range st.List(t.Context(), prefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// The members of a group make it, share and move partitions, prune, and compact the logs, all from
// an empty place with the rights of the page.
func TestPolicyGroup(t *testing.T) {
	var all []*policed
	mem := memstore.New(&memstore.Options{Clock: clock.Go()})
	for _, role := range []string{"writer", "writer", "compactor"} {
		all = append(all, newPoliced(t, mem, role, "group"))
	}
	synctest.Test(t, func(t *testing.T) {
		worker := func(st store.Store) func(context.Context) error {
			o := &group.RunOptions{
				Group:  &group.Options{Partitions: 3, Clock: clock.Go(), Probe: virtualProbe()},
				Writer: &writer.Options{Clock: clock.Go(), Init: &manifest.InitOptions{Grace: time.Minute}},
			}
			return func(ctx context.Context) error {
				return group.Run(ctx, st, o, func(ctx context.Context, s *group.Session) error {
					for ctx.Err() == nil {
						if _, err := s.Append(ctx, [][]byte{[]byte("a")}); err != nil {
							return err
						}
						_ = clock.Sleep(ctx, clock.Go(), time.Second)
					}
					return context.Cause(ctx)
				})
			}
		}
		a := inBackground(t, worker(all[0]))
		time.Sleep(time.Minute)
		b := inBackground(t, worker(all[1]))
		time.Sleep(time.Minute)
		compact := inBackground(t, func(ctx context.Context) error {
			return group.Compact(ctx, all[2], &group.CompactOptions{
				Group: &group.Options{Clock: clock.Go(), Probe: virtualProbe()}, Compactor: &compactor.Options{Interval: 10 * time.Second, MinObjects: 8},
			})
		})
		time.Sleep(10 * time.Minute)
		a()
		time.Sleep(10 * time.Minute)
		b()
		compact()
	})
	for _, p := range all {
		if len(p.denied) > 0 {
			t.Errorf("denied %q", slices.Compact(p.denied))
		}
	}
	// The group was pruned, and so were the logs.
	if n := keysOf(t, mem, "group/assign/"); len(n) > 2 || slices.Contains(n, "group/assign/00000000000000000001") {
		t.Errorf("assignments %q", n)
	}
	for p := range 3 {
		log := group.PartitionPrefix(p) + "/"
		if s, d := keysOf(t, mem, log+"segment/"), keysOf(t, mem, log+"data/"); len(s) == 0 || len(d) == 0 || len(d) > 400 {
			t.Errorf("partition %d has %d segments and %d objects", p, len(s), len(d))
		}
	}
	for _, p := range all[:2] {
		for _, key := range []string{"format.json", "data/1/1", "compactors/group/group.json", "partition/000001/lock/1.json", "partition/000001/segment/compactor/1/x"} {
			if _, err := p.Put(t.Context(), key, nil, &store.PutOptions{If: store.IfAbsent()}); !errors.Is(err, store.ErrDenied) {
				t.Errorf("a worker writes %s: %v", key, err)
			}
		}
		for _, key := range []string{group.FormatKey, "partition/000001/data/1/1"} {
			if err := p.Delete(t.Context(), key); !errors.Is(err, store.ErrDenied) {
				t.Errorf("a worker deletes %s: %v", key, err)
			}
		}
	}
}

// A publisher makes versions and checkpoints, and deletes old ones: beside the log, and in a second store.
func TestPolicyPublisher(t *testing.T) {
	const lake = "lake/table"
	var rows bytes.Buffer
	w := parquet.NewGenericWriter[struct{ ID int64 }](&rows)
	if _, err := w.Write([]struct{ ID int64 }{{1}}); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for _, apart := range []bool{false, true} {
		t.Run(fmt.Sprintf("apart %v", apart), func(t *testing.T) {
			mem := memstore.New(&memstore.Options{Clock: clock.Go()})
			log, table := newPoliced(t, mem, "publisher"), (*policed)(nil)
			if apart {
				log.identity = filesPolicy(t, "publisher", lake)
				table = &policed{Store: memstore.New(&memstore.Options{Clock: clock.Go(), Name: "mem://lake"}), identity: log.identity, prefix: lake}
			}
			synctest.Test(t, func(t *testing.T) { publishForHours(t, log, table, rows.Bytes()) })
			denied := log.denied
			if prefix := layout.DeltaPrefix; apart {
				denied = append(denied, table.denied...)
				if prefix = strings.TrimPrefix(prefix, layout.FilePrefix); len(keysOf(t, table.Store, prefix)) == 0 {
					t.Error("nothing is published")
				}
			}
			if len(denied) > 0 {
				t.Errorf("denied %q", slices.Compact(denied))
			}
		})
	}
}

// publishForHours publishes a version a minute, with a retention of an hour.
func publishForHours(t *testing.T, log, table *policed, rows []byte) {
	o := &writer.Options{Clock: clock.Go(), Init: &manifest.InitOptions{Grace: time.Minute, Probe: virtualProbe()}}
	root, src, err := delta.Beside(log)
	if table != nil {
		o.Files, root, src = table.Store, table, delta.Source{Log: log}
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), log.Store, fence.NewToken(1), o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := delta.Open(t.Context(), root, []delta.Source{src}, &delta.Options{
		Clock: clock.Go(), Retention: time.Hour, Hooks: delta.Hooks{Failed: func(err error) { t.Error(err) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 230 {
		f, err := w.CreateFile(t.Context(), ".parquet", 0)
		if err == nil {
			_, err = f.Write(rows)
		}
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Publish(t.Context()); err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		time.Sleep(time.Minute)
	}
	var checkpoints, commits int
	for info, err := range root.List(t.Context(), "_delta_log/", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(info.Key, ".json") {
			commits++
		} else if strings.HasSuffix(info.Key, ".parquet") {
			checkpoints++
		}
	}
	if checkpoints == 0 || commits > 200 {
		t.Errorf("%d checkpoints, %d commits", checkpoints, commits)
	}
	if _, err := p.Unpublish(t.Context()); err != nil {
		t.Error(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
