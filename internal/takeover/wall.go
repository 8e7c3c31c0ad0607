package takeover

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/state"
)

const (
	// maxRequests is how many seals of the row are in flight at most, and how many requests
	// for gaps.
	maxRequests = 128
	// stride is how many slots the seals of the row are apart.
	stride = 3
	// maxReadings is how many readings of the manifest a wall begins before it is certain
	// which of its seals counts.
	maxReadings = 4
)

// wall is many seals of one opener in slots that a busy leader is about to use. The leader
// may win each race for the next empty slot. But it sends nothing beyond its window, and it
// acknowledges slots in order, so the first of these seals on the chain ends its epoch.
//
//	base                       row                              far
//	 | data data data ...       | seal . . seal . . seal . . ->  | seal
//	   read, or sealed            sent at once                     once
//
// The row is seals a stride apart. It begins after what the leader has probably sent. As
// many seals are in flight as the leader may have requests. For each seal that is refused,
// two more are sent, so the row overtakes the leader. One far seal lies where the leader
// cannot send yet, and stops it if the row does not.
//
// When the opener knows what the leader has reached, it reads the gaps, the slots before
// that without a seal. It seals those that are empty. So each slot gets decided. The walk
// takes the objects from here, slot by slot, and comes to the first seal. What the leader
// has in flight after that seal is void, whenever it lands.
type wall struct {
	o      *opener
	base   fence.Position  // the first slot
	row    uint64          // the first slot of the row
	ctx    context.Context //nolint:containedctx // of its requests, until it is torn down
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	slots    map[uint64]*slot
	next     uint64 // where the row continues
	far      uint64 // where the far seal is
	inFlight int    // seals of the row, and far ones
	limit    int    // of inFlight
	answered bool   // one slot is decided
	gap      uint64 // the first slot that may be a gap to read
	reading  int    // gaps that are being read
	sent     uint64 // the last slot that the leader is known, or supposed, to have sent
	lowest   uint64 // the lowest slot that is known to hold our seal, 0 if there is none
	open     int    // slots before lowest that are not decided
	repeated uint64 // lowest when repeat was last done
	readings int    // of the manifest
	last     *reading
	err      error // of the first request that failed: nothing is certain any more
}

// slot is one slot of a wall.
type slot struct {
	done  chan struct{} // closed when it is decided
	asked bool
	again bool // asked for by a second request
	// found is what the slot holds. It has no body if that is not known and does not matter:
	// our seal is before the slot, or the wall has failed.
	found chain.Object
}

// reading is one reading of the manifest.
type reading struct {
	done chan struct{}
	m    *state.Manifest
	err  error
}

// build begins a wall at slot p. If refused is not nil, it is what slot p holds. The leader
// has probably sent all slots up to sent.
func (o *opener) build(ctx context.Context, p fence.Position, refused *chain.Object, sent uint64) {
	o.tearDown()
	o.Logger.Info("a busy leader is about to use the next slots; building a wall of seals", zap.Stringer("from", p))
	w := &wall{o: o, base: p, slots: map[uint64]*slot{}, gap: p.Seq, sent: sent, row: sent + 1 + uint64(o.InFlight)}
	w.next, w.limit = w.row, min(o.InFlight+1, maxRequests)
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if refused != nil {
		s := w.slot(p.Seq)
		s.asked, s.found = true, *refused
		close(s.done)
	}
	w.sendFar(w.row + 2*uint64(o.Window))
	w.extend()
	w.readGaps()
	o.wall, o.follow.Known = w, w.known
	o.src.First = chain.DefaultAhead // there is at least the wall
}

// tearDown cancels what is in flight of a wall and waits for it.
func (o *opener) tearDown() {
	if w := o.wall; w != nil {
		o.wall, o.follow.Known, o.src.First = nil, nil, 0
		w.cancel()
		w.tasks.Wait()
	}
}

// slot returns slot seq. Called with mu held.
func (w *wall) slot(seq uint64) *slot {
	s := w.slots[seq]
	if s == nil {
		s = &slot{done: make(chan struct{})}
		w.slots[seq] = s
	}
	return s
}

func (w *wall) at(seq uint64) fence.Position { return fence.Position{Epoch: w.base.Epoch, Seq: seq} }

// sendFar sends the far seal to slot seq. Called with mu held.
func (w *wall) sendFar(seq uint64) {
	w.far = seq
	w.send(seq)
}

// extend sends as many seals of the row as may be in flight. Called with mu held.
func (w *wall) extend() {
	for w.err == nil && w.inFlight < w.limit && (w.lowest == 0 || w.next < w.lowest) {
		w.send(w.next)
		w.next += stride
		// guard:wall-far. A wall is a row of seals and one far seal ahead of them. A new
		// far seal is sent only while none of the wall's seals is applied. Without this
		// check: the far seal is applied and ends the epoch; the row fills the slots before
		// it and reaches it; the opener sends another one twice as far ahead, and so on,
		// all of them void.
		//
		//mutant:replace w.lowest == 0 && w.next => w.next
		if w.lowest == 0 && w.next > w.far {
			// guard:open-reach. Each far seal is twice as far from the wall's first slot as
			// the one before. Without this: a leader has a larger window than the opener,
			// and appends faster than the row of seals grows; it has used the slot of every
			// far seal before that arrives; the takeover never ends.
			//
			//mutant:replace 2*(w.far => 1*(w.far
			w.sendFar(w.base.Seq + 2*(w.far-w.base.Seq))
		}
	}
}

// send sends a seal to slot seq. Called with mu held.
func (w *wall) send(seq uint64) {
	s := w.slot(seq)
	if s.asked {
		return
	}
	s.asked = true
	w.inFlight++
	w.tasks.Go(func() {
		found, own, err := w.o.seal(w.ctx, w.at(seq))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.inFlight--
		w.decide(seq, found, own, err)
	})
}

// decide notes what slot seq holds. Called with mu held.
func (w *wall) decide(seq uint64, found chain.Object, own bool, err error) {
	s := w.slots[seq]
	if s.decided() || w.err != nil {
		return
	}
	w.answered = true
	switch {
	case err != nil:
		w.err = err
		for _, s := range w.slots {
			s.end()
		}
		return
	case own:
		w.lowest, w.open = seq, int(seq-w.base.Seq)
		// guard:open-look. The manifest is read again after the answer to the seal that
		// ends the epoch. Without this: the opener seals slot 6 and reads the manifest;
		// meanwhile the leader fills slot 5, and a compactor folds and prunes it; the
		// opener's seal for slot 5 lands in that hole; the manifest that was read does not
		// show this, and the opener begins its epoch after slot 5, where nobody reads.
		//
		//mutant:replace w.last = nil => _ = w.last
		w.last = nil
		for at, s := range w.slots {
			if at > seq {
				s.end()
			} else if at < seq && s.decided() {
				w.open--
			}
		}
	default:
		w.open--
		w.limit = min(w.limit+1, maxRequests)
		w.sent = max(w.sent, seq)
		for w.next <= w.sent {
			w.next += stride
		}
	}
	s.found = found
	s.end()
	w.extend()
	w.readGaps()
	w.repeat()
}

func (s *slot) decided() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// end decides a slot as far as it is known by now.
func (s *slot) end() {
	if !s.decided() {
		close(s.done)
	}
}
