package writer_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// A zombie sleeps through takeovers and pruning. All that it wrote, and all that
// its successors wrote, has been deleted; its next slot has not been freed.
func TestT01_ZombieAfterPruning(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		zombie := e.open("zombie", 1, nil)
		e.append(zombie, "z0")
		e.append(zombie, "z1")
		want := []string{"z0", "z1"}
		for epoch := fence.Epoch(2); epoch < 6; epoch++ {
			w := e.open(fmt.Sprint("w", epoch), epoch, nil)
			v := fmt.Sprint("w", epoch)
			e.append(w, v)
			want = append(want, v)
			e.compact()
		}
		e.gone(at(1, 1))
		e.gone(at(1, 2))
		e.outcomes(e.several(zombie, "lost"), "not")
		e.fenced(zombie.Err(), 2)
		e.holds(want...)
	})
}

// An opener reads the manifest and sleeps. Meanwhile a later one opens and the compactor prunes where
// the first was about to read. Its seal is applied, after the boundary.
func TestT02_SealBehindTheFloor(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var live *writer.Writer
		e.hole("zombie", func(*writer.Writer) {
			live = e.open("live", 3, nil)
			e.append(live, "live")
			e.compact()
			e.gone(at(1, 1))
		})
		_, err := e.try("zombie", 2, nil)
		e.fenced(err, 3)
		if h := e.header(at(1, 1)); h.Kind != frame.Seal || h.Next != 2 {
			t.Fatal("the zombie's seal was not applied, so this tests nothing")
		}
		e.append(live, "on")
		e.holds("x", "x", "x", "live", "on")
	})
}

// The same with nobody in between: the zombie is the newest, and must open where
// the history really ends.
//
// guard:open-refresh. Without this check: an opener reads the manifest, and sleeps; a compactor prunes
// the slots that the opener is about to read; the opener finds the first of them empty, seals it, and
// believes that it leads; the old leader goes on in later slots.
func TestT02_OpensElsewhereAfterAll(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var leader *writer.Writer
		e.hole("b", func(l *writer.Writer) {
			leader = l
			e.compact()
			e.gone(at(1, 1))
		})
		b := e.open("b", 2, nil)
		if b.Recovered().Offset != 3 {
			t.Errorf("recovered %+v", b.Recovered())
		}
		_, err := leader.Append(t.Context(), recs("lost"))
		e.fenced(err, 2)
		e.append(b, "b")
		e.holds("x", "x", "x", "b")
	})
}

// Three writers overlap. The second one's seal falls into a hole, and it dies; the third follows that
// seal into an epoch where nothing was ever written, and the floor has not come so far.
//
// guard:open-followed. Without this check: opener B of epoch 3 has read slot 1/3, and is paused; the
// leader of epoch 1 goes on, and slots up to 1/49 are folded and pruned; opener Z of epoch 2 creates a
// late seal in the hole 1/4, and dies; B follows it into the empty epoch 2, and seals slot 2/1, which
// the floor 1/50 has not passed; B believes that it leads, and the leader of epoch 1 goes on.
func TestT03_ThreeWritersOverlapping(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var first *writer.Writer
		e.hole("third", func(leader *writer.Writer) {
			first = leader
			second := e.Faulty.Client("second")
			e.before("second", faultstore.Get, layout.DataKey(at(1, 1)), func(faultstore.Op) bool {
				e.compact()
				e.gone(at(1, 1))
				return true
			})
			e.fault(faultstore.Rule{Client: "second", Kind: faultstore.Put, Prefix: layout.DataPrefix, Fault: faultstore.Fault{Crash: true}})
			_, err := writer.Open(t.Context(), second, fence.NewToken(2), options(nil))
			if h := e.header(at(1, 1)); err == nil || !second.Crashed() || h.Next != 2 {
				t.Fatalf("the second writer did not leave junk: %v", err)
			}
		})
		third := e.open("third", 3, nil)
		if h := e.header(at(2, 1)); h.Kind != 0 {
			t.Errorf("the third writer sealed %v, where no walk comes", at(2, 1))
		}
		if third.Recovered().Offset != 3 {
			t.Errorf("recovered %+v", third.Recovered())
		}
		_, err := first.Append(t.Context(), recs("lost"))
		e.fenced(err, 3)
		e.append(third, "third")
		e.holds("x", "x", "x", "third")
	})
}

// All three live, in every order in which they can put their seals.
func TestT03_ThreeWritersInEveryOrder(t *testing.T) {
	for _, order := range [][]uint64{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		t.Run(fmt.Sprint(order), bubbled(func(t *testing.T, e *env) {
			var release [4]func()
			var errs [4]error
			var ws [4]*writer.Writer
			var all sync.WaitGroup
			for _, epoch := range order {
				client := fmt.Sprint("w", epoch)
				release[epoch] = e.hold(client, faultstore.Put, layout.DataPrefix)
				all.Go(func() { ws[epoch], errs[epoch] = e.try(client, fence.Epoch(epoch), nil) })
			}
			synctest.Wait() // all have seen the first slot empty
			for _, epoch := range order {
				release[epoch]()
				synctest.Wait()
			}
			all.Wait()
			var want []string
			for epoch := uint64(1); epoch <= 3; epoch++ {
				w := ws[epoch]
				if w == nil {
					if epoch == 3 {
						t.Fatalf("the greatest epoch did not prevail: %v", errs[3])
					}
					continue
				}
				v := fmt.Sprint("w", epoch)
				_, err := w.Append(t.Context(), recs(v))
				if epoch == 3 {
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, v)
				} else if err == nil {
					t.Fatalf("epoch %d committed though epoch 3 is open", epoch)
				}
			}
			e.holds(want...)
		}))
	}
}
