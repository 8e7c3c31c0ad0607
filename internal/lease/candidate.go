package lease

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Candidate follows the newest lock, and takes over when that is free or lapsed.
// What it does while it follows is in follow.go, and the takeover in win.go.
type Candidate struct {
	cfg  Config
	last Action // the action whose event comes next

	// What is remembered of the newest lock.
	lock      Lock          // Epoch 0: nothing
	first     clock.Instant // the response that first showed this version
	seen      clock.Instant // the last response that showed it
	jitter    time.Duration
	confirmed bool // a listing showed this lock as the newest
	pace      cadence
	missed    bool          // the last read did not show a heartbeat
	draining  clock.Instant // when this epoch was first seen draining
	raced     bool          // the lock had lapsed, and was then found expired
	looked    bool          // a lock was judged before
	listed    store.Version // of the newest lock, in the listing before the Get
	unread    int           // unreadable locks in a row
	failures  int           // failed reads in a row
	quiet     int           // waits since the last report

	won        Lock // the lock that this candidate has created
	wrote      clock.Instant
	sent       clock.Instant
	confirming bool        // waiting until the store lets it write won again
	checking   bool        // the last step of a win: a listing must show won as the newest
	taken      fence.Epoch // the create of this epoch was refused, so it exists

	reported Report
	told     bool
}

// NewCandidate returns a machine whose first event is Start.
func NewCandidate(cfg Config) *Candidate { return &Candidate{cfg: cfg} }

// Step takes an event and returns the next action.
func (c *Candidate) Step(now clock.Instant, ev Event) Action {
	report := (*Report)(nil)
	a := c.step(now, ev, &report)
	a.Report = report
	c.last = a
	if ev.Kind != Failed && ev.Kind != Woke {
		c.failures = 0
	}
	if ev.Kind == Got || ev.Kind == Same {
		c.unread = 0
	}
	return a
}

func (c *Candidate) step(now clock.Instant, ev Event, report **Report) Action {
	switch ev.Kind {
	case Start:
		return c.list()
	case Woke:
		return c.woke(now)
	case Failed:
		return c.backoff(now)
	case Listed:
		if c.checking {
			return c.checked(now, ev)
		}
		return c.onListed(now, ev, report)
	case Got:
		return c.onGot(now, ev, report)
	case Same:
		return c.onSame(now, ev.Sent, report)
	case Gone:
		return c.list()
	case Unreadable:
		// guard:junk-listed. A candidate that reads an unreadable lock lists the locks again, and gives
		// up only when the newest lock of three listings in a row was unreadable.
		//
		//mutant:replace c.unread > 2 => c.unread > 0
		if c.unread++; c.unread > 2 {
			return Action{Op: Fail, Err: ev.Err}
		}
		c.forget()
		return c.list()
	case Applied:
		return c.applied(now, ev)
	case Refused:
		return c.refused()
	}
	return Action{Op: Fail, Err: fmt.Errorf("lease: unexpected event %d", ev.Kind)}
}

func (c *Candidate) forget() { c.lock, c.confirmed = Lock{}, false }

// list finds the newest lock. The listing may begin at the remembered lock: the
// newest lock is never pruned, so that lock or a higher one shows.
func (c *Candidate) list() Action {
	c.checking = false
	return Action{Op: List, After: max(c.lock.Epoch, 1) - 1}
}

func (c *Candidate) get() Action {
	return Action{Op: Get, Epoch: c.lock.Epoch, Known: c.lock.Version}
}

// woke goes on after a wait.
func (c *Candidate) woke(now clock.Instant) Action {
	switch {
	case c.confirming:
		return c.confirm(now)
	case c.checking:
		return Action{Op: List, After: c.won.Epoch - 1}
	case c.lock.Epoch == 0,
		c.cfg.Observe && c.lock.State == Expired,
		// guard:stale-lock. A candidate that last saw its lock more than a validity ago lists the locks
		// before it reads again.
		//
		//mutant:replace now.Sub(c.seen) > c.lock.Validity, =>
		now.Sub(c.seen) > c.lock.Validity,
		c.lock.State == Expired && c.lock.Wait == 0:
		// An expired lock does not change any more, but a higher one may exist.
		return c.list()
	}
	return c.get()
}

// backoff retries a failed read: soon at first, later once per heartbeat. Jitter
// spreads the candidates.
func (c *Candidate) backoff(now clock.Instant) Action {
	d := c.soon(c.cfg.Validity) << min(c.failures, 10)
	c.failures++
	d = min(d, c.cfg.Renew)
	return Action{Op: Wait, Until: now.Add(d/2 + time.Duration(c.cfg.Random()*float64(d)/2))}
}

// Quick is how often candidates read a lock that its leader is about to release, and how
// often that leader looks for them. Nobody leads until the next read, so it is often. It
// lasts seconds, so it costs little.
func Quick(validity time.Duration) time.Duration {
	return min(max(validity/150, time.Millisecond), 100*time.Millisecond)
}

// Often is how often a candidate reads the lock of a leader whose work may end at any moment.
// On S3 these reads cost about what the leader's heartbeats cost: a GET is a twelfth of a PUT.
func Often(validity time.Duration) time.Duration {
	return max(validity/30, 100*time.Millisecond)
}

// soon is the shortest time to the next read at other moments.
func (c *Candidate) soon(validity time.Duration) time.Duration {
	d := min(max(validity/60, time.Millisecond), 250*time.Millisecond)
	if c.cfg.Observe {
		d *= 4
	}
	return d
}

// quick is how often to read a lock that is about to be free.
func (c *Candidate) quick(validity time.Duration) time.Duration {
	if c.cfg.Observe {
		return c.soon(validity)
	}
	return Quick(validity)
}
