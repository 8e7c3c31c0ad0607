package leader

import "time"

// life is what a term's own leader wants: to work, and then to leave. When the term has to end although its
// leader wants to stay, [lease.Leader] says. Neither sends anything: testdata/life has the scripts of this one. It
// is guarded by Term.mu.
type life struct {
	working bool          // the work of Run has begun and not ended
	leaving bool          // Resign was called, or Run's context has ended
	drain   time.Duration // how long the work may go on then
	why     error         // the cause of Run's context
}

// departure is what follows from the wish to leave.
type departure string

const (
	nothing  departure = "nothing"  // nobody wants to leave, or it is under way
	resigns  departure = "resign"   // the term ends now, and the lock is released when the work has ended
	releases departure = "release"  // there is no work: the lock is released now
	makesWay departure = "make way" // the work goes on until a candidate is close, for drain at most
)

// leave wants to leave; drain is how long the work may go on.
func (l *life) leave(drain time.Duration, why error) departure {
	first := !l.leaving
	l.leaving = true
	if l.why == nil {
		l.why = why
	}
	switch {
	case first && !l.working:
		return releases
	case !l.working || drain <= 0:
		return resigns
	case first:
		l.drain = drain
		return makesWay
	}
	return nothing
}

// begin begins the work, and end ends it.
func (l *life) begin() { l.working = true }

func (l *life) end() departure {
	l.working = false
	if l.leaving {
		return releases
	}
	return nothing
}
