package outside_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// silent makes somebody lead who never notes how far it is.
func silent(t *testing.T, l *logtest.Log) node {
	t.Helper()
	e, err := leader.New(l.Mem, layout.LockPrefix, &leader.Options{Identity: "ann", Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), l.Mem, term.Token(), &writer.Options{Clock: clock.Go(), Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.Until(term.Context())
	t.Cleanup(func() { _ = w.Close(t.Context()); _ = term.Resign(t.Context()) })
	return node{term, w}
}

// TestManyAfterTheNote: a leader that notes nothing may write more than a look lists. Later looks count the rest.
func TestManyAfterTheNote(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		n := silent(t, l)
		n.append(t, 5000)
		watching(t, 12, &sick{Store: l.Mem, sorted: true}, func(h *outside.Hub, _ *atomic.Int64) {
			for range 600 {
				time.Sleep(time.Second)
				if v := state(h).Log; v != nil && v.Read.Tail && !left(v).More && left(v).Objects < 5000 {
					t.Fatalf("%d of 5,001 are told as all", left(v).Objects)
				}
			}
			for i := range 20 { // it stays so while more come
				if v := state(h).Log; left(v).More || left(v).Objects != 5001+i || v.Tail != logtest.At(1, uint64(5001+i)) {
					t.Fatalf("%d of %d, more %t, tail %v", left(v).Objects, 5001+i, left(v).More, v.Tail)
				}
				n.append(t, 1)
				time.Sleep(3 * time.Minute)
			}
		})
	})
}

// repeating is a store whose listings have each key twice.
type repeating struct{ store.Store }

func (s *repeating) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, opts) {
			for range 2 {
				if !yield(info, err) {
					return
				}
			}
		}
	}
}

// TestPinsListedTwice: a listing that is sent again may have a key twice. The pin counts once.
func TestPinsListedTwice(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		for range 3 {
			fixture.Put(t, l.Mem, layout.PinKey(uuid.NewString()), []byte("{}"))
		}
		watching(t, 12, &repeating{l.Mem}, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Minute)
			if v := state(h).Log; v.PinCount != 3 || len(v.Pins) != 3 {
				t.Errorf("%d pins, %d kept", v.PinCount, len(v.Pins))
			}
		})
	})
}

// TestCompactorAwayForAMoment: a compactor that two looks have missed is seen soon.
func TestCompactorAwayForAMoment(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		e, err := leader.New(l.Mem, layout.CompactorLockPrefix, &leader.Options{Identity: "dog", Clock: clock.Go(), NoPrune: true})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(5 * time.Minute)
			if err := term.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			for state(h).Log.Compactor.Leads {
				time.Sleep(time.Second)
			}
			time.Sleep(30 * time.Second) // a look comes each 20 s
			compacts(t, l.Mem)
			time.Sleep(100 * time.Second)
			if c := state(h).Log.Compactor; !c.Leads {
				t.Errorf("%+v", c)
			}
		})
	})
}

// TestManyLeaders: however many leaders there were, the newest of the past are read.
func TestManyLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		lock := func(epoch fence.Epoch, state string) {
			key := layout.LockKey(layout.LockPrefix, epoch)
			b, err := document.Encode(key, map[string]any{
				"format": document.Format, "epoch": epoch, "state": state, "holder": "ann", "validity_ms": 24 * 3600 * 1000, "acquired": time.Now(), "renewed": time.Now(),
			})
			if err != nil {
				t.Fatal(err)
			}
			fixture.Put(t, mem, key, b)
		}
		last := fence.Epoch(1)
		leaders := func(n int) {
			for range n {
				lock(last, "expired")
				last++
			}
			lock(last, "held")
		}
		leaders(510)
		watching(t, 60, mem, func(h *outside.Hub, _ *atomic.Int64) {
			for range 2 {
				time.Sleep(25 * time.Minute)
				all := state(h).Lock.Terms
				for _, term := range all {
					if term.State == "" {
						t.Fatalf("of the %d newest, epoch %d was not read", len(all), term.Epoch)
					}
				}
				if len(all) != 500 {
					t.Errorf("%d leaders", len(all))
				}
				leaders(5)
			}
		})
	})
}
