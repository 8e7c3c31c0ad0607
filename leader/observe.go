package leader

import (
	"context"
	"iter"

	"github.com/fencepost/fencepost/internal/lease"
)

// Leader looks once who leads: at the newest lock, which a listing has shown as
// such, so that an unreadable or stray lock with a lower number fools nobody.
// The error is [ErrNoLeader] if nobody does; the record then tells of the last
// leader, and has epoch 0 if there never was one. Errors otherwise are those of
// [Elector.Campaign].
//
// One look cannot tell a leader that has crashed a moment ago from one that
// lives: it is [Record.Lapsed] if the store's own clock says that it has not
// renewed for its validity and 5 s more. [Elector.Observe] knows better.
func (e *Elector) Leader(ctx context.Context) (Record, error) {
	for rec, err := range e.watch(ctx) {
		if err == nil && !rec.Leads() {
			err = ErrNoLeader
		}
		return rec, err
	}
	return Record{}, context.Cause(ctx)
}

// Observe watches without taking part, and yields the newest lock now and
// whenever it changes: another epoch, holder or state, or a leader that has
// lapsed (it has not renewed for its validity, of the observer's elapsed time).
// Heartbeats are no change. If there is no lock yet the first record has epoch
// 0. It makes some five requests a minute at a validity of 15 s, more in the
// moments of a change.
//
// The sequence ends when ctx does. Failures of the store that may pass are
// waited for; others are yielded and end it.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Record, error] { return e.watch(ctx) }

func (e *Elector) watch(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		cfg := e.config
		cfg.Observe = true
		c := &campaign{Elector: e, machine: lease.NewCandidate(cfg), began: e.clock.Now()}
		a := c.machine.Step(c.began, lease.Event{Kind: lease.Start})
		for {
			if r := a.Report; r != nil {
				rec := Record{}
				if r.Lock.Epoch != 0 {
					rec = c.last
					rec.Lapsed = r.Lapsed
				}
				if !yield(rec, nil) {
					return
				}
			}
			ev, err := lease.Event{}, public(a.Err)
			if a.Op != lease.Fail {
				ev, err = c.do(ctx, a)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				yield(Record{}, err)
				return
			}
			a = c.machine.Step(e.clock.Now(), ev)
		}
	}
}
