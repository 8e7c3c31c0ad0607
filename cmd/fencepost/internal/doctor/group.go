package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// lookForGroup finds out whether there is a group of workers, and checks it if there is one.
func (x *examination) lookForGroup(ctx context.Context) {
	const check = "group"
	is, err := group.Exists(ctx, x.st, nil)
	switch {
	case errors.Is(err, store.ErrDenied):
		return // who may read only the log cannot know
	case err != nil:
		x.failed(check, err, "")
		return
	case !is:
		return
	}
	x.grouped = true
	for s, err := range group.Observe(ctx, x.st, nil) {
		switch {
		case err == nil:
			x.group(&s)
		case errors.Is(err, group.ErrNoGroup):
			level := Problem
			if _, err := manifest.ReadFormat(ctx, x.st, nil); !errors.Is(err, manifest.ErrNotInitialized) {
				level, x.grouped = Warning, false // there is a log, and perhaps nothing else
			}
			x.add(check, level, "if there is a group of workers here: docs/groups.md has the steps. If another log or program has such names, leave them",
				"there are objects below %s or %s, and no %s", group.Prefix, group.PartitionsPrefix, group.FormatKey)
		default:
			x.failed(check, err, "see docs/groups.md")
		}
		return
	}
}

func (x *examination) group(s *group.Status) {
	x.add("group", OK, "", "%d partitions, validity %v, assignment %d", s.Partitions, s.Validity, s.Number)
	live, lapsed := living(s), 0
	for _, m := range s.Members {
		if m.Lapsed && !m.Expired {
			lapsed++
			x.add("members", Warning, "if it stays so, no other member sees it: look at their logs, and at the clocks of all machines",
				"%s (%s) was not renewed for longer than %v, and nobody has expired it", m.Identity, m.Name, s.Validity)
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
	x.add("logs", Unseen, "", "--deep reads all of them, as `fencepost verify` does. Doctor checks the rest with the URL of a partition, which ends in /%s", group.PartitionPrefix(0))
}

// compactors says whether anybody compacts the logs of the partitions: in a group of their own, since these logs
// have no election.
func (x *examination) compactors(ctx context.Context) {
	const check = "compactors"
	logs, err := x.hasLogs(ctx)
	own, serr := store.Sub(x.st, group.CompactorsPrefix)
	if err = cmp.Or(err, serr); err != nil {
		x.failed(check, err, "")
		return
	}
	if !logs {
		return
	}
	for s, err := range group.Observe(ctx, own, nil) {
		if err != nil && !errors.Is(err, group.ErrNoGroup) {
			x.failed(check, fmt.Errorf("below %s: %w", group.CompactorsPrefix, err), "see docs/groups.md")
			return
		}
		if n := living(&s); n > 0 {
			x.add(check, OK, "", "%d live", n)
		} else {
			x.add(check, Warning, "run "+compactGroup+", or call CompactGroup in a program", "nobody compacts the logs of the partitions, as far as the group of compactors tells")
		}
		return
	}
}

// hasLogs tells whether any partition has a log.
func (x *examination) hasLogs(ctx context.Context) (bool, error) {
	for info, err := range store.ListAll(ctx, x.st, group.PartitionsPrefix, nil, nil) {
		if err != nil {
			return false, err
		}
		p := 0
		_, _ = fmt.Sscanf(info.Key, group.PartitionsPrefix+"%06d/", &p) // what is no number is of another program
		if key, ok := strings.CutPrefix(info.Key, group.PartitionPrefix(p)+"/"); ok && inspect.Parse(key).Kind != inspect.Unknown {
			return true, nil
		}
	}
	return false, nil
}

// living is how many members take partitions.
func living(s *group.Status) (n int) {
	for _, m := range s.Members {
		if !m.Expired && !m.Lapsed && !m.Leaving && m.Weight > 0 {
			n++
		}
	}
	return n
}

// some writes numbers, and not more than people read.
func some(ps []int) string {
	const most = 10
	if len(ps) > most {
		return fmt.Sprintf("%v and %d more", ps[:most], len(ps)-most)
	}
	return fmt.Sprint(ps)
}
