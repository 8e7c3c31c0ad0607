package takeover

import (
	"context"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/state"
)

// readGaps reads the slots that got no seal, as far as the leader has sent or up to our
// lowest seal. An empty one is sealed. Called with mu held.
func (w *wall) readGaps() {
	to := w.sent + 1
	if w.answered {
		to = max(to, w.row)
	}
	// The far seal stops the leader, but slots of the row are nearer: as long as the row has
	// not come to the far seal, the gaps before that are not read.
	if w.lowest != 0 && (w.lowest != w.far || w.next >= w.lowest) {
		to = w.lowest
	}
	for ; w.err == nil && w.gap < to && w.reading < maxRequests; w.gap++ {
		seq := w.gap
		s := w.slot(seq)
		if s.asked || s.decided() {
			continue
		}
		s.asked, s.again = true, true
		w.reading++
		w.tasks.Go(func() {
			found, own, err := w.o.sealAgain(w.ctx, w.at(seq))
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reading--
			w.decide(seq, found, own, err)
		})
	}
}

// repeat saves time when all but the last slots before our seal are decided. It begins to
// read the manifest. It also asks for these last slots a second time, because the walk
// waits for the slowest answer. Called with mu held.
func (w *wall) repeat() {
	if w.lowest == 0 || w.repeated == w.lowest || w.open > max(1, int(w.lowest-w.base.Seq)/4) {
		return
	}
	w.repeated = w.lowest
	if w.last == nil && w.readings < maxReadings {
		w.readings++
		r := &reading{done: make(chan struct{})}
		w.last = r
		w.tasks.Go(func() {
			defer close(r.done)
			r.m, r.err = w.o.Log.Newest(w.ctx)
		})
	}
	for seq := w.base.Seq; seq < w.lowest; seq++ {
		s := w.slot(seq)
		if s.again || s.decided() {
			continue
		}
		s.again = true
		w.tasks.Go(func() {
			found, own, err := w.o.sealAgain(w.ctx, w.at(seq))
			if err != nil {
				return // the first request will tell
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.decide(seq, found, own, nil)
		})
	}
}

// known returns what slot p holds, once it is decided; ok is false if the slot is none of
// the wall's. It is the walk's [chain.Follower.Known].
func (w *wall) known(ctx context.Context, p fence.Position) (o chain.Object, ok bool, err error) {
	if p.Epoch != w.base.Epoch || p.Seq < w.base.Seq {
		return o, false, nil
	}
	w.mu.Lock()
	s := w.slot(p.Seq)
	if w.err != nil || w.lowest != 0 && p.Seq > w.lowest {
		s.end()
	}
	w.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		return o, true, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.found.Body == nil && w.err != nil {
		return o, true, w.err
	}
	return s.found, true, nil // without a body the slot is after our seal, where no walk comes
}

// newest returns a manifest that was read after the seal in slot p was applied.
func (w *wall) newest(ctx context.Context, p fence.Position) (*state.Manifest, error) {
	w.mu.Lock()
	r := w.last
	if w.at(w.lowest) != p {
		r = nil
	}
	w.mu.Unlock()
	if r == nil {
		return w.o.Log.Newest(ctx)
	}
	<-r.done
	return r.m, r.err
}
