package writer

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/state"
)

// keep writes the leader's manifests, off the commit path: one that records the
// epoch as soon as it is open, checkpoints of the tail while it goes on, and a
// last one when the writer has been drained.
func (w *Writer) keep(u *state.Updater) {
	hinted := w.hint(u, frame.Point{})
	if w.opts.Checkpoint < 0 {
		return
	}
	for {
		tick := make(chan struct{})
		t := w.opts.Clock.AfterFunc(w.opts.Checkpoint, func() { close(tick) })
		select {
		case <-tick:
			hinted = w.hint(u, hinted)
		case <-w.closed:
			t.Stop()
			w.awaitDrained()
			w.hint(u, hinted)
			return
		}
	}
}

// hint tells the manifest how far the history has been acknowledged, if that is
// further than last.
//
// guard:hint-acked. Not how far it was sent: a slot that is still open may never
// land, and a successor that began to read behind it would seal where nobody comes
// by.
//
//mutant:replace w.acked => w.last.after
func (w *Writer) hint(u *state.Updater, last frame.Point) frame.Point {
	w.mu.Lock()
	at, stop := w.acked, w.stop
	w.mu.Unlock()
	if stop != nil || !last.Before(at) {
		return last
	}
	_, err := u.Update(w.slots, func(m *state.Change) error {
		if m.Tail().Before(at) {
			m.Hint = &at
		}
		return nil
	})
	switch {
	case err == nil:
		return at
	case errors.Is(err, fence.ErrFenced):
		// guard:keep-fenced. A zombie without traffic learns it here.
		var by *fence.FencedError
		errors.As(err, &by)
		w.mu.Lock()
		w.halt(by)
		w.settle()
		w.mu.Unlock()
	case !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed):
		// Not on the commit path: a later one will do. A successor reads the tail
		// from an older point.
		w.opts.Logger.Warn("the manifest could not be updated; the next checkpoint tries again", zap.Error(fmt.Errorf("writer: %w", err)))
	}
	return last
}

// awaitDrained waits until nothing is under way any more.
func (w *Writer) awaitDrained() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.drained() && w.stop == nil {
		w.changed.Wait()
	}
}
