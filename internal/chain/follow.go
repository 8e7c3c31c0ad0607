package chain

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

var (
	// ErrMoved: the floor has passed what was read, so it may not be the history. Read
	// the newest manifest and begin again.
	ErrMoved = errors.New("the floor has moved")
	// ErrDamaged: an object is damaged or missing, although the newest manifest still
	// needs it. See [DamagedError].
	ErrDamaged = errors.New("the log is damaged")
)

// DamagedError is [ErrDamaged], and also Err, which says what is damaged or missing.
type DamagedError struct{ Err error }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%v: %v; run `fencepost verify` to see the extent", ErrDamaged, e.Err)
}

// Is makes a DamagedError an [ErrDamaged].
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Err }

// Follower walks the chain and classifies what it finds. An object that does not fit,
// or a seal, may be junk: pruning leaves holes, and zombies write into them. A reading
// of the floor decides. If the floor has passed the first seal that was followed, or
// the slot in question, the walk may have gone through a hole. If it has not, nothing
// on the way was ever pruned, since pruning deletes only before the floor.
//
// It is for one goroutine.
type Follower struct {
	*Source
	// Floor reads the newest manifest and returns its floor. The reading begins after
	// the call.
	Floor func(context.Context) (fence.Position, error)
	// Confirmed makes Walk yield only what is confirmed, for a caller that cannot take back
	// what it has delivered. Walk holds back what comes from a seal on, and confirms many
	// seals by one reading of the floor: after one object, then after 16 more, after 256
	// more, and so on. It holds back no more than [Source.Budget] of payload, and nothing
	// at the first empty slot. Otherwise the caller calls Confirm before it relies on
	// anything.
	Confirmed bool
	// Beyond is set when Walk has come to an empty slot: the last slot after it that was
	// seen to hold something other than a seal. It is zero if there is none.
	Beyond fence.Position

	// doubt is the first seal that was followed since the last Confirm, also by an
	// earlier Walk; nil if none was.
	doubt *fence.Position
}

// Walk is [Source.Walk] with errors that are final: [ErrMoved], [ErrDamaged], or what
// the store or ctx says. It follows seals; unless Confirmed is set, what comes after one may
// not be the history until [Follower.Confirm] returns nil.
func (f *Follower) Walk(ctx context.Context, from frame.Point) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		f.Beyond = fence.Position{}
		h := held{room: f.budget(), enough: 1}
		for step, err := range f.walk(ctx, from, &f.Beyond) {
			if err != nil {
				err = f.Classify(ctx, step.From.Position, err)
				// The reading that calls an object damaged confirms what comes before it.
				if !errors.Is(err, ErrDamaged) || h.yield(yield) {
					yield(step, err)
				}
				return
			}
			if step.Frame.Kind == frame.Seal && f.doubt == nil {
				f.doubt = &step.From.Position
			}
			if !f.Confirmed || f.doubt == nil {
				if !yield(step, nil) {
					return
				}
			} else if h.add(step) && !f.release(ctx, &h, yield) {
				return
			}
		}
		f.release(ctx, &h, yield)
	}
}

// held is what a walk holds back until it is confirmed.
type held struct {
	steps  []Step
	bytes  int64 // of payload
	room   int64 // for so many
	enough int   // confirm when there are so many steps
}

// stride is how many times more is held back each time. So a walk of any length takes five
// readings of the floor until the room bounds what is held back: then one for each room.
const stride = 16

// stepSize is about what a step takes besides its payload.
const stepSize = 512

// add holds a step back, and reports whether it is time to confirm.
func (h *held) add(step Step) bool {
	h.steps = append(h.steps, step)
	h.bytes += max(step.Size, int64(step.Frame.PayloadLen())) + stepSize
	return len(h.steps) >= h.enough || h.bytes >= h.room
}

// yield yields what was held back. It reports whether the caller wants more.
func (h *held) yield(yield func(Step, error) bool) bool {
	for _, step := range h.steps {
		if !yield(step, nil) {
			return false
		}
	}
	clear(h.steps) // their bodies
	h.steps, h.bytes, h.enough = h.steps[:0], 0, min(stride*h.enough, 1<<20)
	return true
}

// release confirms what is held back, and yields it.
func (f *Follower) release(ctx context.Context, h *held, yield func(Step, error) bool) bool {
	if len(h.steps) == 0 {
		return true
	}
	if err := f.Confirm(ctx); err != nil {
		yield(h.steps[0], err)
		return false
	}
	return h.yield(yield)
}

// Confirm returns nil if all that Walk has yielded so far is the history. It costs one
// reading of the manifest, and nothing if no seal was followed since the last call.
// Otherwise the error is [ErrMoved], or that of the reading.
func (f *Follower) Confirm(ctx context.Context) error {
	if f.doubt == nil {
		return nil
	}
	if err := f.passed(ctx, *f.doubt); err != nil {
		return err
	}
	f.doubt = nil
	return nil
}

// Tail confirms that slot p, which Walk has found absent, is the tail and no hole:
// [ErrMoved] if the floor has passed it, or the first seal on the way there.
func (f *Follower) Tail(ctx context.Context, p fence.Position) error {
	if f.doubt != nil {
		p = *f.doubt
	}
	return f.passed(ctx, p)
}

// Classify says what err about slot p means. Corrupt or missing, it is junk or a hole if
// the floor has passed it: [ErrMoved]. Otherwise it is damage: [ErrDamaged], with err. An
// error that is neither fence.ErrCorrupt nor fence.ErrLimit is returned as it is.
//
// guard:open-damage. An object that does not fit the chain is damage only if the floor has not passed
// the first seal that the walk has followed.
//
//mutant:replace f.Tail(ctx, p) => error(nil)
func (f *Follower) Classify(ctx context.Context, p fence.Position, err error) error {
	if !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrLimit) {
		return err
	}
	if moved := f.Tail(ctx, p); moved != nil {
		return moved
	}
	return &DamagedError{err}
}

func (f *Follower) passed(ctx context.Context, p fence.Position) error {
	floor, err := f.Floor(ctx)
	if err == nil && p.Before(floor) {
		f.doubt = nil // the caller begins again
		return ErrMoved
	}
	return err
}
