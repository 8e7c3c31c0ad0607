package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/delta"
	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// table checks the Delta table that is published from the log, if there is one.
func (x *examination) table(ctx context.Context) {
	const check = "published table"
	root, source, err := delta.Beside(x.st)
	if x.format.Files != nil {
		if store.IsNil(x.Files) {
			x.add(check, OK, "", "not looked for: the files are in %s; give its URL with --files", x.format.Files.Store)
			return
		}
		root, source = x.Files, delta.Source{Log: x.st}
	}
	var p *delta.Publisher
	if err == nil {
		p, err = delta.Open(ctx, root, []delta.Source{source}, nil)
	}
	var r delta.Report
	if err == nil {
		r, err = p.Status(ctx)
	}
	if err == nil {
		err = r.Err()
	}
	if err == nil && r.Sources[0].Manifest > 0 {
		x.place, x.heldAt = inTable, r.Sources[0].Manifest
	}
	switch {
	case errors.Is(err, delta.ErrNoTable):
		x.place = noTable
		x.add(check, OK, "", "none")
	case errors.Is(err, delta.ErrUnpublished):
		x.place = takenOut
		x.add(check, OK, "", "the log was taken out of it: see `fencepost unpublish`")
	case errors.Is(err, delta.ErrForeign):
		x.add(check, Problem, "let only `fencepost publish` write below _delta_log/; docs/delta.md says how to begin a table anew", "%v", err)
	case errors.Is(err, delta.ErrDamaged):
		x.add(check, Problem, "restore the object that is named, or publish the table anew: see docs/delta.md", "%v", err)
	case err != nil:
		x.add(check, Problem, advice(err, "run `fencepost published`, and see docs/delta.md"), "%v", err)
	case r.Sources[0].Published < r.Sources[0].Edits:
		x.add(check, Warning, "if that does not change, no publisher runs, or it cannot publish: run `fencepost publish`, which says why, and keep `fencepost publish --watch` running",
			"it has %d of %d edits of the log", r.Sources[0].Published, r.Sources[0].Edits)
	default:
		x.add(check, OK, "", "version %d has all %d edits", r.Version, r.Sources[0].Edits)
	}
}

// IsGroup tells whether there is a group of workers in st.
func IsGroup(ctx context.Context, st store.Store) (bool, error) {
	_, err := group.Partitions(ctx, st)
	if errors.Is(err, group.ErrNoGroup) {
		return false, nil
	}
	return err == nil, err
}

// ExamineGroup checks the group of workers in st, and not the logs of its partitions. It changes
// nothing. The error is ctx's, or that there is no group.
func ExamineGroup(ctx context.Context, st store.Store) ([]Finding, error) {
	x := &examination{st: st}
	for s, err := range group.Observe(ctx, st, nil) {
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, group.ErrNoGroup) {
				return x.found, err
			}
			x.add("group", Problem, advice(err, "see docs/groups.md"), "%v", err)
			return x.found, nil
		}
		x.group(&s)
		return x.found, nil
	}
	return x.found, context.Cause(ctx)
}

func (x *examination) group(s *group.Status) {
	x.add("group", OK, "", "%d partitions, validity %v, assignment %d", s.Partitions, s.Validity, s.Number)
	live, lapsed := 0, 0
	for _, m := range s.Members {
		switch {
		case m.Expired:
		case m.Lapsed:
			lapsed++
			x.add("members", Warning, "if it stays so, no other member sees it: look at their logs, and at the clocks of all machines",
				"%s (%s) was not renewed for longer than %v, and nobody has expired it", m.Identity, m.Name, s.Validity)
		case !m.Leaving && m.Weight > 0:
			live++
		}
	}
	if live > 0 || lapsed == 0 {
		if live == 0 {
			x.add("members", Problem, "start workers: programs that call RunGroup, or `fencepost exec --group`", "nobody works: the group has no live member that takes partitions")
		} else {
			x.add("members", OK, "", "%d live", live)
		}
	}
	unowned := s.Partitions - len(s.Owners)
	for _, owner := range s.Owners {
		if owner < 0 {
			unowned++
		}
	}
	switch {
	case unowned > 0 && live > 0:
		x.add("partitions", Warning, "a change of members takes a validity; if it stays so, look at the log of the organiser, which `fencepost group status` names",
			"%d of %d have no owner", unowned, s.Partitions)
	case unowned > 0:
		x.add("partitions", Problem, "start workers", "%d of %d have no owner", unowned, s.Partitions)
	default:
		x.add("partitions", OK, "", "each has an owner; %d are moving", len(s.Moving))
	}
	if len(s.GivenUp) > 0 {
		x.add("work", Problem, "look at the log of the workers: it says why the work fails. Run doctor on the log of such a partition",
			"the work on %d partitions fails with every member that tries: %s", len(s.GivenUp), some(s.GivenUp))
	} else {
		x.add("work", OK, "", "no partition was given up")
	}
	x.add("logs", OK, "", "not checked; `fencepost verify` with this URL reads all of them; doctor checks the log of a partition: its URL ends in /%s", layout.PartitionPrefix(0))
}

// some writes numbers, and not more than people read.
func some(ps []int) string {
	const most = 10
	if len(ps) > most {
		return fmt.Sprintf("%v and %d more", ps[:most], len(ps)-most)
	}
	return fmt.Sprint(ps)
}
