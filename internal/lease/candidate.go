package lease

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Op is what a candidate wants done.
type Op uint8

// The operations. Each is answered by one event.
const (
	// List asks for the highest number: Listed or Failed.
	List Op = iota + 1
	// Get asks for a lock unless its version is Known: Got, Same, Gone, Junk or
	// Failed.
	Get
	// Depose swaps Epoch from version Known to expired: Applied or Refused.
	Depose
	// Create makes Epoch if absent: Applied or Refused. If Next is not 0 it is to be
	// expired, and names that number as its follower.
	Create
	// Confirm swaps the own lock from version Known: Applied or Refused.
	Confirm
	// Wait asks for Woke at Until.
	Wait
	// Lead ends the machine: Epoch is won.
	Lead
	// Fail ends the machine with Err.
	Fail
)

// Action is the next thing to do.
type Action struct {
	Op    Op
	Epoch uint64
	// After lets a listing leave out this number and lower ones.
	After uint64
	Next  uint64 // Create
	Known store.Version
	Nonce string
	Until clock.Instant
	Sent  clock.Instant // Lead: the send that the first deadline counts from
	Err   error
	// Report is news for those who watch, together with any Op.
	Report *Report
}

// Report says who leads, from a listing that showed the lock as the newest.
type Report struct {
	// Lock is the newest; its Epoch is 0 if there is none at all.
	Lock Lock
	// Lapsed tells that it is held by somebody who has stopped renewing.
	Lapsed bool
}

// Kind of an event.
type Kind uint8

// The events of a candidate.
const (
	Start Kind = iota + 1
	Listed
	Got
	Same
	Gone
	Junk
	Applied
	Refused
	Failed
	Woke
)

// Age is how old a version is by the store's own clock: Date − Last-Modified
// of one response, give or take Slack.
type Age struct{ Since, Slack time.Duration }

// Event is an outcome. The instant given to Step with it is after the response.
type Event struct {
	Kind Kind
	// Sent is the instant before the request's first attempt was sent.
	Sent clock.Instant
	// Epoch and Version are the highest lock of a listing; 0 if there is none.
	// Version is also the one that an applied write has made.
	Epoch   uint64
	Version store.Version
	Lock    Lock // Got
	Age     *Age // Got; nil if the store does not say
	// Clean tells that an applied write was sent once and answered: no copy of it
	// can land later.
	Clean bool
	Err   error // Junk
}

var (
	// ErrNumbers: the highest number is taken.
	ErrNumbers = errors.New("lease: no epoch is left")
	// ErrVanished: a listing does not show a lock that was written before it.
	ErrVanished = errors.New("lease: a listing does not show the lock written before it")
)

// Candidate watches the newest lock and takes over when it is free or lapsed.
type Candidate struct {
	cfg  Config
	last Action // asked for and not answered yet

	// What is remembered of the newest lock.
	lock      Lock // Epoch 0: nothing
	first     clock.Instant
	seen      clock.Instant
	jitter    time.Duration
	confirmed bool // a listing showed it as the newest
	pace      cadence
	missed    bool
	draining  clock.Instant // first sight of draining, for this epoch
	listed    store.Version // of the newest, in the listing before the Get
	junk      int
	failures  int
	quiet     int // observations without news

	won        Lock // the lock that this candidate has created
	wrote      clock.Instant
	sent       clock.Instant
	confirming bool   // waits for its turn to write won again
	checking   bool   // the listing is the last step of a win
	taken      uint64 // a create of this number was refused

	reported Report
	told     bool
}

// NewCandidate returns a machine that waits for Start.
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
		c.junk = 0
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
	case Junk:
		// guard:junk-listed. In a hole left by pruning anything may lie. Only what a listing has just
		// shown as the newest, twice, is the election's own trouble.
		//
		//mutant:replace c.junk > 2 => c.junk > 0
		if c.junk++; c.junk > 2 {
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

// list asks for the newest. Once a lock is remembered the listing may begin at
// it: the newest is never pruned, so either it or a higher one shows.
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
		// guard:stale-lock. What was last seen more than a validity ago may have been
		// deposed, succeeded and pruned since: only a listing tells the newest.
		//
		//mutant:replace now.Sub(c.seen) > c.lock.Validity, =>
		now.Sub(c.seen) > c.lock.Validity,
		c.lock.State == Expired && c.lock.Wait == 0:
		// An expired lock does not change any more, but a higher one may be there.
		return c.list()
	}
	return c.get()
}

// backoff tries a read again later: quickly at first, at the leader's own
// cadence in the end, spread over the candidates.
func (c *Candidate) backoff(now clock.Instant) Action {
	d := c.quick(c.cfg.Validity) << min(c.failures, 10)
	c.failures++
	d = min(d, c.cfg.Renew)
	return Action{Op: Wait, Until: now.Add(d/2 + time.Duration(c.cfg.Random()*float64(d)/2))}
}

// quick is the interval of looks at a lock that is about to be free.
func (c *Candidate) quick(validity time.Duration) time.Duration {
	q := min(max(validity/60, time.Millisecond), 250*time.Millisecond)
	if c.cfg.Observe {
		q *= 4
	}
	return q
}

func (c *Candidate) onListed(now clock.Instant, ev Event, report **Report) Action {
	if ev.Epoch < c.taken {
		// The highest number never falls, and a create of this one was refused.
		return Action{Op: Fail, Err: fmt.Errorf("%w: epoch %d", ErrVanished, c.taken)}
	}
	if ev.Epoch == 0 {
		if c.lock.Epoch > 1 {
			// Only what comes after the remembered one was listed, and somebody has
			// deleted it by hand: list everything.
			c.forget()
			return c.list()
		}
		c.forget()
		c.confirmed = true
		c.report(false, report)
		if c.cfg.Observe {
			return c.idle(now)
		}
		return c.create()
	}
	if ev.Epoch == c.lock.Epoch {
		// The lock was read before this listing began, and it is the newest now; the
		// newest is never pruned, so what was read was no junk in a hole.
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
	watched := old.Epoch == ev.Lock.Epoch
	c.lock, c.first, c.seen = ev.Lock, now, now
	// guard:jitter. Not all followers at once.
	//
	//mutant:replace c.cfg.Random() => 0
	c.jitter = time.Duration(c.cfg.Random() * float64(c.lock.Validity) / 20)
	if !watched || !c.pace.changed(now) || old.Renew != c.lock.Renew {
		c.pace.begin(now, c.lock, ev.Age, c.cfg.Random())
	}
	c.missed = false
	if c.lock.State == Draining && (!watched || old.State != Draining) {
		c.draining = now
	}
	switch {
	case !watched:
		// guard:listed-version. What the listing showed may have been pruned since, and
		// another put in its place.
		//
		//mutant:replace c.lock.Version == c.listed => true
		c.confirmed = c.lock.Version == c.listed
	case old.Holder != c.lock.Holder, c.cfg.Observe && old.State != c.lock.State:
		// guard:newest-listed. News: not before a listing shows this lock as the newest.
		//
		//mutant:replace c.confirmed = false => c.confirmed = true
		c.confirmed = false
	}
	if !c.confirmed {
		return c.list()
	}
	return c.judge(now, ev.Age, false, report)
}

func (c *Candidate) onSame(now, sent clock.Instant, report **Report) Action {
	c.seen = now
	c.pace.unchanged(sent)
	c.missed = true
	if !c.confirmed {
		return c.list()
	}
	return c.judge(now, nil, true, report)
}

// judge decides what to do about the remembered lock, which has just been seen.
func (c *Candidate) judge(now clock.Instant, age *Age, same bool, report **Report) Action {
	if c.lock.State == Expired {
		c.report(false, report)
		return c.expired(now, age)
	}
	// guard:lapse. Unchanged for a validity of local time, counted from after the
	// response that first showed it.
	//
	//mutant:replace >= c.lock.Validity => >= c.lock.Validity/2
	unchanged := same && now.Sub(c.first) >= c.lock.Validity
	// guard:shortcut. At first sight, so old by the store's own clock: both times come
	// from one response, no clock is compared with another.
	//
	//mutant:replace c.lock.Validity+shortcutGrace => c.lock.Validity
	old := age != nil && age.Since >= c.lock.Validity+shortcutGrace
	lapsed := unchanged || old
	c.report(lapsed, report)
	switch {
	case lapsed && c.cfg.Observe:
		return c.idle(now)
	case lapsed:
		// guard:depose-first. Its holder may renew at the moment in which the next is
		// created.
		//
		//mutant:replace Action{Op: Depose, Epoch: c.lock.Epoch, Known: c.lock.Version, Nonce: c.cfg.Nonce()} => c.create()
		return Action{Op: Depose, Epoch: c.lock.Epoch, Known: c.lock.Version, Nonce: c.cfg.Nonce()}
	}
	return Action{Op: Wait, Until: c.nextLook(now)}
}

func (c *Candidate) nextLook(now clock.Instant) clock.Instant {
	lapse := c.first.Add(c.lock.Validity)
	if !c.cfg.Observe {
		lapse = lapse.Add(c.jitter)
	}
	var next clock.Instant
	switch {
	case c.lock.State == Draining && now.Sub(c.draining) <= c.lock.Validity:
		q := c.quick(c.lock.Validity)
		next = now.Add(q/2 + time.Duration(c.cfg.Random()*float64(q)))
	case c.cfg.Observe:
		next = now.Add(c.lock.Validity * 4 / 5)
	default:
		next = c.pace.next(c.missed)
		if c.missed {
			next = max(next, now.Add(c.pace.fine/4))
		}
		next = max(next, now.Add(c.quick(c.lock.Validity)/4))
	}
	// A look shortly before the lapse would tell nothing that the one after does not.
	if next.Add(c.lock.Validity/64) >= lapse && now < lapse {
		next = lapse
	}
	return next
}

// idle waits for a leader to come, ever more slowly.
func (c *Candidate) idle(now clock.Instant) Action {
	d := min(c.cfg.Validity/15<<min(c.quiet, 6), c.cfg.Validity*4/5)
	c.quiet++
	return Action{Op: Wait, Until: now.Add(d)}
}

// expired takes a free lock's succession, at once or when others have had
// their turn.
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
	switch {
	case c.lock.Successor != "" && c.lock.Successor != c.cfg.Identity:
		// Somebody is named, or is about to follow whom he has deposed.
		turn = turn.Add(v/10 + c.jitter)
	case c.lock.Successor == "" && c.lock.Holder == c.cfg.Identity:
		// Who has just resigned lets others go first.
		turn = turn.Add(v / 30)
	}
	switch {
	case now >= turn:
		return c.create()
	case wait > 0:
		// Its holder may end the wait.
		return Action{Op: Wait, Until: min(turn, now.Add(2*c.quick(v)))}
	}
	return Action{Op: Wait, Until: turn}
}

func (c *Candidate) create() Action {
	if c.lock.Epoch == math.MaxUint64 {
		return Action{Op: Fail, Err: ErrNumbers}
	}
	c.won = Lock{Epoch: c.lock.follower(), Nonce: c.cfg.Nonce()}
	if c.won.Epoch < c.cfg.MinEpoch {
		// guard:milestone. One who does not know of MinEpoch, or of another, creates the
		// next number. If this one left it out both would win: nobody would depose the
		// other's lock, which lies below the newest.
		//
		//mutant:replace c.won.Next = c.cfg.MinEpoch => c.won.Epoch = c.cfg.MinEpoch
		c.won.Next = c.cfg.MinEpoch
	}
	return Action{Op: Create, Epoch: c.won.Epoch, Next: c.won.Next, Nonce: c.won.Nonce}
}

// confirm swaps the created lock once with a fresh nonce. A late duplicate of
// the create may land after the lock was deposed and pruned; with content
// versions it would bring back the very version that the create made, and this
// leader, waking up, would renew from it.
func (c *Candidate) confirm(now clock.Instant) Action {
	// guard:confirm-rewrite. A store that limits rewrites of a key turns a swap away
	// that comes too early, and one that was tried again is not clean: the next would
	// be as early, and so on for ever.
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
			return c.list() // a milestone is nobody's lock; all see it as the newest
		}
		c.won.Version, c.wrote = ev.Version, now
		// guard:win-swap. A late copy of the create, landing after the lock was pruned, would
		// bring back the version that the first heartbeat expects. The swap makes one that
		// no create can bring back.
		//
		//mutant:replace return c.confirm(now) => c.sent, c.checking = ev.Sent, true; return Action{Op: List, After: c.won.Epoch - 1}
		return c.confirm(now)
	case Confirm:
		c.won.Version, c.wrote, c.sent = ev.Version, now, ev.Sent
		if !ev.Clean {
			// guard:clean-swap. A copy of this swap may be on its way as well, and could land on top of the
			// create's. The chain of copies must have a gap.
			return c.confirm(now)
		}
		c.checking = true
		return Action{Op: List, After: c.won.Epoch - 1}
	}
	return Action{Op: Fail, Err: fmt.Errorf("lease: unexpected event %d", ev.Kind)}
}

// checked is the last step: is there any higher number? Not "is the next one
// there", since that may have been pruned too.
func (c *Candidate) checked(now clock.Instant, ev Event) Action {
	c.checking = false
	switch {
	case ev.Epoch > c.won.Epoch:
		// guard:higher-lock. The win is a hole left by pruning. It is nobody's lock: expire nothing.
		c.forget()
		c.listed = ev.Version
		return Action{Op: Get, Epoch: ev.Epoch}
	case ev.Epoch < c.won.Epoch:
		return Action{Op: Fail, Err: fmt.Errorf("%w: epoch %d", ErrVanished, c.won.Epoch)}
	case now >= c.cfg.deadline(c.sent):
		// guard:win-deadline. Won too late to lead. The lock is still the own one, if it can be swapped.
		return c.confirm(now)
	}
	return Action{Op: Lead, Epoch: c.won.Epoch, Known: c.won.Version, Nonce: c.won.Nonce, Sent: c.sent}
}

func (c *Candidate) refused() Action {
	if c.last.Op == Depose {
		// The leader renewed, or another candidate was quicker.
		return c.get()
	}
	if c.last.Op == Create {
		c.taken = c.last.Epoch
	}
	return c.list()
}

// report tells of a change, once.
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
