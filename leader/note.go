package leader

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// sighting is the note that a candidate leaves when it has seen a lock that another
// process holds. All candidates overwrite the same object. A leader that leaves looks at
// it: does anybody follow this epoch, and has a candidate seen that the lock is draining?
// Nothing but time depends on it. If the note is lost, old or wrong, the leader leaves too
// early, and the next one finds out at its next read; or it leaves after Options.Drain.
type sighting struct {
	Format    int         `json:"format"`
	Epoch     fence.Epoch `json:"epoch"`
	State     State       `json:"state"`
	Candidate string      `json:"candidate"`
}

// sight notes that this candidate waits for a lock, unless the note already says so. It
// does that once for each state of each lock. If the store fails, it tries again: at the next
// wait while the lock is draining, and a heartbeat later while it is held.
func (c *campaign) sight(ctx context.Context, until clock.Instant) {
	seen := sighting{Format: document.Format, Epoch: c.last.Epoch, State: c.last.State, Candidate: c.opts.Identity}
	switch {
	case !c.follows, c.takeover != nil, seen == c.noted, seen.Epoch == 0, seen.State == Expired,
		seen.State == Held && seen == c.failed && c.clock.Now() < c.again:
		return
	case seen.State == Held:
		// Many candidates may have seen the lock at the same moment. The first one leaves the
		// note, and the others find it.
		if clock.Sleep(ctx, c.clock, time.Duration(c.random()*float64(until.Sub(c.clock.Now())/8))) != nil {
			return
		}
	}
	// Where requests are slow, the note takes longer than the pause to the next read. That read may
	// wait, since it means nothing before the holder has seen the note. But a slow note must not delay
	// the read of the lock at which it may have lapsed.
	now := c.clock.Now()
	left := max(until.Sub(now), min(c.last.Validity/10, c.machine.Lapse().Sub(now)), 0)
	ctx, cancel := clock.WithTimeout(ctx, c.clock, min(c.timeout, left), errNoAnswer)
	defer cancel()
	old, version, err := c.sighted(ctx)
	if err == nil && !old.covers(seen) {
		_, err = c.st.Put(ctx, layout.CandidateKey(c.prefix), seen.encode(), &store.PutOptions{If: ifVersion(version)})
	}
	if err == nil || store.Permanent(err) {
		c.noted = seen
		return
	}
	// A candidate may read the lock many times between two heartbeats. The note must not make each
	// of these reads late, nor cost two requests each time.
	c.failed, c.again = seen, c.clock.Now().Add(c.last.Renew)
}

// covers reports whether the note s makes the note o unnecessary.
func (s sighting) covers(o sighting) bool {
	return s.Epoch == o.Epoch && (o.State == Held || s.State == Draining)
}

func (s sighting) encode() []byte {
	body, _ := document.Encode(layout.CandidateKey(""), s) // it has no values that JSON cannot express
	return body
}

// sighted reads the note. It is empty if there is none, or nobody can read it.
func (f *files) sighted(ctx context.Context) (s sighting, v store.Version, err error) {
	body, info, err := store.Read(ctx, f.st, layout.CandidateKey(f.prefix), &store.ReadOptions{Limit: maxRecord, Settle: f.settle(1)})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return sighting{}, "", nil
	case err != nil:
		return sighting{}, "", err
	case document.Decode(layout.CandidateKey(""), body, &s) != nil:
		s = sighting{}
	}
	return s, info.Version, nil
}

func ifVersion(v store.Version) store.Condition {
	if v == "" {
		return store.IfAbsent()
	}
	return store.IfMatch(v)
}

// makeWay resigns. If a candidate has seen the lock, the lock announces the end, and the work
// goes on until a candidate has seen that.
func (t *Term) makeWay() {
	select {
	case <-t.leaves:
	case <-t.ctx.Done():
		return
	}
	// The time counts from the call of Resign, also while the note cannot be read.
	drain := t.life.drain // set before leaves was closed
	ctx, cancel := clock.WithTimeout(t.ctx, t.clock, drain, errNoAnswer)
	defer cancel()
	until := t.clock.Now().Add(drain)
	for first := true; ; first = false {
		s, _, err := t.e.sighted(ctx)
		followed, near := err != nil || s.Epoch == t.epoch, err == nil && s.State == Draining
		if followed && near {
			t.mu.Lock()
			t.close = s.Candidate
			t.mu.Unlock()
		}
		left := max(until.Sub(t.clock.Now()), 0)
		if !followed || near {
			left = 0
		}
		if first || left == 0 {
			t.step(lease.Input{Signal: lease.Resign, Drain: left})
		}
		if clock.Sleep(t.ctx, t.clock, lease.Quick(t.e.opts.Validity)) != nil {
			return
		}
	}
}
