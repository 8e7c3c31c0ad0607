package lease

import (
	"cmp"
	"math"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Leader keeps a won lock alive until the term ends, and then releases it.
type Leader struct {
	cfg Config

	version  store.Version // as last known
	deadline clock.Instant
	due      clock.Instant // the next heartbeat, on a fixed grid that candidates expect
	last     clock.Instant // when the last write was sent, and later when it was answered
	writes   uint64

	write   *Write // in flight, or to be retried
	retry   clock.Instant
	broken  int
	running bool   // write is in flight
	maybe   string // the nonce of an abandoned renewal that may still land

	cause     Cause
	resigning bool
	announced bool // the lock says draining
	drain     clock.Instant
	workDone  bool
	renew     bool
	over      bool // the lock is released, lost, or left to lapse
	released  bool
	progress  clock.Instant
}

// NewLeader begins a term at now with win, the Lead action of a Candidate.
func NewLeader(cfg Config, win Action, now clock.Instant) *Leader {
	return &Leader{
		cfg: cfg, version: win.Known, last: now, progress: now,
		deadline: cfg.deadline(win.Sent), due: win.Sent.Add(cfg.Renew),
	}
}

// Deadline is when the term ends unless a heartbeat is applied.
func (l *Leader) Deadline() clock.Instant { return l.deadline }

// Held is until when no successor can lead unless a heartbeat is applied.
//
// guard:held-ends. Held is in the past for a leader whose lock was deposed without a wait, or that has
// released its lock, whatever its deadline was.
//
//mutant:replace if l.over { => if l.released {
func (l *Leader) Held() clock.Instant {
	if l.over {
		return math.MinInt64 / 2
	}
	return l.deadline
}

// Cause is why the term's context was cancelled; "" if it was not.
func (l *Leader) Cause() Cause { return l.cause }

// Released reports whether this leader has swapped its lock to expired.
func (l *Leader) Released() bool { return l.released }

// Writes is the number of the last write begun.
func (l *Leader) Writes() uint64 { return l.writes }

// Step takes a signal and returns what follows from it.
func (l *Leader) Step(now clock.Instant, in Input) Ready {
	var r Ready
	before := l.cause
	l.progress = max(l.progress, in.Progress)
	// The clock comes first. After the deadline every signal is too late, and a term
	// that has expired once stays expired.
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
	if l.resigning && l.cause == "" && (now >= l.drain || l.workDone) {
		l.cause = ByResigning
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
		// guard:own-deadline. At its deadline a leader's term is lost, and the context of its work is
		// cancelled, also if the leader has announced that it will leave (draining).
		l.lose(ByExpiry)
	case l.cause == "" && l.cfg.StallAfter > 0 && now.Sub(l.progress) >= l.cfg.StallAfter:
		l.lose(ByStall)
	}
}

func (l *Leader) lose(c Cause) {
	l.cause = cmp.Or(l.cause, c)
	l.abandon()
}

// abandon stops retrying the renewal in flight. It may land all the same.
func (l *Leader) abandon() {
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
		// Our abandoned renewal has landed after all. It does not extend the term, but
		// the release must swap its version.
		l.version, l.maybe = in.Found.Version, ""
	case in.Found.State == Expired && in.Found.Wait > 0 && in.Found.Version != w.Known:
		// An operator made this leader step down. Successors wait until it says that its
		// work has ended, or until it can no longer believe that it leads. If it was just
		// saying so, it says it again.
		l.version = in.Found.Version
		l.lose(ByDeposing)
	case w.State == Expired:
		l.over = true // somebody else has expired it: nothing is left to release
	default:
		l.over = true
		l.lose(ByDeposing)
	}
}

func (l *Leader) resign(now clock.Instant, in Input) {
	if l.resigning {
		l.drain = min(l.drain, now.Add(in.Drain))
		return
	}
	l.resigning, l.drain = true, now.Add(in.Drain)
}

// next chooses the write to send now, if any.
func (l *Leader) next(now clock.Instant) *Write {
	if l.running || l.over {
		return nil
	}
	// guard:release-last. A leader that resigns releases its lock only when it was told that its work
	// has ended.
	//
	//mutant:replace l.workDone && =>
	release := l.resigning && l.workDone && l.cause != ""
	switch {
	case !release && !l.alive(now):
		return nil
	case l.write != nil && (!release || l.write.State == Expired): // broken
		if now < l.retry {
			return nil
		}
		l.running = true
		return l.write // the same bytes again
	case now < l.turn():
		return nil
	case release:
		// A broken renewal is abandoned. If it has landed, the release is refused and
		// shows it.
		l.abandon()
		return l.begin(now, Expired)
	}
	announce := l.resigning && !l.announced && l.cause == ""
	if now < l.due && !announce && !l.renew {
		return nil
	}
	l.renew = false
	if l.resigning {
		return l.begin(now, Draining)
	}
	return l.begin(now, Held)
}

// turn is when the store allows the next write of the lock.
func (l *Leader) turn() clock.Instant { return l.last.Add(l.cfg.MinRewrite) }

func (l *Leader) begin(now clock.Instant, s State) *Write {
	l.writes++
	l.write = &Write{N: l.writes, State: s, Known: l.version, Nonce: l.cfg.Nonce(), First: now, Due: min(now, l.due)}
	l.last, l.running, l.broken, l.retry = now, true, 0, now
	return l.write
}

// done reports whether nothing is left to do unless another signal comes.
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
	if l.resigning && l.cause == "" {
		soonest(l.drain)
	}
	if l.cfg.StallAfter > 0 && l.cause == "" {
		soonest(l.progress.Add(l.cfg.StallAfter))
	}
	return at
}
