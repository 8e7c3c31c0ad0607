package writer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// single is a pipeline in which every append is an object of its own.
var single = &writer.Options{Concurrency: 4, Window: 8, BatchBytes: 1, Checkpoint: -1}

// lost applies the next put of a slot of client a and holds its reply, which is
// then lost.
func (e *env) lost(seq uint64) (release func()) {
	gate := make(chan struct{})
	e.fault(faultstore.Rule{
		Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, seq)),
		Fault: faultstore.Fault{HoldReply: gate, Err: faultstore.ErrReset},
	})
	return func() { close(gate) }
}

// several appends a record each in appends of their own.
func (e *env) several(w *writer.Writer, values ...string) (fs []writer.Future) {
	e.Helper()
	for _, v := range values {
		fs = append(fs, e.async(w, v))
		synctest.Wait()
	}
	return fs
}

// The object landed, its reply was lost, it was folded and pruned, and a zombie opener's seal fell into
// the hole. The batch is committed and the writer goes on.
//
// guard:append-junk-seal. The writer's object was folded, and the seal is junk in a hole. Without this
// check: leader A's object is applied in slot 5, and the answer is lost; slot 5 is folded and pruned;
// opener B, which read an old manifest, puts its seal into the hole 5, and dies; A's retry meets B's
// seal; A stops, and reports the append as unknown, although readers have the record and nobody has
// ended A's epoch.
func TestJunkSealInAPrunedSlot(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		answer := e.lost(1)
		f := e.several(a, "0")
		e.compact()
		e.gone(at(1, 1))
		e.seal(at(1, 1), 7)
		answer()
		e.outcomes(f, "committed")
		if err := a.Err(); err != nil {
			t.Fatal(err)
		}
		e.append(a, "1")
		e.holds("0", "1")
	})
}

// The same seal where nothing was folded: the batch is lost.
//
// guard:append-refresh. A seal in a slot that the floor has passed may be junk: the writer's own object
// may have been folded and pruned. Without this check: the floor is slot 3 of the writer's epoch; a
// successor seals slot 5; the writer's create of slot 5 is refused; the writer takes its object for
// folded, and acknowledges a record that was never stored.
func TestSealInAnOpenSlot(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		e.append(a, "0")
		e.compact() // the floor is here, and has not passed the slot
		e.seal(at(1, 2), 7)
		f := e.several(a, "1")
		e.outcomes(f, "not")
		e.fenced(a.Err(), 7)
		e.holds("0")
	})
}

// guard:append-refresh. If the manifest cannot be read, the outcome is unknown.
func TestSealAndNoManifest(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		e.seal(at(1, 1), 7)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.List, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		_, err := a.Append(t.Context(), recs("0"))
		if kind(err) != "unknown" || !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), layout.DataKey(at(1, 1))) {
			t.Errorf("error is %v", err)
		}
	})
}

// A successor has opened, and all of the epoch is folded and pruned. The seal that the manifest
// remembers tells slot by slot what counts: 1 landed before it, 2 is where it lies, 3 lands after it
// and counts as little.
//
// guard:append-ended. Without this rule: leader A's object is applied in slot 5, and the answer is
// lost; successor B seals slot 9; a compactor folds slots 5 to 9, and prunes slots 5 to 8; opener C,
// which read an old manifest, puts its seal into the hole 5; A's retry meets C's seal, and A reports as
// unknown a record that readers have for certain.
func TestEpochEndedAndFolded(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		answer := e.lost(1)
		go2 := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		go3 := e.hold("a", faultstore.Put, layout.DataKey(at(1, 3)))
		fs := e.several(a, "0", "1", "2")
		b := e.open("b", 2, nil)
		e.append(b, "b")
		e.compact()
		e.gone(at(1, 1))
		e.seal(at(1, 1), 9) // junk
		go3()
		e.outcomes(fs, "pending", "pending", "pending")
		if e.header(at(1, 3)).Kind != frame.Data {
			t.Fatal("slot 3 has not landed")
		}
		answer()
		// What is before the seal is committed, and a successor there is.
		e.outcomes(fs, "committed", "not", "not")
		e.fenced(a.Err(), 2)
		go2()
		if err := a.Close(t.Context()); kind(err) != "not" {
			t.Errorf("Close: %v", err)
		}
		e.holds("0", "b")
	})
}

// The same, and only the sealed slot is asked about.
func TestSealedSlotAfterFolding(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		e.append(a, "0")
		e.append(e.open("b", 2, nil), "b")
		e.compact()
		e.outcomes(e.several(a, "1"), "not")
		e.fenced(a.Err(), 2)
		e.holds("0", "b")
	})
}

// guard:append-ended. It is so long ago that the manifest has the seal in a page.
func TestSealLongAgo(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		f := e.several(a, "0")
		e.seal(at(1, 1), 2)
		e.Publish(func(m *state.Change) error {
			seals := []state.Seal{{Position: frame.Genesis(), Next: 1}}
			for epoch := range fence.Epoch(state.MaxInline + 1) {
				seals = append(seals, state.Seal{Position: at(epoch+1, 1), Next: epoch + 2})
			}
			return m.Fold(m.Floor, frame.Point{Position: at(state.MaxInline+2, 1)}, seals, nil, nil)
		})
		release()
		e.outcomes(f, "not")
		e.fenced(a.Err(), 2)
	})
}

// The log went past this epoch without it, as the manifest has it: the outcome of the slot is unknown.
//
// guard:append-forgotten. A sound manifest lists each folded seal, so manifests were lost. Without this
// check: opener B seals slot 5/5; an operator deletes all manifests that know epoch 5; opener C begins
// at an older one, seals a pruned slot of epoch 4, and so leaves out epoch 5; C's epoch is folded; much
// later zombie Z of epoch 5 meets B's seal in slot 5/5; Z takes its object for folded, and acknowledges
// a record that no reader finds.
func TestSealForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		f := e.several(a, "0")
		e.seal(at(1, 1), 2)
		e.Publish(func(m *state.Change) error {
			return m.Fold(m.Floor, frame.Point{Position: at(2, 1)}, []state.Seal{{Position: frame.Genesis(), Next: 2}}, nil, nil)
		})
		release()
		e.outcomes(f, "unknown")
		e.fenced(a.Err(), 2)
	})
}

// Data of this epoch that this writer did not write: another process was given the same token.
//
// guard:append-foreign. Without this check: the machine of leader A is cloned, and clone B goes on in
// the same epoch 5; B writes slot 5/5, and a compactor folds it; A's create of slot 5/5 is refused; A
// finds that the floor has passed the slot, concludes that its own object was folded, and acknowledges
// a record that was never stored.
func TestForeignData(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		var b frame.Builder
		b.Add([]byte("theirs"))
		h := frame.Header{Log: e.Format.Log, Nonce: fence.ID(uuid.New()), Position: at(1, 1)}
		e.Put(layout.DataKey(at(1, 1)), b.Finish(&h, frame.Plain))
		fs := e.several(a, "0")
		e.outcomes(fs, "unknown")
		e.fenced(a.Err(), 1)
		if !strings.Contains(a.Err().Error(), "same token") {
			t.Errorf("%v does not say what is wrong", a.Err())
		}
	})
}

// What is no object of this log proves nothing.
//
// guard:append-damage. Without this check: the writer's object is applied in slot 5, and the answer is
// lost; an operator copies the data objects of another log over this one by mistake, among them a seal
// in slot 5; the writer meets this seal, and reports that a successor has fenced it and that its append
// is not committed; there is no successor, and readers may have the record.
func TestRubbishInTheSlot(t *testing.T) {
	seal := func(e *env, log fence.ID, p fence.Position) []byte {
		return frame.EncodeSeal(&frame.Header{Log: log, Position: p}, 7)
	}
	for name, body := range map[string]func(e *env) []byte{
		"rubbish":      func(*env) []byte { return []byte("rubbish") },
		"another log":  func(e *env) []byte { return seal(e, fence.ID{1}, at(1, 1)) },
		"another slot": func(e *env) []byte { return seal(e, e.Format.Log, at(1, 2)) },
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, single)
			e.Put(layout.DataKey(at(1, 1)), body(e))
			fs := e.several(a, "0")
			e.outcomes(fs, "unknown")
			if err := a.Err(); !errors.Is(err, fence.ErrCorrupt) || errors.Is(err, writer.ErrFenced) || !strings.Contains(err.Error(), layout.DataKey(at(1, 1))) {
				t.Errorf("error is %v", err)
			}
		}))
	}
}

// A seal that is found at a higher slot proves nothing of the lower ones: a wall is put up at its far
// end first. Each gets its own outcome.
func TestSealAtAHigherSlotFirst(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		go1 := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		go2 := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		e.seal(at(1, 3), 2)
		fs := e.several(a, "0", "1", "2")
		e.outcomes(fs, "pending", "pending", "not")
		e.fenced(a.Err(), 2)
		if _, err := a.AppendAsync(t.Context(), recs("late")); kind(err) != "not" || !errors.Is(err, writer.ErrFenced) {
			t.Errorf("an append after the seal: %v", err)
		}
		go2()
		e.outcomes(fs, "pending", "pending", "not")
		go1()
		e.outcomes(fs, "committed", "committed", "not")
		if err := a.Flush(t.Context()); kind(err) != "not" {
			t.Errorf("Flush: %v", err)
		}
		e.append(e.open("b", 3, nil), "b")
		e.holds("0", "1", "b")
	})
}

// Slots 1 and 3 landed, 2 is still open. Only 1 is acknowledged: a successor seals 2, and then 3 is
// void though it is there.
//
// guard:void. Without this rule: successor B seals slot 5, and slot 6 is applied; the writer reports
// the appends of both slots as unknown, although no reader will ever find them. If B's seal is folded,
// it is worse: the writer then takes all its slots for applied, and acknowledges slot 5, which holds
// B's seal.
//
// guard:contiguous. Without this check: slot 6 is applied and acknowledged, slot 5 is still in flight;
// the leader dies; the successor finds slot 5 empty and seals it; slot 6 is void, and an acknowledged
// record is lost.
func TestGapIsNotAcknowledged(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		fs := e.several(a, "0", "1", "2")
		e.outcomes(fs, "committed", "pending", "pending")
		if e.header(at(1, 3)).Kind != frame.Data {
			t.Fatal("slot 3 has not landed")
		}
		b := e.open("b", 2, nil)
		if b.Recovered().Offset != 1 {
			t.Errorf("recovered %+v", b.Recovered())
		}
		release()
		// guard:void.
		e.outcomes(fs, "committed", "not", "not")
		e.fenced(a.Err(), 2)
		e.append(b, "b")
		e.holds("0", "b")
	})
}

// The gap is closed after all: everything after it is acknowledged, in order.
func TestGapIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var order []string
		opts := *single
		opts.Hooks.Acknowledged = func(s writer.Acknowledgement) { order = append(order, fmt.Sprint(s.Position, s.First, s.Records)) }
		a := e.open("a", 1, &opts)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		fs := e.several(a, "0", "1", "2")
		e.outcomes(fs, "pending", "pending", "pending")
		release()
		e.outcomes(fs, "committed", "committed", "committed")
		for i, f := range fs {
			if off, _ := f.Wait(context.Background()); off != uint64(i) {
				t.Errorf("record %d is at %d", i, off)
			}
		}
		if got := strings.Join(order, ", "); got != "1/1 0 1, 1/2 1 1, 1/3 2 1" {
			t.Errorf("the hook heard of %s", got)
		}
	})
}
