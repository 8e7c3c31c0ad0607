package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// StepDownOptions of [Elector.StepDown]. The zero value works.
type StepDownOptions struct {
	// Reason is kept in the lock, for people.
	Reason string
	// Immediate lets a successor begin at once. Without it nobody follows before
	// the deposed leader has said that its work has ended, or its validity has
	// passed, so that there are never two leaders by their own belief.
	Immediate bool
	// Force also replaces a newest lock that cannot be read ([ErrJunk]), but never
	// one of a newer format.
	Force bool
}

// StepDown ends whoever's leadership it is, for an operator: it swaps the newest
// lock to expired, as a successor does to a lapsed one. The deposed leader hears
// of it at its next heartbeat at the latest, and its term ends with
// [ErrDeposed]. It returns the lock as it was. Errors: [ErrNoLeader] if the
// newest lock is expired or there is none; those of [Elector.Leader]; ctx's
// cause.
func (e *Elector) StepDown(ctx context.Context, opts *StepDownOptions) (Record, error) {
	var o StepDownOptions
	if opts != nil {
		o = *opts
	}
	for {
		rec, err := e.stepDown(ctx, &o)
		if !errors.Is(err, store.ErrPrecondition) {
			return rec, err
		}
		// It was renewed in between. The next heartbeat is a while off.
		if err := clock.Sleep(ctx, e.clock, e.opts.Renew/16); err != nil {
			return Record{}, err
		}
	}
}

func (e *Elector) stepDown(ctx context.Context, o *StepDownOptions) (Record, error) {
	opts := &store.SettleOptions{Attempt: e.timeout, Clock: e.clock}
	var epoch uint64
	var listed store.Version
	err := e.each(ctx, 0, opts, func(n uint64, info store.Info) {
		if n >= epoch {
			epoch, listed = n, info.Version
		}
	})
	switch {
	case err != nil:
		return Record{}, err
	case epoch == 0:
		return Record{}, ErrNoLeader
	}
	old, _, err := e.read(ctx, epoch, "", opts)
	switch {
	case errors.Is(err, store.ErrNotFound):
		// A higher one came and this one was pruned: look again.
		return Record{}, fmt.Errorf("%w: %w", store.ErrPrecondition, err)
	case errors.Is(err, ErrJunk) && o.Force:
		// Swapped by the version that the listing showed: what is read as junk and
		// replaced must be the same object.
		old = Record{
			Epoch: fence.Epoch(epoch), Holder: "unknown", Validity: e.opts.Validity, Renew: e.opts.Renew,
			Key: lockKey(e.prefix, epoch), Version: listed,
		}
	case err != nil:
		return Record{}, err
	case old.State == Expired:
		return old, ErrNoLeader
	}
	rec := old
	rec.State, rec.Nonce, rec.ExpiredBy, rec.Successor = Expired, newNonce(), e.opts.Identity, ""
	rec.Reason, rec.Wait = "stepped down", old.Validity
	if o.Reason != "" {
		rec.Reason += ": " + clip(o.Reason)
	}
	if o.Immediate {
		rec.Wait = 0
	}
	_, _, err = e.swap(ctx, rec, old.Version)
	return old, err
}

// clip keeps a reason far below what readers allow for a whole lock.
func clip(s string) string {
	const most = 1024
	if len(s) > most {
		s = s[:most] + "…"
	}
	return s
}
