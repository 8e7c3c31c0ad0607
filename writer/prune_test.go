package writer_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// manifests returns the numbers of those in the store.
func (e *env) manifests() (all []uint64) {
	e.Helper()
	for _, key := range e.Keys(layout.ManifestPrefix) {
		if v, ok := layout.ParseManifestKey(key); ok {
			all = append(all, v)
		}
	}
	return all
}

// busy appends once in each checkpoint of a minute.
func (e *env) busy(w *writer.Writer, checkpoints int) {
	e.Helper()
	for range checkpoints {
		e.append(w, "x")
		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

// skip makes so many more manifests at once, of which only the last one can be read.
func (e *env) skip(n uint64) {
	e.Helper()
	m := *e.Newest()
	for range n {
		m.Version++
		e.Put(layout.ManifestKey(m.Version), []byte("replaced"))
	}
	body, err := document.Encode(layout.ManifestKey(m.Version), m)
	if err != nil {
		e.Fatal(err)
	}
	e.Put(layout.ManifestKey(m.Version), body)
}

// pruning runs f with a leader that writes a manifest each minute, in a log with a grace period.
func pruning(t *testing.T, grace time.Duration, f func(t *testing.T, e *env, w *writer.Writer)) {
	t.Helper()
	logtest.Bubble(t, logtest.WithGrace(grace), func(t *testing.T, l *logtest.Log) {
		e := &env{Log: l}
		w := e.open("a", 1, &writer.Options{Checkpoint: time.Minute})
		e.busy(w, 3)
		f(t, e, w)
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaderPrunes: manifests do not pile up in a log that nobody compacts. A pinned one stays,
// also if the pin was made just before the mark was published (guards mark-first,
// mark-before-pins and pinned-manifest); and none is deleted within the grace period (grace).
//
// guard:grace. Some stores make a listing by a walk through a directory: in any order, and not in one
// moment. Without this wait: a busy leader publishes four manifests a second; a reader's listing takes
// five minutes, and passes the places of the next 1,100 manifests before they are created; the leader
// creates these, and deletes all older ones except manifest 5, which is pinned; then the walk comes to
// the places of the older ones; the reader, which has seen no manifest yet, sees only manifest 5, and
// takes it for the newest.
func TestLeaderPrunes(t *testing.T) {
	const grace = 15 * time.Minute
	pruning(t, grace, func(t *testing.T, e *env, w *writer.Writer) {
		if _, err := e.State.Pin(t.Context(), &state.PinOptions{Name: "backup"}); err != nil {
			t.Fatal(err)
		}
		backup := e.Newest().Version
		e.skip(300)
		e.busy(w, 3)
		replaced, since := e.Newest().Version, time.Now() // and those after it
		e.skip(1500)
		var listed atomic.Bool
		e.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if op.Client != "a" {
				return
			}
			m := e.Newest()
			if op.Kind == faultstore.List && op.Key == layout.PinPrefix {
				listed.Store(m.PruneMark > 0)
				if m.PruneMark == 0 {
					t.Error("the pins are listed, and the mark is not published")
				}
			}
			if op.Kind != faultstore.Delete {
				return
			}
			for _, key := range op.Keys {
				if v, ok := layout.ParseManifestKey(key); !ok || v >= m.PruneMark || v+1000 > m.Version || v >= replaced && time.Since(since) < grace {
					t.Errorf("%s is deleted; the mark is %d, and the newest manifest %d", key, m.PruneMark, m.Version)
				}
			}
		})
		e.busy(w, 5)
		e.skip(600)
		e.busy(w, 50)
		m, kept := e.Newest(), e.manifests()
		if m.PruneMark == 0 || !listed.Load() || len(kept) > 2000 || !slices.Contains(kept, backup) {
			t.Errorf("%d manifests are there of %d, the mark is %d; one is pinned, %d", len(kept), m.Version, m.PruneMark, backup)
		}
		e.Contents()
	})
}

// TestLeaderLeavesPruning to a compactor that works, and to one that keeps versions.
func TestLeaderLeavesPruning(t *testing.T) {
	for name, opts := range map[string]*compactor.Options{
		"one that works": {}, "one that keeps versions": {KeepVersions: 5000},
	} {
		t.Run(name, func(t *testing.T) {
			pruning(t, 0, func(t *testing.T, e *env, w *writer.Writer) {
				e.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
					if op.Kind == faultstore.Delete && op.Client == "a" {
						t.Errorf("the leader deletes %q", op.Keys)
					}
				})
				opts.Token, opts.Settle, opts.Clock = fence.NewToken(7), logtest.Quick, clock.Go()
				c, err := compactor.New(e.Mem, opts)
				if err != nil {
					t.Fatal(err)
				}
				for i := range 10 {
					if opts.KeepVersions == 0 || i == 0 {
						if _, err := c.Once(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					e.skip(300)
					e.busy(w, 1)
				}
			})
		})
	}
}

// TestLeaderMayNotDelete: without the right to delete, the leader goes on, and asks once.
func TestLeaderMayNotDelete(t *testing.T) {
	pruning(t, 0, func(t *testing.T, e *env, w *writer.Writer) {
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Delete, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		e.Faulty.SetHook(e.hook)
		e.skip(2500)
		e.busy(w, 20)
		if n := e.Faulty.Counts().Of(faultstore.Delete, layout.ManifestPrefix); n != 1 {
			t.Errorf("%d requests to delete", n)
		}
	})
}
