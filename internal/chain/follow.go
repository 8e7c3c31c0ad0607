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

func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }
func (e *DamagedError) Unwrap() error        { return e.Err }

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
	// EachSeal confirms each seal before it is yielded, for a caller that cannot take
	// back what it has delivered. Otherwise the caller calls Confirm before it relies on
	// anything.
	EachSeal bool

	// doubt is the first seal that was followed since the last Confirm, also by an
	// earlier Walk; nil if none was.
	doubt *fence.Position
}

// Walk is [Source.Walk] with errors that are final: [ErrMoved], [ErrDamaged], or what
// the store or ctx says. It follows seals; until [Follower.Confirm] returns nil, what
// comes after one may not be the history.
func (f *Follower) Walk(ctx context.Context, from frame.Point) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		for step, err := range f.Source.Walk(ctx, from) {
			switch {
			case err != nil:
				err = f.classify(ctx, step.From.Position, err)
			case step.Frame.Kind == frame.Seal:
				if f.doubt == nil {
					f.doubt = &step.From.Position
				}
				if f.EachSeal {
					err = f.Confirm(ctx)
				}
			}
			if !yield(step, err) || err != nil {
				return
			}
		}
	}
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

// classify tells damage from junk.
func (f *Follower) classify(ctx context.Context, p fence.Position, err error) error {
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
