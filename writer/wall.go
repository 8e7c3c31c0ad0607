package writer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

const (
	// wallRequests is how many requests of a wall are under way at most.
	wallRequests = 128
	// stride is how far the seals of the row are apart.
	stride = 3
	// wallLooks is how many of a wall's seals begin a reading of the manifest before it is
	// certain that they count.
	wallLooks = 4
)

// wall is seals, all alike, on slots that a busy leader is about to use. It wins every
// race for the next empty slot, but it sends nothing beyond its window, and slots are
// settled in order: the first of these seals on the chain is its end.
//
// There is a row of them, a few slots apart, which begins where the leader probably has sent
// nothing yet. As many are under way as it may have requests itself, and for each that is refused
// two more are sent, so the row gets ahead of it. One more seal lies far ahead of the row, where
// nobody can send yet: if nothing else does, that one stops the leader.
//
// When one is applied, or shows what the leader has reached, all slots before it are
// looked at: most are taken by then, and are read in this way. Into those that are not a
// seal is put too. So each slot is decided, the walk takes from here what is in it, and comes to
// the first seal. What is under way behind that is void, whenever it lands.
type wall struct {
	o      *opening
	base   fence.Position  // the first slot
	row    uint64          // the first slot of the row
	ctx    context.Context //nolint:containedctx // of its requests, until it is torn down
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu     sync.Mutex
	slots  map[uint64]*brick
	next   uint64 // the row goes on here
	far    uint64 // where the seal ahead of the row is
	flying int    // seals under way, but those before the row
	wide   int    // how many may be
	some   bool   // one of them has been decided
	// looked is the first slot that may have to be looked at, and looking how many
	// are being looked at.
	looked  uint64
	looking int
	taken   uint64 // the last slot that the leader is known, or supposed, to have sent
	lowest  uint64 // the lowest slot that is known to hold our seal, 0 if none
	open    int    // slots before it that are not decided
	hurried uint64 // lowest when hurry was last done
	looks   int    // readings of the manifest
	look    *look  // the last one, if it began when lowest was known
	err     error  // the first of a request: nothing is certain any more
}

// brick is one slot of a wall.
type brick struct {
	done  chan struct{} // closed when it is decided
	sent  bool
	again bool // asked for a second time
	// found is what is there; without a body if that is not known, and need not be,
	// since our seal is before it, or the wall has failed.
	found chain.Object
}

// look is one reading of the manifest.
type look struct {
	done chan struct{}
	m    *state.Manifest
	err  error
}

// build begins a wall at p. If refused is not nil it is what was found there. The leader has
// probably sent all slots up to sent.
func (o *opening) build(ctx context.Context, p fence.Position, refused *chain.Object, sent uint64) {
	o.tearDown()
	o.opts.Logger.Info("a busy leader is about to use the next slots; building a wall of seals", zap.Stringer("from", p))
	w := &wall{o: o, base: p, slots: map[uint64]*brick{}, looked: p.Seq, taken: sent, row: sent + 1 + uint64(o.opts.InFlight)}
	w.next, w.wide = w.row, min(o.opts.InFlight+1, wallRequests)
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if refused != nil {
		b := w.brick(p.Seq)
		b.sent, b.found = true, *refused
		close(b.done)
	}
	w.reach(w.row + 2*uint64(o.opts.Window))
	w.extend()
	w.lower()
	o.wall, o.src.Known = w, w.known
	o.src.First = chain.DefaultAhead // there is at least the wall
}

// tearDown breaks off what is under way of a wall and waits for it.
func (o *opening) tearDown() {
	if w := o.wall; w != nil {
		o.wall, o.src.Known = nil, nil
		w.cancel()
		w.tasks.Wait()
	}
}

// brick returns slot seq. Called with mu held.
func (w *wall) brick(seq uint64) *brick {
	b := w.slots[seq]
	if b == nil {
		b = &brick{done: make(chan struct{})}
		w.slots[seq] = b
	}
	return b
}

// reach sends the seal that lies ahead of the row. Called with mu held.
func (w *wall) reach(seq uint64) {
	w.far = seq
	w.send(seq)
}

// extend sends as many seals of the row as may be under way. Called with mu held.
func (w *wall) extend() {
	for w.err == nil && w.flying < w.wide && (w.lowest == 0 || w.next < w.lowest) {
		w.send(w.next)
		w.next += stride
		// guard:wall-far. Nothing behind the first of our seals counts, if that is the far one.
		//
		//mutant:replace w.lowest == 0 && w.next => w.next
		if w.lowest == 0 && w.next > w.far {
			// guard:open-reach. The leader's window may be larger than ours, and it may be
			// faster than the row can be.
			//
			//mutant:replace 2*(w.far => 1*(w.far
			w.reach(w.base.Seq + 2*(w.far-w.base.Seq))
		}
	}
}

// send puts a seal on slot seq. Called with mu held.
func (w *wall) send(seq uint64) {
	b := w.brick(seq)
	if b.sent {
		return
	}
	b.sent = true
	w.flying++
	w.tasks.Go(func() {
		found, own, err := w.o.seal(w.ctx, w.at(seq))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.flying--
		w.decide(seq, found, own, err)
	})
}

func (w *wall) at(seq uint64) fence.Position { return fence.Position{Epoch: w.base.Epoch, Seq: seq} }

// decide notes what is in slot seq. Called with mu held.
func (w *wall) decide(seq uint64, found chain.Object, own bool, err error) {
	b := w.slots[seq]
	if b.decided() || w.err != nil {
		return
	}
	w.some = true
	switch {
	case err != nil:
		w.err = err
		for _, b := range w.slots {
			b.end()
		}
		return
	case own:
		w.lowest, w.open = seq, int(seq-w.base.Seq)
		// guard:open-look. A reading that began before the answer to the seal that counts
		// tells nothing of the slot where that lies.
		//
		//mutant:replace w.look = nil => _ = w.look
		w.look = nil
		for at, b := range w.slots {
			if at > seq {
				b.end()
			} else if at < seq && b.decided() {
				w.open--
			}
		}
	default:
		w.open--
		w.wide = min(w.wide+1, wallRequests)
		w.taken = max(w.taken, seq)
		for w.next <= w.taken {
			w.next += stride
		}
	}
	b.found = found
	b.end()
	w.extend()
	w.lower()
	w.hurry()
}

func (b *brick) decided() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// end says that no more will be known of a slot than is known by now.
func (b *brick) end() {
	if !b.decided() {
		close(b.done)
	}
}

// lower looks at the slots that no seal was sent to and that the leader has sent, or that
// lie before our seal. Called with mu held.
func (w *wall) lower() {
	to := w.taken + 1
	if w.some {
		to = max(to, w.row)
	}
	// The seal that is far ahead stops the leader, but it takes a while to come there. The
	// row's are nearer.
	if w.lowest != 0 && (w.lowest != w.far || w.next >= w.lowest) {
		to = w.lowest
	}
	for ; w.err == nil && w.looked < to && w.looking < wallRequests; w.looked++ {
		seq := w.looked
		b := w.brick(seq)
		if b.sent || b.decided() {
			continue
		}
		b.sent, b.again = true, true
		w.looking++
		w.tasks.Go(func() {
			found, own, err := w.o.sealAgain(w.ctx, w.at(seq))
			w.mu.Lock()
			defer w.mu.Unlock()
			w.looking--
			w.decide(seq, found, own, err)
		})
	}
}

// hurry does what can be done when all but the last slots before our seal are decided:
// it begins to read the manifest, and asks for these slots a second time, since one late answer holds up
// all. Called with mu held.
func (w *wall) hurry() {
	if w.lowest == 0 || w.hurried == w.lowest || w.open > max(1, int(w.lowest-w.base.Seq)/4) {
		return
	}
	w.hurried = w.lowest
	if w.look == nil && w.looks < wallLooks {
		w.looks++
		l := &look{done: make(chan struct{})}
		w.look = l
		w.tasks.Go(func() {
			defer close(l.done)
			l.m, l.err = w.o.log.Newest(w.ctx)
		})
	}
	for seq := w.base.Seq; seq < w.lowest; seq++ {
		b := w.brick(seq)
		if b.again || b.decided() {
			continue
		}
		b.again = true
		w.tasks.Go(func() {
			found, own, err := w.o.sealAgain(w.ctx, w.at(seq))
			if err != nil {
				return // the first request tells
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.decide(seq, found, own, nil)
		})
	}
}

// known returns what is in slot p, when it is decided; false if that is not for the wall
// to say. It is the walk's [chain.Source.Known].
func (w *wall) known(ctx context.Context, p fence.Position) (chain.Object, bool, error) {
	if p.Epoch != w.base.Epoch || p.Seq < w.base.Seq {
		return chain.Object{}, false, nil
	}
	w.mu.Lock()
	b := w.brick(p.Seq)
	if w.err != nil || w.lowest != 0 && p.Seq > w.lowest {
		b.end()
	}
	w.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return chain.Object{}, true, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.found.Body == nil && w.err != nil {
		return chain.Object{}, true, w.err
	}
	return b.found, true, nil // without a body: it is behind our seal, where no walk comes by
}

// failed returns why a walk has ended at slot p, if it was for want of an answer.
func (w *wall) failed(p fence.Position) error {
	if w == nil || p.Epoch != w.base.Epoch {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// newest reads the newest manifest after the seal on slot p was applied, or
// returns one that was read since then.
func (w *wall) newest(ctx context.Context, p fence.Position) (*state.Manifest, error) {
	w.mu.Lock()
	l := w.look
	if w.at(w.lowest) != p {
		l = nil
	}
	w.mu.Unlock()
	if l == nil {
		return w.o.log.Newest(ctx)
	}
	<-l.done
	return l.m, l.err
}

// seal creates this opener's seal on slot p. Its outcome is certain: the seal is
// there, and own is true, or found is.
func (o *opening) seal(ctx context.Context, p fence.Position) (found chain.Object, own bool, err error) {
	body := o.sealBody(p)
	_, err = store.Create(ctx, o.src.Store, layout.DataKey(p), body, &store.WriteOptions{
		Settle:   o.opts.Settle,
		Identity: chain.Head, // what is there instead has to be read in any case
	})
	var conflict *store.ConflictError
	switch {
	case err == nil:
		return ownSeal(p, body), true, nil
	case errors.As(err, &conflict) && errors.Is(err, store.ErrPrecondition):
		return chain.Object{Body: conflict.Body, Info: conflict.Found}, false, nil
	}
	return found, false, fmt.Errorf("writer: sealing %s: %w", layout.DataKey(p), err)
}

func ownSeal(p fence.Position, body []byte) chain.Object {
	return chain.Object{Body: body, Info: store.Info{Key: layout.DataKey(p), Size: int64(len(body))}}
}

// sealAgain looks at a slot whose seal is late, and sends the same if nothing is there.
func (o *opening) sealAgain(ctx context.Context, p fence.Position) (found chain.Object, own bool, err error) {
	found, err = o.src.Look(ctx, p)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return o.seal(ctx, p)
	case err != nil:
		return found, false, err
	}
	return found, string(found.Body) == string(o.sealBody(p)), nil
}

// sealBody is the seal for slot p, the same each time.
func (o *opening) sealBody(p fence.Position) []byte {
	h := frame.Header{Log: o.src.Log, Nonce: o.nonce, Position: p, Time: o.time}
	return frame.EncodeSeal(&h, o.token.Epoch())
}
