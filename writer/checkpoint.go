package writer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/state"
)

const (
	// tailObjects and tailBytes are how much may be acknowledged until the next checkpoint,
	// whatever the interval: a successor reads as much in less than a second at S3's
	// latencies, over a wire of 1,250 MB/s (bench/outrun_test.go). A checkpoint takes three requests:
	// with 1,024 small objects it is 0.3 % more of them, and with 64 objects of 4 MiB 5 %.
	tailObjects = 1024
	tailBytes   = 256 << 20
)

// tail is what was acknowledged since the last checkpoint began. Guarded by Writer.mu.
type tail struct{ objects, bytes int }

// grow counts an object. It reports whether a checkpoint is due, once for each.
func (t *tail) grow(b *batch) (due bool) {
	before := t.long()
	t.objects++
	t.bytes += b.stored
	return t.long() && !before
}

func (t *tail) long() bool { return t.objects >= tailObjects || t.bytes >= tailBytes }

// checkpoints is what the checkpointer knows. One goroutine at a time uses it.
type checkpoints struct {
	pruning pruning
	hinted  frame.Point // the last hint that was published; if none is to be published, what was acknowledged at the last look
}

// restAfter is how long a writer without checkpoints has nothing to do until it rests.
const restAfter = 10 * time.Second

// checkpointFirst writes the manifest that records the epoch. Then it checkpoints, unless the
// writer can rest.
func (w *Writer) checkpointFirst() {
	c := &w.checkpoints
	c.hinted = w.noteHint(&c.pruning, frame.Point{})
	if !w.rest() {
		w.checkpoint()
	}
}

// checkpoint writes the leader's manifests, off the commit path: one in each interval or when
// the tail has become long, and a last one when the writer is drained. If the options want no
// checkpoints, it writes none. It returns when nothing was appended for an interval, and the writer
// rests.
func (w *Writer) checkpoint() {
	c := &w.checkpoints
	interval := w.opts.Checkpoint
	if interval < 0 {
		interval = restAfter
	}
	for {
		tick := make(chan struct{})
		t := w.opts.Clock.AfterFunc(interval, func() { close(tick) })
		select {
		case <-tick:
			before := c.hinted
			w.note(c)
			if !before.Before(c.hinted) && w.rest() {
				return
			}
		case <-w.long:
			t.Stop()
			w.note(c)
		case <-w.closed:
			t.Stop()
			w.awaitDrained()
			c.pruning.off = true // Close waits for this
			w.note(c)
			return
		}
	}
}

// note is noteHint for a writer that makes checkpoints. One that makes none writes no manifest after
// the first.
func (w *Writer) note(c *checkpoints) {
	if w.opts.Checkpoint > 0 || c.hinted.Position == (fence.Position{}) { // or the first one failed, which records the epoch
		c.hinted = w.noteHint(&c.pruning, c.hinted)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.hinted = w.acked
}

// rest ends the goroutines of a writer that has nothing to do, and frees the memory of its
// batch. A process may have thousands of such writers. It reports whether the checkpointer, which calls
// it, has to end too. An append begins everything again: see rouse.
func (w *Writer) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	// guard:rest-drained. A writer rests only when it has no append without an outcome.
	//
	//mutant:replace !w.drained() => false
	if w.life.err != nil || !w.drained() || w.checkpoints.hinted.Before(w.acked) {
		return false
	}
	w.checkpointing = false
	w.window = nil
	w.waiting.Lend(nil, nil)
	if w.crew != nil {
		w.crew = nil
		w.changed.Broadcast()
	}
	return true
}

// rouse begins the goroutines that a writer needs once something is appended. Called with mu
// held, by a writer that is not closed, so Close waits for them.
func (w *Writer) rouse() {
	if w.crew == nil {
		c := &crew{w: w, work: make(chan func())}
		w.crew = c
		w.tasks.Go(func() { w.dispatch(c) })
	}
	if !w.checkpointing {
		w.checkpointing = true
		w.tasks.Go(w.checkpoint)
	}
}

// noteHint notes in the manifest how far the history is acknowledged, if that is later than
// last. It returns the hint that the manifest has.
//
// guard:hint-acked. A leader publishes a point as the hint only if everything before it is
// acknowledged.
//
//mutant:replace w.acked => w.last.after
func (w *Writer) noteHint(p *pruning, last frame.Point) frame.Point {
	w.mu.Lock()
	at, stop := w.acked, w.life.stop
	w.tail = tail{}
	w.mu.Unlock()
	if stop != nil || !last.Before(at) {
		return last
	}
	began := w.opts.Clock.Now()
	m, err := p.updater.Update(w.slots, func(m *state.Change) error {
		if m.Tail().Before(at) {
			m.Hint = &at
		}
		return nil
	})
	by, fenced := errors.AsType[*fence.FencedError](err)
	fenced = fenced && superseded(err) // and it is not the reason why the caller gave up
	followed := fenced && w.follow(by)
	if hook := w.opts.Hooks.Checkpoint; hook != nil && !followed {
		hook(Checkpoint{Epoch: w.token.Epoch(), Err: err, Took: w.opts.Clock.Now().Sub(began), Position: at.Position, Offset: at.Offset})
	}
	switch {
	case err == nil:
		w.lists.Answered()
		p.after(w.slots, m)
		w.warnUnfolded(m.Floor, at)
		return at
	case followed:
	case fenced:
		// guard:keep-fenced. A leader whose checkpoint meets a manifest of a later epoch stops its
		// writer.
		w.mu.Lock()
		w.halt(by)
		w.acknowledge()
		w.mu.Unlock()
	case !errors.Is(err, context.Canceled) && !errors.Is(err, ErrClosed):
		// The next checkpoint will do. Until then a successor reads more of the tail.
		w.opts.Logger.Warn("the manifest could not be updated; the next checkpoint retries", zap.Error(fmt.Errorf("writer: %w", err)))
	}
	return last
}

// follow notes a successor that has fenced a checkpoint. It reports whether that is no failure: the writer
// was closed, and has no append without an outcome. In a hand-over the lock is free by then, and the
// successor may be quicker than the last checkpoint. Its own manifest begins no earlier.
func (w *Writer) follow(by *fence.FencedError) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.life.closing || w.life.stop != nil || !w.drained() {
		return false
	}
	w.shut(by)
	return true
}

// awaitDrained waits until nothing waits and nothing is in flight, or the writer is halted.
func (w *Writer) awaitDrained() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.drained() && w.life.stop == nil {
		w.changed.Wait()
	}
}

// manyUnfolded is how many objects that no compactor has folded are worth a warning. A
// compactor that runs leaves some hundred.
const manyUnfolded = 4096

// warnUnfolded says that nobody seems to compact the log, and again whenever twice as many objects
// wait. It counts those of this leader, for which it needs no request. `fencepost status` counts all.
func (w *Writer) warnUnfolded(floor, at frame.Point) {
	if !floor.Position.Before(at.Position) {
		return // a compactor has folded more since
	}
	n := at.Position.Seq - 1
	if floor.Position.Epoch == at.Position.Epoch {
		n = at.Position.Seq - floor.Position.Seq
	}
	if n < manyUnfolded || n < 2*w.unfolded {
		return
	}
	w.unfolded = n
	w.opts.Logger.Warn("many objects of the log are not folded; does a compactor run?",
		zap.Uint64("objects", n), zap.Uint64("records", at.Offset-floor.Offset), zap.Stringer("floor", floor.Position))
}
