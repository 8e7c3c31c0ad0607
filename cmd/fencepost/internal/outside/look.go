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
	failed int   // how often in a row it has failed
	err    error // of the last time
	done   bool  // it has succeeded once
}

// errElsewhere is what the first job of a look returns if something else is there now.
var errElsewhere = errors.New("something else is there")

// repeat looks again and again, a tick after the last look, until the first job returns errElsewhere. What
// earlier looks have shown stays.
func (h *Hub) repeat(ctx context.Context, i int, jobs []*job, show func(*State)) {
	for failed := 0; ; {
		err := h.look(ctx, i, jobs, show)
		if ctx.Err() != nil || errors.Is(err, errElsewhere) {
			return
		}
		read := slices.ContainsFunc(jobs, func(j *job) bool { return j.done })
		why := failures(jobs)
		h.update(i, func(s *State) {
			if read {
				show(s)
			}
			s.looked, s.Err, s.passing = read, why, false
		})
		if h.once {
			return
		}
		if failed++; why == "" {
			failed = 0
		}
		if clock.Sleep(ctx, h.clock, h.pause(failed)) != nil {
			return
		}
	}
}

// look does the jobs that are due.
func (h *Hub) look(ctx context.Context, i int, jobs []*job, show func(*State)) error {
	for _, j := range jobs {
		if j.wait--; j.wait > 0 {
			continue
		}
		back := j.failed > 0
		j.err = j.do(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(j.err, errElsewhere):
			return j.err
		case j.err != nil:
			// Soon again, since it may pass; but what stays broken leaves requests for the rest.
			j.wait = min(1<<min(j.failed, 10), j.every)
			if j.failed++; j.failed == 1 {
				jobs[0].wait = 1 // perhaps something else is there
			}
			continue
		}
		j.wait, j.failed, j.done = j.every, 0, true
		for _, other := range jobs {
			if back && other.failed > 0 { // the store is back
				other.wait = 1
			}
		}
		h.update(i, show) // at once: the next request may have to wait for its turn
	}
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
