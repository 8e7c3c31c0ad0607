package survey

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// Last is where a look at a log has ended, so that the next one reads only what came after. The zero value knows
// nothing. It is for one log at a time, and for one goroutine.
type Last struct {
	log fence.ID
	// The last object before the tail is at last. The next look reads it again: it is gone, or another one, if the
	// log was replaced by an older copy of itself.
	last, tail frame.Point
}

// findTail is the function findTail, but begins at l if no later checkpoint is known. L may be nil.
func (l *Last) findTail(ctx context.Context, st store.Store, log *state.Log) (*state.Manifest, frame.Point, error) {
	if l == nil {
		m, tail, _, err := findTail(ctx, st, log)
		return m, tail, err
	}
	known, id := *l, log.Format().Log
	*l = Last{}
	last := frame.Point{}
	begin := func(m *state.Manifest) frame.Point {
		last = m.Tail()
		if known.log == id && last.Position.Before(known.last.Position) {
			last = known.last
		}
		return last
	}
	m, tail, _, err := walkToTail(ctx, st, log, begin, func(step chain.Step) { last = step.From })
	if known.log == id && (errors.Is(err, fence.ErrCorrupt) || err == nil && tail.Position.Before(known.tail.Position)) { // replaced, or damaged
		known = Last{}
		m, tail, _, err = walkToTail(ctx, st, log, begin, func(step chain.Step) { last = step.From })
	}
	if err == nil {
		*l = Last{id, last, tail}
	}
	return m, tail, err
}
