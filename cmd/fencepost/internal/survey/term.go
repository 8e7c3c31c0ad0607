package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// Term is one leadership. It marshals to JSON.
type Term struct {
	// Epoch is 0 if nobody has led yet.
	Epoch  fence.Epoch `json:"epoch"`
	Holder string      `json:"holder,omitempty"`
	// State is "held", "draining", "expired" or "lapsed"; empty if the lock was not read. Leads: the holder led when
	// it was read, as far as one reading can tell.
	State string `json:"state,omitempty"`
	Leads bool   `json:"leads"`
	// From and To are the holder's time of day, and so is Until: when the lease of a holder that leads ends unless
	// it is renewed before. To is the last sign of life.
	From        time.Time `json:"from,omitzero"`
	To          time.Time `json:"to,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	Validity    float64   `json:"validity_seconds,omitempty"`
	Renewals    uint64    `json:"renewals,omitempty"`
	Transitions uint64    `json:"transitions,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	// EndedBy is who has ended the leadership, if that was not its holder. A holder that was alive replaces it
	// when it has stopped, and leaves the reason.
	EndedBy string `json:"ended_by,omitempty"`
	// Next is set in a milestone, which nobody held: the epoch that follows.
	Next fence.Epoch `json:"next,omitempty"`
}

// TermOf returns what a lock says of its leadership.
func TermOf(rec leader.Record) Term {
	t := Term{
		Epoch: rec.Epoch, Holder: rec.Holder, State: string(rec.State), Leads: rec.Leads() && !rec.Lapsed, From: rec.Acquired, To: rec.Renewed,
		Validity: rec.Validity.Seconds(), Renewals: rec.Renewals, Transitions: rec.Transitions, Reason: rec.Reason, Next: rec.Next,
	}
	if t.Leads {
		t.Until = rec.Renewed.Add(rec.Validity)
	}
	if rec.Lapsed {
		t.Lapse()
	}
	if rec.ExpiredBy != rec.Holder {
		t.EndedBy = rec.ExpiredBy
	}
	return t
}

// Lapse notes that the holder did not renew its lock in time.
func (t *Term) Lapse() { t.State, t.Leads, t.Until = "lapsed", false, time.Time{} }

// Lasts is how long the lock holds without a renewal.
func (t *Term) Lasts() time.Duration { return Span(t.Validity) }

// patience bounds how long the store may fail until nobody is asked any more who leads.
const patience = 2 * time.Minute

// Leader reads who leads, like [leader.Elector.Leader]. That tries for ever while the store fails, and Leader for
// two minutes.
func Leader(ctx context.Context, e *leader.Elector) (leader.Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("who leads could not be read within %v", patience))
	defer cancel()
	return e.Leader(ctx)
}

// Leadership reads the newest lock of an election: [inspect.Lock] or [inspect.CompactorLock].
func Leadership(ctx context.Context, st store.Store, of inspect.Kind) (Term, error) {
	e, err := leader.New(st, of.Prefix(), nil)
	if err != nil {
		return Term{}, err
	}
	rec, err := Leader(ctx, e)
	if err != nil && !errors.Is(err, leader.ErrNoLeader) {
		return Term{}, err
	}
	if rec.Epoch == 0 {
		return Term{}, nil
	}
	return TermOf(rec), nil
}
