package lease

import (
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
)

// expired goes on with a lock that is expired: it creates the next one, at once or
// after others have had their turn.
func (c *Candidate) expired(now clock.Instant, age *Age) Action {
	if c.cfg.Observe {
		return c.idle(now)
	}
	v := c.lock.Validity
	wait := c.lock.Wait
	if age != nil && wait > 0 && age.Since >= wait+shortcutGrace {
		wait = 0
	}
	turn := c.first.Add(wait)
	if c.lock.Holder == c.cfg.Identity && c.lock.Next == 0 {
		// A candidate that has just resigned lets others go first. Nobody has held a milestone.
		turn = turn.Add(v / 30)
	}
	if c.raced {
		// Whoever has deposed the holder of a lapsed lock goes on at once. If all others that wanted
		// to depose it created the next lock too, all but one of these creates would be refused.
		turn = turn.Add(c.jitter)
	}
	switch {
	case now >= turn:
		return c.create()
	case wait > 0:
		// The deposed holder may end the wait early.
		return Action{Op: Wait, Until: min(turn, now.Add(c.quick(v)))}
	}
	return Action{Op: Wait, Until: turn}
}

func (c *Candidate) create() Action {
	if c.lock.next() > fence.MaxEpoch {
		return Action{Op: Fail, Err: fmt.Errorf("%w: %d; no election comes that far by counting, so something else has written that lock; delete it, unless somebody led in that epoch", ErrNumbers, c.lock.Epoch)}
	}
	c.won = Lock{Epoch: c.lock.next(), Nonce: c.cfg.Nonce()}
	if c.won.Epoch < c.cfg.MinEpoch {
		// guard:milestone. A candidate whose MinEpoch is above the next epoch first creates the next
		// lock as a milestone: it is expired from the beginning, and names MinEpoch as the epoch after
		// it.
		//
		//mutant:replace c.won.Next = c.cfg.MinEpoch => c.won.Epoch = c.cfg.MinEpoch
		c.won.Next = c.cfg.MinEpoch
	}
	return Action{Op: Create, Epoch: c.won.Epoch, Next: c.won.Next, Nonce: c.won.Nonce}
}

// confirm swaps the created lock once, with a fresh nonce: see the guard win-swap.
func (c *Candidate) confirm(now clock.Instant) Action {
	// guard:confirm-rewrite. A candidate waits with the swap that confirms its new lock until the store
	// allows another write of the key (Traits.MinRewrite).
	if turn := c.wrote.Add(c.cfg.MinRewrite); now < turn {
		c.confirming = true
		return Action{Op: Wait, Until: turn}
	}
	c.confirming = false
	c.won.Nonce = c.cfg.Nonce()
	return Action{Op: Confirm, Epoch: c.won.Epoch, Known: c.won.Version, Nonce: c.won.Nonce}
}

func (c *Candidate) applied(now clock.Instant, ev Event) Action {
	switch c.last.Op {
	case Depose:
		return c.create()
	case Create:
		if c.won.Next > 0 {
			return c.list() // a milestone has no holder; every candidate sees it as the newest
		}
		c.won.Version, c.wrote = ev.Version, now
		// guard:win-swap. A candidate that has created a lock swaps it once before it leads.
		//
		//mutant:replace return c.confirm(now) => c.sent, c.checking = ev.Sent, true; return Action{Op: List, After: c.won.Epoch - 1}
		return c.confirm(now)
	case Confirm:
		c.won.Version, c.wrote, c.sent = ev.Version, now, ev.Sent
		if !ev.Clean {
			// guard:clean-swap. A candidate swaps the lock that it has created until one swap was sent
			// once and answered.
			return c.confirm(now)
		}
		c.checking = true
		return Action{Op: List, After: c.won.Epoch - 1}
	}
	return Action{Op: Fail, Err: fmt.Errorf("lease: unexpected event %d", ev.Kind)}
}

// checked is the last step of a win: does a listing show a higher epoch? Reading
// epoch+1 would not do, since that one may be pruned already.
func (c *Candidate) checked(now clock.Instant, ev Event) Action {
	c.checking = false
	switch {
	case ev.Epoch > c.won.Epoch:
		// guard:higher-lock. A candidate does not lead if a listing shows a higher lock than the one
		// that it has created.
		c.forget()
		c.listed = ev.Version
		return Action{Op: Get, Epoch: ev.Epoch}
	case ev.Epoch < c.won.Epoch:
		return Action{Op: Fail, Err: fmt.Errorf("%w: epoch %d", ErrVanished, c.won.Epoch)}
	case now >= c.cfg.deadline(c.sent):
		// guard:win-deadline. If the deadline of a new leader has passed before it begins, the
		// candidate swaps the lock again.
		return c.confirm(now)
	}
	return Action{Op: Lead, Epoch: c.won.Epoch, Known: c.won.Version, Nonce: c.won.Nonce, Sent: c.sent}
}

func (c *Candidate) refused() Action {
	if c.last.Op == Depose {
		// The leader has renewed, or another candidate was first.
		return c.get()
	}
	if c.last.Op == Create {
		c.taken = c.last.Epoch
	}
	return c.list()
}
