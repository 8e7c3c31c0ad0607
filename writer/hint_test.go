package writer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/writer"
)

// wrongHint is a log whose manifest has a hint at slot 1/4 that does not fit there, with six
// records on the chain.
func wrongHint(e *env) {
	e.Helper()
	e.Lead(6)
	e.Publish(func(m *state.Change) error {
		h := *m.Hint
		h.Position, h.Offset = at(1, 4), 2
		m.Hint = &h
		return nil
	})
}

// The chain does not go on at the hint as the hint says. The opener begins again at the floor, opens
// the log, and says what it has found.
//
// guard:open-hint-fits. Without this: a faulty leader has published a hint with a wrong offset; each
// opener begins at the hint, and finds no object that fits there; nobody can lead the log, although its
// chain is sound.
func TestOpenAtWrongHint(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		wrongHint(e)
		core, logs := observer.New(zap.WarnLevel)
		w := e.open("b", 2, &writer.Options{Logger: zap.New(core)})
		if r := w.Recovered(); r.Offset != 6 {
			t.Errorf("recovered %+v", r)
		}
		if n := logs.FilterMessageSnippet("hint").FilterField(zap.Stringer("hint", at(1, 4))).Len(); n != 1 {
			t.Errorf("%d warnings: %v", n, logs.All())
		}
		e.append(w, "new")
		e.holds(slices.Concat(e.History(), []string{"new"})...)
	})
}

// A slot before the hint is lost, so the log does not end there. An opener that begins at the floor
// must not seal it: what comes after it was acknowledged.
//
// guard:open-missing. Without this check: slots 15 to 19 were acknowledged, and somebody deletes slot
// 15; slot 20, where the hint points, is damaged, so an opener begins again at the floor; it takes slot
// 15 for the tail, and seals it; slots 16 to 19 are void for ever, and nobody can put the object of
// slot 15 back.
func TestOpenBeforeHint(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		wrongHint(e)
		key := layout.DataKey(at(1, 2))
		lost := e.Body(key)
		e.Remove(key)
		_, err := e.try("b", 2, nil)
		if !errors.Is(err, chain.ErrDamaged) || !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key+" is missing") {
			t.Errorf("it opened: %v", err)
		}
		if e.Has(key) {
			t.Fatal("the lost slot was sealed")
		}
		e.Put(key, lost)
		e.open("c", 3, nil)
		e.holds(e.History()...)
	})
}

// The slot that is lost is the one in which an opener that has read so much puts its backstop.
//
// guard:backstop-acked. Every slot before the hint was acknowledged, and must not be sealed. Without
// this check: slots up to 40 were acknowledged, slot 33 is lost, and the hint's own slot is damaged; so
// an opener walks from the floor; its backstop is applied in slot 33, before its walk comes there; the
// opener begins its epoch after that seal, and slots 34 to 40 are void.
func TestBackstopBeforeHint(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.Lead(40)
		e.Publish(func(m *state.Change) error {
			h := *m.Hint
			h.Position, h.Offset = at(1, 38), 1
			m.Hint = &h
			return nil
		})
		key := layout.DataKey(at(1, 33))
		e.Remove(key)
		if _, err := e.try("b", 2, &writer.Options{Concurrency: 1, Window: 1}); !errors.Is(err, chain.ErrDamaged) {
			t.Errorf("it opened: %v", err)
		}
		if e.Has(key) {
			t.Error("the lost slot was sealed")
		}
	})
}
