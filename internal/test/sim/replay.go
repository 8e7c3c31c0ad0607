package sim

import (
	"errors"
	"slices"
	"testing"
)

// Run makes the history of a plan.
func Run(t *testing.T, p Plan) *Result {
	t.Helper()
	return run(t, p, func(w *world) scheduler { return w.dice }, false)
}

// list is the scheduler that repeats acts. It skips an act that is no longer possible
// because others were left out.
type list struct{ acts []act }

func (l *list) next(*world) (act, bool) {
	if len(l.acts) == 0 {
		return act{}, false
	}
	a := l.acts[0]
	l.acts = l.acts[1:]
	return a, true
}

func replay(t *testing.T, p Plan, acts []act, tell bool) *Result {
	t.Helper()
	return run(t, p, func(*world) scheduler { return &list{acts} }, tell)
}

// Shrink looks for a shorter history that breaks the same promise as res, with fewer
// nodes and fewer acts. It makes at most tries histories. It returns the shortest, with
// its story.
func Shrink(t *testing.T, res *Result, tries int) *Result {
	t.Helper()
	best, want := res, res.kinds()[0]
	try := func(p Plan, acts []act) bool {
		if tries--; tries < 0 {
			return false
		}
		r := replay(t, p, acts, false)
		// best.acts has only the acts that were performed, so skipped acts stay out.
		if !slices.Contains(r.kinds(), want) || len(r.acts) > len(best.acts) {
			return false
		}
		best = r
		return true
	}
	if !try(res.Plan, res.acts) {
		// The acts do not repeat the failure. Return the whole story.
		return run(t, res.Plan, func(w *world) scheduler { return w.dice }, true)
	}
	fewer := []func(*Plan){
		func(p *Plan) { p.Readers = max(p.Readers-1, 0) }, func(p *Plan) { p.Readers = 0 },
		func(p *Plan) { p.Compactors = max(p.Compactors-1, 0) }, func(p *Plan) { p.Compactors = 0 },
		func(p *Plan) { p.Writers = max(p.Writers-1, 1) }, func(p *Plan) { p.Terms = max(p.Terms-1, 1) },
		func(p *Plan) { p.Content = false }, func(p *Plan) { p.Patient = false }, func(p *Plan) { p.Grace, p.Walks = 0, false },
	}
	for again := true; again && tries > 0; {
		before := len(best.acts)
		for _, f := range fewer {
			p := best.Plan
			if f(&p); p != best.Plan {
				try(p, best.acts)
			}
		}
		for size := max(len(best.acts)/2, 1); size > 0; size /= 2 {
			for from := len(best.acts) - size; from >= -size && tries > 0; from -= size {
				acts := best.acts
				lo := max(from, 0)
				hi := min(from+size, len(acts))
				if lo >= hi {
					continue
				}
				try(best.Plan, slices.Concat(acts[:lo], acts[hi:]))
			}
		}
		again = len(best.acts) < before
	}
	return replay(t, best.Plan, best.acts, true)
}

// kinds returns the kinds of the promises that were broken. Those that a client suffered
// come first, those that only the final checks found come last.
func (r *Result) kinds() []string {
	var all, looked []string
	for _, err := range r.wrong {
		var v *BrokenError
		switch {
		case !errors.As(err, &v):
		case v.Kind == "verify", v.Kind == "error", v.Kind == "end":
			looked = append(looked, v.Kind)
		default:
			all = append(all, v.Kind)
		}
	}
	return append(all, looked...)
}
