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

// guard:open-hint-fits. The chain does not go on at the hint as the hint says. The opener
// begins again at the floor, opens the log, and says what it has found.
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

// guard:open-missing. A slot before the hint is lost, so the log does not end there. An opener
// that begins at the floor must not seal it: what comes after it was acknowledged.
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

// guard:backstop-acked. The slot that is lost is the one in which an opener that has read so
// much puts its backstop.
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
		if _, err := e.try("b", 2, &writer.Options{InFlight: 1, Window: 1}); !errors.Is(err, chain.ErrDamaged) {
			t.Errorf("it opened: %v", err)
		}
		if e.Has(key) {
			t.Error("the lost slot was sealed")
		}
	})
}
