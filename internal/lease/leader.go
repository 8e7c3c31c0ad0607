package lease

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Cause is why a term ended; 0 while it has not.
type Cause uint8

// The causes.
const (
	ByExpiry Cause = iota + 1
	ByDeposing
	ByStall
	ByResigning
	ByHandover
)

var causes = [...]string{"", "expired", "deposed", "stalled", "resigned", "handed over"}

func (c Cause) String() string { return causes[c] }

// Lost tells whether the term ended against its leader's will.
func (c Cause) Lost() bool { return c == ByExpiry || c == ByDeposing || c == ByStall }

// Write is a swap of the leader's own lock.
type Write struct {
	// N numbers the term's writes from 1.
	N     uint64
	State State
	// Known is the version to swap. Nonce tells this write from all others; the
	// same Write given out again has the same nonce and must have the same bytes.
	Known     store.Version
	Nonce     string
	Successor string
	// First is an instant before its first attempt is sent, Due when that should
	// have been.
	First, Due clock.Instant
}

// Ready is what follows from an event.
type Ready struct {
	// Cancel, if not 0, ends the term's context, before anything else. It comes
	// once.
	Cancel Cause
	// Write, if not nil, is to be carried out and answered by Wrote, Denied or
	// Broken. There is at most one at a time.
	Write *Write
	// Wake asks for a Tick at that instant, unless something comes before.
	Wake clock.Instant
	// Done tells that nothing more is to be done: the lock is released, or it is
	// lost and only Resign can follow.
	Done bool
}

// Signal is an event for a leader.
type Signal uint8

// The signals.
const (
	// Tick: time has passed.
	Tick Signal = iota + 1
	// Wrote: the write was applied; Version is its own.
	Wrote
	// Denied: the write was refused; Found is what is there instead.
	Denied
	// Broken: nobody knows, or it was turned away; to be tried again.
	Broken
	// Resign: leave. The work may go on for Drain, then its context is cancelled.
	Resign
	// WorkDone: the work has ended.
	WorkDone
	// Renew: write as soon as possible.
	Renew
	// GaveUp: the release could not be written, and nobody will try any more.
	GaveUp
)

// Input is a signal with what it tells.
type Input struct {
	Signal    Signal
	Version   store.Version
	Found     Lock // Epoch 0: the lock is gone, or unreadable
	Drain     time.Duration
	Successor string
	// Keep leaves the lock to lapse instead of releasing it.
	Keep bool
	// Progress is the instant of the last sign of progress; it comes with every
	// input.
	Progress clock.Instant
}

// Leader is the machine of a term.
type Leader struct {
	cfg   Config
	epoch uint64

	version  store.Version // as last known
	deadline clock.Instant
	due      clock.Instant // the next heartbeat, on a fixed grid that followers know
	last     clock.Instant // the last write's beginning, then its answer
	writes   uint64

	write   *Write // under way or broken
	retry   clock.Instant
	broken  int
	running bool   // write is under way
	maybe   string // the nonce of a renewal that was given up and may land

	cause     Cause
	resigning bool
	announced bool // draining stands in the lock
	drain     clock.Instant
	successor string
	keep      bool
	workDone  bool
	renew     bool
	over      bool // the lock is released, or is somebody else's
	released  bool
	progress  clock.Instant
}

// NewLeader takes a win over from Candidate's Lead, at now.
func NewLeader(cfg Config, win Action, now clock.Instant) *Leader {
	return &Leader{
		cfg: cfg, epoch: win.Epoch, version: win.Known, last: now, progress: now,
		deadline: cfg.deadline(win.Sent), due: win.Sent.Add(cfg.Renew),
	}
}

// Deadline is when the term ends unless it is renewed.
func (l *Leader) Deadline() clock.Instant { return l.deadline }

// Cause is why the term's context was cancelled, 0 if it was not.
func (l *Leader) Cause() Cause { return l.cause }

// Released tells whether the lock was swapped to expired by this leader.
func (l *Leader) Released() bool { return l.released }

// Draining tells whether the leader is on its way out.
func (l *Leader) Draining() bool { return l.resigning }

// Step takes an input and returns what follows.
func (l *Leader) Step(now clock.Instant, in Input) Ready {
	var r Ready
	before := l.cause
	l.progress = max(l.progress, in.Progress)
	// First of all the clock: whatever came, it came too late after the deadline,
	// and a term that has looked expired once never comes back.
	l.expire(now)
	switch in.Signal {
	case Tick:
	case Wrote:
		l.wrote(now, in)
	case Denied:
		l.denied(in)
	case Broken:
		l.running = false
		l.retry = now.Add(max(l.cfg.Renew/16<<min(l.broken, 3), time.Millisecond))
		l.broken++
	case Resign:
		l.resign(now, in)
	case WorkDone:
		l.workDone = true
	case Renew:
		l.renew = true
	case GaveUp:
		l.over = true
	}
	if l.resigning && l.cause == 0 && (now >= l.drain || l.workDone) {
		l.cause = ByResigning
		if l.successor != "" {
			l.cause = ByHandover
		}
	}
	if l.keep && l.workDone && l.cause != 0 && !l.running {
		l.over = true
	}
	if l.cause != before {
		r.Cancel = l.cause
	}
	r.Write = l.next(now)
	r.Done = l.done()
	r.Wake = l.wake(now)
	return r
}

// expire ends a term that is past its deadline or shows no progress.
func (l *Leader) expire(now clock.Instant) {
	switch {
	case l.cause.Lost() || l.over:
	case now >= l.deadline:
		// guard:own-deadline. Also while the work of one who resigns winds down: it is no longer alone.
		l.lose(ByExpiry)
	case l.cause == 0 && l.cfg.StallAfter > 0 && now.Sub(l.progress) >= l.cfg.StallAfter:
		l.lose(ByStall)
	}
}

func (l *Leader) lose(c Cause) {
	if l.cause == 0 {
		l.cause = c
	}
	l.lapsed()
}

// lapsed gives up the renewal under way. It may have landed all the same.
func (l *Leader) lapsed() {
	if l.write != nil && l.write.State != Expired {
		l.maybe = l.write.Nonce
	}
}

func (l *Leader) alive(now clock.Instant) bool {
	return !l.over && !l.cause.Lost() && now < l.deadline
}

func (l *Leader) wrote(now clock.Instant, in Input) {
	w := l.write
	l.write, l.running, l.broken, l.maybe = nil, false, 0, ""
	if w == nil {
		return
	}
	l.version, l.last = in.Version, now
	switch {
	case w.State == Expired:
		l.over, l.released = true, true
		return
	case w.State == Draining:
		l.announced = true
	}
	if l.alive(now) {
		l.deadline = max(l.deadline, l.cfg.deadline(w.First))
	}
	for l.due <= now {
		l.due = l.due.Add(l.cfg.Renew)
	}
}

func (l *Leader) denied(in Input) {
	w := l.write
	l.write, l.running = nil, false
	switch {
	case w == nil:
	case in.Found.Epoch != 0 && in.Found.Nonce == l.maybe && in.Found.State != Expired:
		// A write of ours that was given up has landed after all. It did not extend
		// the term, but it is the version to release from.
		l.version, l.maybe = in.Found.Version, ""
	case w.State == Expired:
		l.over = true // deposed meanwhile: as expired as it can be
	case in.Found.State == Expired && in.Found.Wait > 0:
		// Told to step down. Successors wait until this leader says that its work has
		// ended, or cannot believe in its term any more.
		l.version = in.Found.Version
		l.lose(ByDeposing)
	default:
		l.over = true
		l.lose(ByDeposing)
	}
}

func (l *Leader) resign(now clock.Instant, in Input) {
	if l.resigning {
		l.drain = min(l.drain, now.Add(in.Drain))
		l.keep = l.keep && in.Keep
		return
	}
	l.resigning, l.successor, l.keep, l.drain = true, in.Successor, in.Keep, now.Add(in.Drain)
}

// next chooses the write to begin.
func (l *Leader) next(now clock.Instant) *Write {
	if l.running || l.over {
		return nil
	}
	// guard:release-last. The work has ended, and only now somebody else may begin.
	//
	//mutant:replace l.workDone && =>
	if l.resigning && l.workDone && l.cause != 0 {
		// A broken renewal is given up: if it landed, the refusal will show it.
		if l.write == nil || l.write.State != Expired {
			if now < l.turn() {
				return nil
			}
			l.lapsed()
			return l.begin(now, Expired)
		}
		if now < l.retry {
			return nil
		}
		l.running = true
		return l.write
	}
	if !l.alive(now) {
		return nil
	}
	if l.write != nil { // broken: the same bytes again
		if now < l.retry {
			return nil
		}
		l.running = true
		return l.write
	}
	announce := l.resigning && !l.announced && l.cause == 0
	if now < l.due && !announce && !l.renew || now < l.turn() {
		return nil
	}
	l.renew = false
	if l.resigning {
		return l.begin(now, Draining)
	}
	return l.begin(now, Held)
}

// turn is when the store lets the lock be written again.
func (l *Leader) turn() clock.Instant { return l.last.Add(l.cfg.MinRewrite) }

func (l *Leader) begin(now clock.Instant, s State) *Write {
	l.writes++
	l.write = &Write{N: l.writes, State: s, Known: l.version, Nonce: l.cfg.Nonce(), Successor: l.successor, First: now, Due: min(now, l.due)}
	l.last, l.running, l.broken, l.retry = now, true, 0, now
	return l.write
}

// done: nothing is left to do by itself.
func (l *Leader) done() bool {
	return l.over || l.cause.Lost() && !l.running && !(l.resigning && l.workDone)
}

func (l *Leader) wake(now clock.Instant) clock.Instant {
	if l.over {
		return now.Add(time.Hour)
	}
	at := now.Add(l.cfg.Validity)
	soonest := func(t clock.Instant) {
		if t > now {
			at = min(at, t)
		}
	}
	soonest(l.deadline)
	soonest(l.retry)
	if !l.running {
		soonest(max(l.due, l.turn()))
		if l.renew || l.resigning {
			soonest(l.turn())
		}
	}
	if l.resigning && l.cause == 0 {
		soonest(l.drain)
	}
	if l.cfg.StallAfter > 0 && l.cause == 0 {
		soonest(l.progress.Add(l.cfg.StallAfter))
	}
	return at
}

// Writes is the number of the last write begun.
func (l *Leader) Writes() uint64 { return l.writes }
