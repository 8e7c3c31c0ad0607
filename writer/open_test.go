package writer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// The point to start at is in an epoch that is not before the token's, and no role says so yet.
//
// guard:open-hint. Without this check: B seals the log for epoch 3; a compactor folds that seal before
// B publishes its first manifest, so the floor is slot 3/1; zombie opener Z of epoch 2 begins there,
// and seals the slot that B is about to use; B is refused there.
func TestStartsInALaterEpoch(t *testing.T) {
	for _, name := range []string{"floor", "hint"} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			e.hold("live", faultstore.Put, layout.ManifestPrefix)
			live := e.open("live", 3, nil)
			if name == "floor" {
				e.compact() // it was quicker than the leader's own first manifest
			} else {
				e.Publish(func(m *state.Change) error {
					seal := e.header(frame.Genesis())
					m.Hint = &frame.Point{Position: at(3, 1), Prev: seal.Checksum()}
					return nil
				})
			}
			for _, epoch := range []uint64{2, 3} {
				_, err := e.try("zombie", fence.Epoch(epoch), nil)
				e.fenced(err, 3)
			}
			e.append(live, "live")
			e.holds("live")
		}))
	}
}

// An epoch that has been open is not opened again, though nothing of it can be seen but the manifest's
// role.
//
// guard:open-role. An epoch is opened only once. Without this check: A and B are both given epoch 5; A
// opens it, and the manifest says so; B reads the tail of the log, and gives up only when it meets A's
// seal.
func TestAnEpochIsOpenedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		u, err := e.State.Updater(layout.Writer, fence.NewToken(5))
		if err == nil {
			_, err = u.Update(t.Context(), func(*state.Change) error { return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, epoch := range []uint64{4, 5} {
			_, err = e.try("a", fence.Epoch(epoch), nil)
			e.fenced(err, 5)
		}
		if h := e.header(frame.Genesis()); h.Kind != 0 {
			t.Errorf("the first slot was sealed for epoch %d", h.Next)
		}
		e.open("b", 6, nil)
	})
}

// Two processes are given one token. Both see the same empty slot.
//
// guard:open-later-seal. Without this check: B has sealed the log for epoch 3, and has not published a
// manifest yet; zombie opener Z of epoch 2 follows B's seal, and puts its own seal into the slot that B
// is about to use; B is refused there; a seal in epoch 3 cannot name epoch 2, so to readers the log is
// damaged.
func TestOneTokenTwice(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.append(e.open("before", 1, nil), "0")
		e.hold("a", faultstore.Put, layout.ManifestPrefix) // so that only the seal tells
		var a *writer.Writer
		e.before("b", faultstore.Put, layout.DataPrefix, func(faultstore.Op) bool {
			a = e.open("a", 5, nil)
			e.append(a, "a")
			return true
		})
		_, err := e.try("b", 5, nil)
		e.fenced(err, 5)
		if !strings.Contains(err.Error(), "same token") {
			t.Errorf("%v does not say what is wrong", err)
		}
		e.append(a, "a")
		e.holds("0", "a", "a")
	})
}

// hole makes a log of epoch 1 with three records, and calls f when an opener has
// read the manifest and is about to read slot 1, which f's pruner takes away.
func (e *env) hole(client string, f func(leader *writer.Writer)) {
	e.Helper()
	leader := e.open("leader", 1, nil)
	for range 3 {
		e.append(leader, "x")
	}
	e.before(client, faultstore.Get, layout.DataPrefix, func(faultstore.Op) bool {
		f(leader)
		return true
	})
}

func (e *env) gone(p fence.Position) {
	e.Helper()
	if e.header(p).Kind != 0 {
		e.Fatalf("%v has not been pruned", p)
	}
}

// The seal of a later opener lies in a hole; that opener has died since, and epoch 5 was never opened.
//
// guard:open-junk-seal. Without this check: opener B of epoch 3 is paused before slot 1/4, and this
// slot is pruned; opener Z of epoch 5, paused too, puts its seal into the hole 1/4, and dies; B meets
// this seal, and gives up as fenced, although epoch 5 was never opened.
func TestJunkSealOfALaterEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.hole("b", func(*writer.Writer) {
			e.compact()
			e.gone(at(1, 1))
			e.seal(at(1, 1), 5)
		})
		b := e.open("b", 3, nil)
		e.append(b, "b")
		e.holds("x", "x", "x", "b")
	})
}

// The junk seal in the hole leads to an epoch that exists, but was opened elsewhere: what is there does
// not fit the path that led to it.
func TestJunkSealLeadsIntoALiveEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.hole("b", func(*writer.Writer) {
			e.compact()
			e.gone(at(1, 1))
			e.seal(at(1, 1), 2) // it found that it was in a hole, and then
			e.append(e.open("a", 2, nil), "a")
		})
		b := e.open("b", 3, nil)
		if b.Recovered().Offset != 4 {
			t.Errorf("recovered %+v", b.Recovered())
		}
		e.append(b, "b")
		e.holds("x", "x", "x", "a", "b")
	})
}

// An object in the way that was pruned and filled by somebody else's rubbish is no
// damage either, and one on the chain is.
func TestDamage(t *testing.T) {
	garbage := []byte("not a frame")
	t.Run("hole", bubbled(func(t *testing.T, e *env) {
		e.hole("b", func(*writer.Writer) {
			e.compact()
			e.Put(layout.DataKey(at(1, 1)), garbage)
		})
		e.append(e.open("b", 2, nil), "b")
		e.holds("x", "x", "x", "b")
	}))
	for name, body := range map[string][]byte{"tail": garbage, "empty": {}} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			e.append(e.open("a", 1, nil), "0")
			e.Put(layout.DataKey(at(1, 2)), body)
			_, err := e.try("b", 2, nil)
			if !errors.Is(err, fence.ErrCorrupt) {
				t.Fatal(err)
			}
			for _, want := range []string{layout.DataKey(at(1, 2)), "fencepost verify"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
		}))
	}
}

// guard:open-folded. A compactor folds the new seal before the opener has read
// at the manifest again.
func TestQuickCompactorFoldsTheSeal(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		if _, err := a.Append(t.Context(), recs("0", "1"), writer.Cursor([]byte("two"))); err != nil {
			t.Fatal(err)
		}
		sealed := false
		e.before("b", faultstore.List, layout.ManifestPrefix, func(faultstore.Op) bool {
			if sealed = e.header(at(1, 2)).Kind == frame.Seal; sealed {
				e.compact()
			}
			return sealed
		})
		b := e.open("b", 2, nil)
		if got := b.Recovered(); !sealed || got.Offset != 2 || string(got.Cursor) != "two" {
			t.Fatalf("recovered %+v", got)
		}
		e.append(b, "2")
		e.holds("0", "1", "2")
	})
}

// A tail object that is larger than what is read at first.
func TestLargeTail(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, &writer.Options{NoCompress: true})
		large := strings.Repeat("x", 1<<20)
		if _, err := a.Append(t.Context(), recs(large), writer.Cursor([]byte("c"))); err != nil {
			t.Fatal(err)
		}
		b := e.open("b", 2, nil)
		if r := b.Recovered(); r.Offset != 1 || string(r.Cursor) != "c" {
			t.Errorf("recovered %+v", r)
		}
		e.append(b, "b")
		e.holds(large, "b")
	})
}

// An error of the store ends the opening, and says what was being done.
func TestOpeningFails(t *testing.T) {
	for name, rule := range map[string]faultstore.Rule{
		"sealing":  {Kind: faultstore.Put, Prefix: layout.DataPrefix},
		"reading":  {Kind: faultstore.Get, Prefix: layout.DataPrefix},
		"listing":  {Kind: faultstore.List, Prefix: layout.ManifestPrefix},
		"checking": {Kind: faultstore.List, Prefix: layout.ManifestPrefix, Skip: 1},
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			rule.Fault = faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
			e.fault(rule)
			_, err := e.try("a", 1, nil)
			if !errors.Is(err, store.ErrDenied) || strings.Contains(err.Error(), "fencepost verify") {
				t.Errorf("error is %v", err) // a store that fails is no damaged log
			}
		}))
	}
}

// Opening says how far it has come: each object, what it holds, when it was written.
func TestOpeningProgress(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, &writer.Options{Checkpoint: -1})
		for i := range 5 {
			time.Sleep(time.Hour)
			e.append(a, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
		}
		was := time.Now()
		time.Sleep(time.Hour)
		var all []writer.Progress
		b := e.open("b", 2, &writer.Options{Hooks: writer.Hooks{Progress: func(r writer.Progress) { all = append(all, r) }}})
		if len(all) != 5 { // the manifest of the first leader names its seal
			t.Fatalf("the hook was called %d times, of five objects", len(all))
		}
		bytes := int64(0)
		for i := range 5 {
			bytes += e.size(at(1, uint64(i)+1))
		}
		last := all[4]
		if last.Time = last.Time.UTC(); !last.Time.Equal(was) {
			t.Errorf("the last was written at %v, not %v", last.Time, was)
		}
		last.Time = time.Time{}
		if want := (writer.Progress{Objects: 5, Records: 10, Bytes: bytes, Position: at(1, 6), Offset: b.Recovered().Offset}); last != want {
			t.Errorf("the last call is of %+v, want %+v", last, want)
		}
	})
}
