package fencepost_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var days = flag.Int("days", 2, "how many days of virtual time TestWhatGrows takes; docs/operations.md has what 30 gave")

// listing counts the keys that are listed.
type listing struct {
	store.Store
	lists, keys atomic.Int64 // the writer's goroutines list too
}

func (l *listing) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	l.lists.Add(1)
	return func(yield func(store.Info, error) bool) {
		for info, err := range l.Store.List(ctx, prefix, opts) {
			// A store in memory takes StartAfter for a hint, as some stores do. This one does not.
			if opts != nil && info.Key <= opts.StartAfter {
				continue
			}
			l.keys.Add(1)
			if !yield(info, err) {
				return
			}
		}
	}
}

// life is a log that is used: one record each five minutes and a checkpoint after each, and a
// failover a day, in which a file is left that was not committed and a snapshot that was not
// closed.
type life struct {
	testing.TB
	log     *logtest.Log
	st      *listing
	compact *compactor.Compactor // nil for none
	files   []manifest.File
}

func (l *life) day() {
	l.Helper()
	ctx := l.Context()
	e, err := leader.New(l.st, layout.KindLock, &leader.Options{Clock: clock.Go()})
	check(l, err)
	term, err := e.Campaign(ctx)
	check(l, err)
	check(l, term.Resign(ctx))
	l.log.Epoch++
	w, err := writer.Open(ctx, l.st, fence.NewToken(l.log.Epoch), &writer.Options{Settle: logtest.Quick, Clock: clock.Go(), NoCompress: true})
	check(l, err)
	for i := range 24 * 12 {
		l.log.Append(w, fmt.Sprintf("%d/%d", l.log.Epoch, i))
		if i%12 == 0 {
			l.commit(w)
			if l.compact != nil {
				_, err := l.compact.Once(ctx)
				check(l, err)
			}
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
	}
	// The end of a process that is killed. Its context ends, and so does this test.
	f, err := w.CreateFile(ctx, ".lost")
	check(l, err)
	check(l, f.Close())
	check(l, w.Close(ctx))
	_, err = l.log.State.Pin(ctx, &state.PinOptions{TTL: time.Minute}) // as a snapshot makes one, and its process is killed
	check(l, err)
}

// commit adds a file to the table, and removes the one before.
func (l *life) commit(w *writer.Writer) {
	f, err := w.CreateFile(l.Context(), ".x")
	check(l, err)
	check(l, f.Close())
	edit := manifest.Edit{Add: []manifest.File{f.File()}}
	for _, old := range l.files {
		edit.Remove = append(edit.Remove, old.Key)
	}
	check(l, w.CommitFiles(l.Context(), edit))
	l.files = edit.Add
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatGrows counts the objects of a log with a compactor and without one.
func TestWhatGrows(t *testing.T) {
	for name, compacts := range map[string]bool{"without a compactor": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			logtest.Bubble(t, logtest.WithGrace(manifest.DefaultGrace), func(t *testing.T, log *logtest.Log) {
				l := &life{TB: t, log: log, st: &listing{Store: log.Mem}}
				if compacts {
					var err error
					l.compact, err = compactor.New(log.Mem, &compactor.Options{Token: fence.NewToken(1), Settle: logtest.Quick, Clock: clock.Go()})
					check(t, err)
				}
				var kinds map[string]int
				for day := range *days {
					l.st.lists.Store(0)
					l.st.keys.Store(0)
					l.day()
					kinds = map[string]int{}
					for _, key := range l.log.Keys("") {
						kinds[layout.KindOf(key)]++
					}
					if d := day + 1; d == 1 || d%5 == 0 || d == *days {
						t.Logf("day %d: %v; the leader of that day made %d LISTs with %d keys", d, kinds, l.st.lists.Load(), l.st.keys.Load())
					}
				}
				commits := *days * 24 * 13
				if kinds["manifest"] > 3000 || l.st.keys.Load() > 60_000 {
					t.Errorf("%d manifests; %d keys were listed", kinds["manifest"], l.st.keys.Load())
				}
				if compacts != (kinds["data"] < commits/2) {
					t.Errorf("%d objects of the log after %d commits", kinds["data"], commits)
				}
				if compacts && (kinds["file"] > 30 || kinds["pin"] > 1) {
					t.Errorf("%d files, %d pins", kinds["file"], kinds["pin"])
				}
				l.log.Contents()
			})
		})
	}
}
