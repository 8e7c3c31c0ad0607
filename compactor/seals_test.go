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
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// guard:keep-seals, also when the manifest has forgotten where an epoch ended.
func TestT1_SealsStay(t *testing.T) {
	w := newWorld(t, 0, nil)
	const epochs = state.MaxInline + 20
	for e := range uint64(epochs) {
		w.put(layout.DataKey(at(e, 1)), w.seal(at(e, 1), e+1))
	}
	var m state.Manifest
	void := w.data(frame.Point{Position: at(5, 7)}, "void")
	for _, p := range []fence.Position{at(5, 7), at(epochs-3, 7)} {
		w.put(layout.DataKey(p), void)
	}
	wall := []fence.Position{at(5, 2), at(epochs-3, 2)} // of one whose place is forgotten, and of one that is known
	for _, p := range wall {
		w.put(layout.DataKey(p), w.seal(p, uint64(p.Epoch)+1))
	}
	w.epoch = epochs
	w.lead(2)
	w.compact(w.faulty, nil)
	if m = *w.newest(); len(m.SealPages) == 0 || m.Floor.Position.Epoch != epochs+1 {
		t.Fatalf("%d seals, floor %v", len(m.Seals), m.Floor.Position)
	}
	for e := range uint64(epochs) {
		if !w.has(layout.DataKey(at(e, 1))) {
			t.Fatalf("the seal of epoch %d is gone", e)
		}
	}
	for _, p := range []fence.Position{at(5, 7), at(epochs-3, 7), wall[1]} {
		if w.has(layout.DataKey(p)) {
			t.Errorf("%v is void and still there", p)
		}
	}
	w.holds("at the end")
	// The zombies of all epochs wake up: of a forgotten one, and of the last.
	for _, e := range []uint64{1, 7, epochs - 2} {
		h := w.data(frame.Point{Position: at(e, 1)}, "zombie")
		if _, err := store.Create(t.Context(), w.mem, layout.DataKey(at(e, 1)), h, &store.WriteOptions{Settle: quick}); store.OutcomeOf(err) != store.Refused {
			t.Errorf("the zombie of epoch %d was told %v", e, err)
		}
	}
	w.holds("after the zombies")
}

// Of an epoch that was never on the chain nobody knows a seal, and what may be one
// stays.
func TestSkippedEpoch(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.lead(1)
	w.epoch = 4
	w.lead(1)
	w.put(layout.DataKey(at(3, 1)), w.seal(at(3, 1), 4))
	w.put(layout.DataKey(at(3, 2)), w.data(frame.Point{Position: at(3, 2)}, "void"))
	w.compact(w.faulty, nil)
	if !w.has(layout.DataKey(at(3, 1))) || w.has(layout.DataKey(at(3, 2))) {
		t.Errorf("left are %q", short(w.keys(layout.DataPrefix)))
	}
	w.holds("at the end")
}

// An opener at each of its requests is overtaken by a compactor that folds and
// prunes without any grace, or by another leader and then the compactor.
func TestT2_OpenerBesidePruning(t *testing.T) {
	base := sample(t)
	for name, script := range map[string]func(w *world){
		"pruned":           func(w *world) { w.compact(w.faulty, small()) },
		"led and pruned":   func(w *world) { w.tryLead(1); w.compact(w.faulty, small()) },
		"pruned and led":   func(w *world) { w.compact(w.faulty, small()); w.tryLead(1) },
		"twice, all of it": func(w *world) { w.tryLead(1); w.compact(w.faulty, small()); w.tryLead(2); w.compact(w.faulty, small()) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; n <= 40; n++ { // more than it makes, which depends on how far it reads ahead
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
						script(w)
					}
				})
				token := w.epoch + 10
				wr, err := writer.Open(t.Context(), w.faulty.Client("opener"), fence.NewToken(token), &writer.Options{Settle: quick, Checkpoint: -1})
				if err != nil {
					t.Fatalf("overtaken at request %d: %v", n, err)
				}
				mu.Lock()
				opened = true
				mu.Unlock()
				w.append(wr, "by the opener")
				w.close(wr)
				w.holds(fmt.Sprint("overtaken at request ", n))
				w.compact(w.faulty, small())
				w.holds(fmt.Sprint("overtaken at request ", n, ", compacted"))
			}
		})
	}
}

// tryLead is lead, unless the opener has sealed already.
func (w *world) tryLead(n int) {
	w.Helper()
	w.epoch++
	wr, err := writer.Open(context.Background(), w.mem, fence.NewToken(w.epoch), &writer.Options{Settle: quick})
	if errors.Is(err, writer.ErrFenced) {
		return
	}
	if err != nil {
		w.Fatal(err)
	}
	for i := range n {
		w.append(wr, fmt.Sprintf("%d/%d", w.epoch, i))
	}
	w.close(wr)
}
