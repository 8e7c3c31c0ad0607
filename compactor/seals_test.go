package compactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// Seals stay, also when the manifest has forgotten where an epoch ended.
//
// guard:keep-seals. Without this check: a compactor deletes the seal of epoch 5; after a year zombie Z,
// the leader of epoch 5, wakes up, and creates its next object in the seal's slot; the store applies
// this create; Z acknowledges a record that no reader ever sees.
func TestT1_SealsStay(t *testing.T) {
	w := newWorld(t, 0, nil)
	const epochs = state.MaxInline + 20
	for e := range fence.Epoch(epochs) {
		w.Put(layout.DataKey(logtest.At(e, 1)), w.Seal(logtest.At(e, 1), e+1))
	}
	var m state.Manifest
	void := w.Data(frame.Point{Position: logtest.At(5, 7)}, "void")
	for _, p := range []fence.Position{logtest.At(5, 7), logtest.At(epochs-3, 7)} {
		w.Put(layout.DataKey(p), void)
	}
	wall := []fence.Position{logtest.At(5, 2), logtest.At(epochs-3, 2)} // of one whose place is forgotten, and of one that is known
	for _, p := range wall {
		w.Put(layout.DataKey(p), w.Seal(p, p.Epoch+1))
	}
	w.Epoch = epochs
	w.Lead(2)
	w.compact(w.Faulty, nil)
	if m = *w.Newest(); len(m.SealPages) == 0 || m.Floor.Position.Epoch != epochs+1 {
		t.Fatalf("%d seals, floor %v", len(m.Seals), m.Floor.Position)
	}
	for e := range fence.Epoch(epochs) {
		if !w.Has(layout.DataKey(logtest.At(e, 1))) {
			t.Fatalf("the seal of epoch %d is gone", e)
		}
	}
	for _, p := range []fence.Position{logtest.At(5, 7), logtest.At(epochs-3, 7), wall[1]} {
		if w.Has(layout.DataKey(p)) {
			t.Errorf("%v is void and still there", p)
		}
	}
	w.holds("at the end")
	// The zombies of all epochs wake up: of a forgotten one, and of the last.
	for _, e := range []fence.Epoch{1, 7, epochs - 2} {
		h := w.Data(frame.Point{Position: logtest.At(e, 1)}, "zombie")
		if _, err := store.Create(t.Context(), w.Mem, layout.DataKey(logtest.At(e, 1)), h, &store.WriteOptions{Settle: logtest.Quick}); store.OutcomeOf(err) != store.Refused {
			t.Errorf("the zombie of epoch %d was told %v", e, err)
		}
	}
	w.holds("after the zombies")
}

// The seal of an epoch that was never on the chain is not known, so what may be one stays.
func TestSkippedEpoch(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(1)
	w.Epoch = 4
	w.Lead(1)
	w.Put(layout.DataKey(logtest.At(3, 1)), w.Seal(logtest.At(3, 1), 4))
	w.Put(layout.DataKey(logtest.At(3, 2)), w.Data(frame.Point{Position: logtest.At(3, 2)}, "void"))
	w.compact(w.Faulty, nil)
	if !w.Has(layout.DataKey(logtest.At(3, 1))) || w.Has(layout.DataKey(logtest.At(3, 2))) {
		t.Errorf("left are %q", short(w.Keys(layout.DataPrefix)))
	}
	w.holds("at the end")
}

// An opener at each of its requests is overtaken by a compactor that folds and
// prunes without any grace, or by another leader and then the compactor.
func TestT2_OpenerBesidePruning(t *testing.T) {
	base := sample(t)
	const requests = 40 // more than it makes, which depends on how far it reads ahead
	tried := test.Square(4, requests+1)
	for i, c := range []struct {
		name   string
		script func(w *world)
	}{
		{"pruned", func(w *world) { w.compact(w.Faulty, small()) }},
		{"led and pruned", func(w *world) { w.tryLead(1); w.compact(w.Faulty, small()) }},
		{"pruned and led", func(w *world) { w.compact(w.Faulty, small()); w.tryLead(1) }},
		{"twice, all of it", func(w *world) { w.tryLead(1); w.compact(w.Faulty, small()); w.tryLead(2); w.compact(w.Faulty, small()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := 1; n <= requests; n++ {
				if !tried(i, n) {
					continue
				}
				w := base.fork(t)
				var mu sync.Mutex // what the opener sends once it is open may be on the way already
				opened := false
				w.watch(func(_ context.Context, op faultstore.Op) {
					if op.Client != "opener" || op.ClientN != n {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if !opened {
						c.script(w)
					}
				})
				token := w.Epoch + 10
				wr, err := writer.Open(t.Context(), w.Faulty.Client("opener"), fence.NewToken(token), &writer.Options{Settle: logtest.Quick, Checkpoint: -1})
				if err != nil {
					t.Fatalf("overtaken at request %d: %v", n, err)
				}
				mu.Lock()
				opened = true
				mu.Unlock()
				w.Append(wr, "by the opener")
				w.Close(wr)
				w.holds(fmt.Sprint("overtaken at request ", n))
				w.compact(w.Faulty, small())
				w.holds(fmt.Sprint("overtaken at request ", n, ", compacted"))
			}
		})
	}
}

// tryLead is lead, unless the opener has sealed already.
func (w *world) tryLead(n int) {
	w.Helper()
	w.Epoch++
	wr, err := writer.Open(context.Background(), w.Mem, fence.NewToken(w.Epoch), &writer.Options{Settle: logtest.Quick})
	if errors.Is(err, writer.ErrFenced) {
		return
	}
	if err != nil {
		w.Fatal(err)
	}
	for i := range n {
		w.Append(wr, fmt.Sprintf("%d/%d", w.Epoch, i))
	}
	w.Close(wr)
}
