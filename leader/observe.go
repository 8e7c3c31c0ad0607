package leader

import (
	"context"
	"iter"

	"github.com/fencepost/fencepost/internal/lease"
)

// Leader reads once who leads. The error is [ErrNoLeader] if nobody does. Then the
// record is that of the last leader, or has epoch 0 if there never was one. A
// listing has shown the record as the newest, so a stray lock with a lower epoch
// does not count. Other errors are those of [Elector.Campaign].
//
// One read cannot tell a leader that has just crashed from one that lives. The
// record is Lapsed if, by the store's clock, it was not renewed for its validity
// and 5 s more. [Elector.Observe] learns of a crash sooner.
func (e *Elector) Leader(ctx context.Context) (Record, error) {
	for rec, err := range e.Observe(ctx) {
		if err == nil && !rec.Leads() {
			err = ErrNoLeader
		}
		return rec, err
	}
	return Record{}, e.outage.Cause(ctx)
}

// Observe follows the election without taking part. It yields the newest lock at
// once, and again after each change: another epoch, holder or state, or a leader
// that has lapsed, which means that it was not renewed for its validity of the
// observer's elapsed time. Heartbeats are not changes. If there is no lock yet, the
// first record has epoch 0.
//
// It makes about five requests a minute at a validity of 15 s, and more during a
// change. The sequence ends when ctx does. Transient failures of the store are
// retried; another error is yielded and ends the sequence.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		cfg := e.config
		cfg.Observe, cfg.Reclaim = true, false
		c := &campaign{Elector: e, machine: lease.NewCandidate(cfg), began: e.clock.Now()}
		more := true
		_, err := c.run(ctx, func(rec Record) bool {
			more = ctx.Err() == nil && yield(rec, nil)
			return more
		})
		if more && ctx.Err() == nil {
			yield(Record{}, err)
		}
	}
}
