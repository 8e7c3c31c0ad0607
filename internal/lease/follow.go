package lease

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
)

func (c *Candidate) onListed(now clock.Instant, ev Event, report **Report) Action {
	if ev.Epoch < c.taken {
		// A create of this epoch was refused, so it exists, and the highest never falls.
		return Action{Op: Fail, Err: fmt.Errorf("%w: epoch %d", ErrVanished, c.taken)}
	}
	if ev.Epoch == 0 {
		if c.lock.Epoch > 1 {
			// The listing began at the remembered lock, which somebody has deleted by hand.
			// List from the beginning.
			c.forget()
			return c.list()
		}
		c.forget()
		c.confirmed = true
		c.report(false, report)
		if c.cfg.Observe {
			return c.idle(now)
		}
		c.looked = true // a lock of this name that is found now belongs to a live process
		return c.create()
	}
	if ev.Epoch == c.lock.Epoch {
		// The remembered lock was read before this listing began, and is the newest now.
		// The newest is never pruned, so what was read was not in a hole.
		c.confirmed = true
		if ev.Version == c.lock.Version {
			return c.onSame(now, ev.Sent, report)
		}
		return c.get()
	}
	c.forget()
	c.listed = ev.Version
	return Action{Op: Get, Epoch: ev.Epoch}
}

func (c *Candidate) onGot(now clock.Instant, ev Event, report **Report) Action {
	old := c.lock
	if ev.Lock.same(old) {
		return c.onSame(now, ev.Sent, report)
	}
	followed := old.Epoch == ev.Lock.Epoch
	c.raced = followed && old.State != Expired && ev.Lock.State == Expired && now >= c.Lapse()
	c.lock, c.first, c.seen = ev.Lock, now, now
	// tuning:jitter. Each candidate waits a random time of its own before it deposes a lapsed lock.
	//
	//mutant:replace c.cfg.Random() => 0
	c.jitter = time.Duration(c.cfg.Random() * float64(c.lock.Validity) / 20)
	if !followed || !c.pace.changed(now) || old.Renew != c.lock.Renew {
		c.pace.begin(now, c.lock, ev.Age, c.cfg.Random())
	}
	c.missed = false
	if c.lock.State == Draining && (!followed || old.State != Draining) {
		c.draining = now
	}
	switch {
	case !followed:
		// guard:listed-version. A lock that a GET has returned counts as the newest only if the listing
		// before it showed the same object version.
		//
		//mutant:replace c.lock.Version == c.listed => true
		c.confirmed = c.lock.Version == c.listed
	case old.Holder != c.lock.Holder, c.cfg.Observe && old.State != c.lock.State:
		// guard:newest-listed. If a known lock shows another holder, this is reported only after a
		// listing shows the lock as the newest.
		//
		//mutant:replace c.confirmed = false => c.confirmed = true
		c.confirmed = false
	}
	if !c.confirmed {
		return c.list()
	}
	return c.decide(now, ev.Age, false, report)
}

// onSame goes on after a response that showed the remembered version again.
func (c *Candidate) onSame(now, sent clock.Instant, report **Report) Action {
	c.seen = now
	c.pace.unchanged(sent)
	c.missed = true
	if !c.confirmed {
		return c.list()
	}
	return c.decide(now, nil, true, report)
}

// decide what to do about the remembered lock, which a response has just shown.
func (c *Candidate) decide(now clock.Instant, age *Age, same bool, report **Report) Action {
	if c.lock.State == Expired {
		c.looked = true
		c.report(false, report)
		return c.expired(now, age)
	}
	// guard:lapse. A lock has lapsed when this candidate has seen one object version of the lock for a
	// whole validity.
	//
	//mutant:replace >= c.lock.Validity => >= c.lock.Validity/2
	unchanged := same && now.Sub(c.first) >= c.lock.Validity
	// guard:shortcut. A candidate need not watch a lock for a whole validity if the store's own times
	// show that the lock has lapsed: Date is at least the validity plus 5 s after Last-Modified.
	//
	//mutant:replace c.lock.Validity+shortcutGrace => c.lock.Validity
	old := age != nil && age.Since >= c.lock.Validity+shortcutGrace
	// guard:reclaim-once. A candidate with the option Reclaim deposes a lock of its own name at once,
	// but only if this is the first lock that it has read.
	//
	//mutant:replace !c.looked && c.lock.Holder => c.lock.Holder
	dead := c.cfg.Reclaim && !c.looked && c.lock.Holder == c.cfg.Identity
	c.looked = true
	lapsed := unchanged || old || dead
	dead = dead && !unchanged && !old
	if c.report(lapsed, report); *report != nil {
		(*report).Dead = dead
	}
	switch {
	case lapsed && c.cfg.Observe:
		return c.idle(now)
	case lapsed:
		// guard:depose-first. A candidate swaps a lapsed lock to expired before it creates the next
		// lock.
		//
		//mutant:replace Action{Op: Depose, Epoch: c.lock.Epoch, Known: c.lock.Version, Nonce: c.cfg.Nonce(), Dead: dead} => c.create()
		return Action{Op: Depose, Epoch: c.lock.Epoch, Known: c.lock.Version, Nonce: c.cfg.Nonce(), Dead: dead}
	}
	return Action{Op: Wait, Until: c.nextRead(now)}
}

// Lapse is the earliest moment at which the lock that was read last has lapsed.
func (c *Candidate) Lapse() clock.Instant { return c.first.Add(c.lock.Validity) }

func (c *Candidate) nextRead(now clock.Instant) clock.Instant {
	lapse := c.Lapse()
	if !c.cfg.Observe {
		lapse = lapse.Add(c.jitter)
	}
	var next clock.Instant
	switch {
	case c.lock.State == Draining:
		q := c.quick(c.lock.Validity)
		if now.Sub(c.draining) > c.lock.Validity {
			q = 2 * c.soon(c.lock.Validity) // its work takes long to end
		}
		next = now.Add(q/2 + time.Duration(c.cfg.Random()*float64(q)))
	case c.cfg.Observe:
		next = now.Add(c.lock.Validity * 4 / 5)
	default:
		next = c.pace.next(c.missed)
		if c.missed {
			next = max(next, now.Add(c.pace.fine/4))
		}
		next = max(next, now.Add(c.soon(c.lock.Validity)/4))
		if c.cfg.Poll > 0 {
			// Candidates that read at the same moments would find a free lock no sooner than one.
			d := c.cfg.Poll
			next = min(next, now.Add(d/2+time.Duration(c.cfg.Random()*float64(d)/2)))
		}
	}
	// A read shortly before the lapse shows nothing that the read at the lapse does not.
	if next.Add(c.lock.Validity/64) >= lapse && now < lapse {
		next = lapse
	}
	return next
}

// idle lets an observer wait for the next leader, longer each time.
func (c *Candidate) idle(now clock.Instant) Action {
	d := min(c.cfg.Validity/15<<min(c.quiet, 6), c.cfg.Validity*4/5)
	c.quiet++
	return Action{Op: Wait, Until: now.Add(d)}
}

// report passes on who leads, if that has changed since the last report.
func (c *Candidate) report(lapsed bool, to **Report) {
	r := Report{Lock: c.lock, Lapsed: lapsed}
	o := c.reported
	if c.told && o.Lock.Epoch == r.Lock.Epoch && o.Lock.Holder == r.Lock.Holder &&
		o.Lock.State == r.Lock.State && o.Lapsed == r.Lapsed {
		return
	}
	c.told, c.reported, c.quiet = true, r, 0
	*to = &r
}
