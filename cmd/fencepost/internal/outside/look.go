package outside

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// job is a part of a look. One that fails keeps nobody from doing the others.
type job struct {
	every int // ticks from one time to the next
	do    func(context.Context) error
	// aside: a failure does not make the look fail.
	aside bool

	wait   int   // ticks until it is due
	soon   int   // the next time it is due after so many ticks; 0: after every
	failed int   // how often in a row it has failed
	err    error // of the last time
	done   bool  // it has succeeded once
}

// errElsewhere is what the first job of a look returns if something else is there now.
var errElsewhere = errors.New("something else is there")

// repeat looks again and again, a tick after the last look, until the first job returns errElsewhere. What
// earlier looks have shown stays.
func (f *follower) repeat(ctx context.Context, i int, jobs []*job, show func(*State)) {
	for failed := 0; ; {
		err := f.look(ctx, i, jobs, show)
		if ctx.Err() != nil || errors.Is(err, errElsewhere) {
			return
		}
		j := &f.jobs
		read := j.leader.done || f.m != nil || j.compactor.done || j.pins.done // the others may have had nothing to read
		why := failures(jobs)
		f.update(i, func(s *State) {
			if read {
				show(s)
			}
			s.looked, s.Err, s.passing = read, why, false
		})
		if failed++; why == "" {
			failed = 0
		}
		if f.rest(ctx, i, f.pause(failed), show) != nil {
			return
		}
	}
}

// rest waits for the next look. If nobody leads, it looks for a leader before that.
func (f *follower) rest(ctx context.Context, i int, left time.Duration, show func(*State)) error {
	for {
		d, ok := f.again()
		if !ok || d >= left {
			return clock.Sleep(ctx, f.clock, left)
		}
		if err := clock.Sleep(ctx, f.clock, d); err != nil {
			return err
		}
		if err := f.findAgain(ctx, i, show); err != nil {
			return err
		}
		left -= d
	}
}

// again tells when to look for a leader beside the looks. If nobody leads, somebody may in a moment, as when the only
// writer is started again. With many targets the next look may come later than an alert waits. So it is first soon, and
// then less and less often.
func (f *follower) again() (in time.Duration, ok bool) {
	j := &f.jobs.leader
	switch {
	case j.err != nil || !j.done:
		return 0, false
	case f.lead().Leads:
		f.free = 0
		return 0, false
	}
	pause := f.pause(f.free + 1)
	return max(pause-f.clock.Now().Sub(f.asked), 0), pause < f.tick
}

// findAgain looks for a leader once more: two requests.
func (f *follower) findAgain(ctx context.Context, i int, show func(*State)) error {
	f.free++
	return f.try(ctx, i, &f.jobs.leader, nil, show)
}

// look does the jobs that are due.
func (f *follower) look(ctx context.Context, i int, jobs []*job, show func(*State)) error {
	for _, j := range jobs {
		if j.wait--; j.wait > 0 {
			continue
		}
		if err := f.try(ctx, i, j, jobs, show); err != nil {
			return err
		}
		// Each part may have to wait for its turn. So the first time a leader comes before the other parts, if they
		// were read before.
		if d, ok := f.again(); ok && (d == 0 || f.free == 0 && f.m != nil) {
			if err := clock.Sleep(ctx, f.clock, d); err != nil {
				return err
			}
			if err := f.findAgain(ctx, i, show); err != nil {
				return err
			}
		}
	}
	return nil
}

// try does a job. What it returns ends the look.
func (f *follower) try(ctx context.Context, i int, j *job, all []*job, show func(*State)) error {
	back := j.failed > 0
	j.err = j.do(ctx)
	switch {
	case ctx.Err() != nil, errors.Is(j.err, errElsewhere):
		return j.err
	case j.err != nil:
		// Soon again, since it may pass; but what stays broken leaves requests for the rest.
		j.wait = min(1<<min(j.failed, 10), j.every)
		if j.failed++; j.failed == 1 {
			f.jobs.place.wait = 1 // perhaps something else is there
		}
		return nil
	}
	if j.wait = j.every; j.soon > 0 {
		j.wait, j.soon = j.soon, 0
	}
	j.failed, j.done = 0, true
	for _, other := range all {
		if back && other.failed > 0 { // the store is back
			other.wait = 1
		}
	}
	f.update(i, func(s *State) { // at once: the next request may have to wait for its turn
		if show(s); j == &f.jobs.leader {
			s.Read = f.clock.Wall()
		}
	})
	return nil
}

// mostFailures is how many failures are told.
const mostFailures = 3

// failures says why the last look has failed; empty if it has not.
func failures(jobs []*job) string {
	var all []string
	for _, j := range jobs {
		if j.err != nil && !j.aside && !slices.Contains(all, j.err.Error()) {
			all = append(all, j.err.Error())
		}
	}
	return strings.Join(all[:min(len(all), mostFailures)], "; ")
}

// pause is the time until the next look, after so many failures in a row. Until it succeeds the target counts as
// not watched: so with many targets it is not made to wait for a whole tick at once. The budget bounds the requests.
func (h *Hub) pause(failed int) time.Duration {
	if failed == 0 {
		return h.tick
	}
	return min(h.tick, 40*time.Second<<min(failed-1, 10))
}
