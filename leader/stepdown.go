package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// StepDownOptions of [Elector.StepDown]. The zero value works, and so does nil.
type StepDownOptions struct {
	// Reason is kept in the lock, for people: at most 1,024 bytes of UTF-8.
	Reason string
	// Immediate lets a successor lead at once. Without it nobody leads before the
	// deposed leader has said that its work has ended, or its validity has passed.
	// So there are never two leaders that both believe that they lead.
	Immediate bool
	// Force also replaces a newest lock that is corrupt ([ErrCorrupt]), but never one
	// of a newer format. Its own validity is not known, so without Immediate nobody leads
	// before [Options.Validity] has passed: that must be the deposed leader's.
	Force bool
}

// maxReason keeps a reason far below what readers accept for a whole lock.
const maxReason = 1024

// Validate reports what is wrong with the options: an [ErrOptions].
func (o *StepDownOptions) Validate() error {
	if o != nil && (len(o.Reason) > maxReason || !utf8.ValidString(o.Reason)) {
		return fmt.Errorf("%w: Reason has %d bytes; it must be at most %d bytes of UTF-8", ErrOptions, len(o.Reason), maxReason)
	}
	return nil
}

// StepDown deposes the leader, whoever it is: it swaps the newest lock to expired,
// and returns the lock as it was before. It is for operators. The deposed leader
// learns of it at its next heartbeat, and its term ends with [ErrDeposed]. If it is
// replaced during the call, its lock is returned too, and its successor is not deposed.
//
// Errors: [ErrNoLeader] if there is no lock or the newest is expired; [ErrCorrupt]
// and [ErrFormat] if it cannot be read; [ErrOptions]; the store's and ctx's.
func (e *Elector) StepDown(ctx context.Context, opts *StepDownOptions) (Record, error) {
	if err := opts.Validate(); err != nil {
		return Record{}, err
	}
	o := *cmp.Or(opts, &StepDownOptions{})
	var first Record // the lock that was found at first
	for {
		rec, err := e.stepDown(ctx, &o, first.Epoch)
		first = cmp.Or(first, rec)
		switch {
		case errors.Is(err, errReplaced):
			return first, nil
		case !errors.Is(err, store.ErrPrecondition):
			return rec, err
		}
		// The lock was renewed meanwhile. Its next heartbeat is not due soon.
		if err := clock.Sleep(ctx, e.clock, e.opts.Renew/16); err != nil {
			return Record{}, err
		}
	}
}

// errReplaced: the leader that StepDown has found leads no longer.
var errReplaced = errors.New("replaced meanwhile")

// stepDown tries once. The leader of the epoch first, if that is not 0, was found by an earlier try.
func (e *Elector) stepDown(ctx context.Context, o *StepDownOptions, first fence.Epoch) (Record, error) {
	opts := e.settle(0)
	epoch, listed, err := e.highest(ctx, 0, opts)
	switch {
	case err != nil:
		return Record{}, err
	case epoch == 0:
		return Record{}, ErrNoLeader
	// guard:step-down-once. StepDown deposes no other leader than the one that it has found at first.
	//
	//mutant:replace first != 0 => false
	case first != 0 && epoch != first:
		return Record{}, errReplaced
	}
	old, _, err := e.read(ctx, epoch, "", opts)
	switch {
	case errors.Is(err, store.ErrNotFound):
		// It was succeeded and pruned meanwhile: begin again.
		return Record{}, fmt.Errorf("%w: %w", store.ErrPrecondition, err)
	case errors.Is(err, ErrCorrupt) && o.Force:
		// Swap the version that the listing showed, so that only an object that was read
		// as corrupt is replaced.
		old = Record{
			Epoch: epoch, Holder: "unknown", Validity: e.opts.Validity, Renew: e.opts.Renew,
			Key: layout.LockKey(e.prefix, epoch), Version: listed,
		}
	case err != nil:
		return Record{}, err
	case old.State == Expired && first != 0:
		return Record{}, errReplaced
	case old.State == Expired:
		return old, ErrNoLeader
	}
	rec := old
	rec.State, rec.Nonce, rec.ExpiredBy = Expired, newNonce(), e.opts.Identity
	rec.Reason, rec.Wait = "stepped down", old.Validity
	if o.Reason != "" {
		rec.Reason += ": " + o.Reason
	}
	if o.Immediate {
		rec.Wait = 0
	}
	_, _, err = e.swap(ctx, rec, old.Version)
	return old, err
}
