package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/member"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// GroupReport is what a report says of a group of workers.
type GroupReport struct {
	Partitions int `json:"partitions"`
	// Logs is how many partitions have a log. Nobody has opened the others yet.
	Logs int `json:"logs"`
	// Records is how many records all logs have, with those that were truncated.
	Records uint64 `json:"records"`
	// Assignment is the number of the newest one, and Members is how many members it lists.
	Assignment uint64 `json:"assignment"`
	Members    int    `json:"members"`
	// Objects is how many objects of the group itself were read, with those of the group of its compactors.
	Objects int `json:"objects"`
}

const (
	restoreGroup = "docs/groups.md says what to do about a damaged object of a group"
	noToken      = "stop the workers, and make the group again with a Base above this epoch; docs/groups.md has the steps"
)

// IsGroup reports whether st has objects of a group or logs of partitions, be they damaged. The error is the store's.
func IsGroup(ctx context.Context, st store.Store, settle *store.SettleOptions) (bool, error) {
	for _, prefix := range []string{member.Prefix, layout.PartitionsPrefix} {
		for _, err := range store.ListAll(ctx, st, prefix, nil, settle) {
			return err == nil, err
		}
	}
	return false, nil
}

// RunGroup checks the group of workers in st: every object of the group, and of the group of its compactors;
// the log of each partition, as [Run] does; and a log beside the group, if there is one. The report adds
// all of them up, and its keys are those in st. Logs are checked Options.AtOnce at a time, each in the memory of
// one Run.
//
// The errors are those of Run, and group.ErrNoGroup if there is no object of a group.
func RunGroup(ctx context.Context, st store.Store, opts *Options) (*Report, error) {
	report := &Report{Problems: []Finding{}, Notes: []Finding{}}
	if store.IsNil(st) {
		return report, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	if err := opts.Validate(); err != nil {
		return report, err
	}
	o := opts.withDefaults()
	report.Store, report.Part, report.Parts, report.Group = st.Traits().Name, o.Part, o.Parts, &GroupReport{}
	report.Objects = map[string]Count{}
	t := &town{verifier: verifier{st: st, opts: o, report: report}, high: map[int]fence.Epoch{}}
	begun := o.Clock.Now()
	err := t.run(ctx)
	report.Took = o.Clock.Now().Sub(begun)
	if err != nil {
		err = fmt.Errorf("verify: %w", err)
	}
	if o.Hooks.Verified != nil {
		o.Hooks.Verified(Verified{report, err})
	}
	return report, err
}

// town is a group with its logs.
type town struct {
	verifier
	high map[int]fence.Epoch // the epochs that no assignment has given, by partition
}

// checked is the result of one log.
type checked struct {
	partition int // -1 for the log beside the group
	report    *Report
	err       error
}

func (t *town) run(ctx context.Context) error {
	if err := t.rules(ctx); err != nil {
		return err
	}
	found, err := t.group(ctx, "")
	if errors.Is(err, group.ErrNoGroup) {
		for info, lerr := range store.ListAll(ctx, t.st, layout.PartitionsPrefix, nil, t.opts.Settle) {
			if lerr != nil {
				return lerr
			}
			t.problem(member.FormatKey, restoreGroup, "it is missing, with all objects of the group, but a partition has a log: %s", info.Key)
			return t.logs(ctx, &group.Checked{}) // that beside it may be another's
		}
	}
	if err != nil {
		return err
	}
	g := t.report.Group
	g.Partitions, g.Assignment, g.Members = found.Partitions, found.Number, found.Members
	if _, err := t.group(ctx, layout.CompactorsPrefix+"/"); err != nil && !errors.Is(err, group.ErrNoGroup) {
		return err
	}
	if err := t.logs(ctx, found); err != nil || len(t.high) == 0 {
		return err
	}
	// The group has gone on meanwhile.
	if found, err = group.Check(ctx, t.st, nil); err != nil {
		return err
	}
	for p, epoch := range t.high {
		if uint64(epoch) > found.Highest {
			t.problem(layout.PartitionPrefix(p)+"/", noToken, "its log is in epoch %d, but the assignments of the group have given no token above %d: assignments were lost, and tokens would be given a second time", epoch, found.Highest)
		}
	}
	return nil
}

// group checks the objects of the group below a folder.
func (t *town) group(ctx context.Context, below string) (*group.Checked, error) {
	st := t.st
	if below != "" {
		var err error
		if st, err = store.Sub(st, strings.TrimSuffix(below, "/")); err != nil {
			return nil, err
		}
	}
	found, err := group.Check(ctx, st, &group.Options{Clock: t.opts.Clock})
	if err != nil {
		return nil, err
	}
	for _, f := range found.Faults {
		t.problem(below+f.Key, restoreGroup, "%s", f.What)
	}
	for _, key := range found.Strange {
		t.note(below+key, "", "no group has an object of this name")
	}
	t.report.Group.Objects += found.Objects
	t.report.Bytes += found.Bytes
	return found, nil
}

// log checks one log. Some may keep their files in a store of their own, and others in themselves.
func (t *town) log(ctx context.Context, st store.Store, o Options) (*Report, error) {
	if o.Files != nil {
		if f, err := manifest.ReadFormat(ctx, st, o.Settle); err == nil && f.Files == nil {
			o.Files = nil
		}
	}
	return Run(ctx, st, &o)
}

// logs checks the log of each partition, and one beside the group.
func (t *town) logs(ctx context.Context, found *group.Checked) error {
	o := t.opts
	o.Hooks = Hooks{}
	done := make(chan checked)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(t.opts.AtOnce)
	var all errgroup.Group
	all.Go(func() error {
		defer close(done)
		for p := -1; p < found.Partitions && gctx.Err() == nil; p++ {
			g.Go(func() error {
				c := checked{partition: p}
				st, err := store.Store(unruled{t.st}), error(nil)
				if p >= 0 {
					st, err = store.Sub(st, layout.PartitionPrefix(p))
				}
				if err == nil {
					c.report, err = t.log(gctx, st, o)
				}
				switch {
				case errors.Is(err, manifest.ErrNotInitialized):
					c.report, err = nil, nil
				case err != nil && p >= 0:
					err = fmt.Errorf("%s: %w", layout.PartitionPrefix(p), err)
				}
				c.err = err
				done <- c
				return err
			})
		}
		return g.Wait()
	})
	n := int64(0)
	for c := range done {
		if c.report != nil {
			t.add(&c, found)
		}
		n++
		t.opts.Hooks.Progress(Progress{Stage: "partitions", Done: n, Total: int64(found.Partitions) + 1})
	}
	return all.Wait()
}

// add adds the report of one log to that of the group.
func (t *town) add(c *checked, found *group.Checked) {
	r, to, below := c.report, t.report, ""
	if c.partition >= 0 {
		below = layout.PartitionPrefix(c.partition) + "/"
		if c.err == nil {
			to.Group.Logs++
			to.Group.Records += r.End
			if epoch := r.Tail.Epoch; uint64(epoch) > found.Highest {
				t.high[c.partition] = epoch
			}
		}
	}
	to.Segments += r.Segments
	to.Slots += r.Slots
	to.Seals += r.Seals
	to.Edits += r.Edits
	to.Files += r.Files
	to.Lists += r.Lists
	to.Pins += r.Pins
	to.Locks += r.Locks
	to.Bytes += r.Bytes
	for kind, n := range r.Objects {
		sum := to.Objects[kind]
		to.Objects[kind] = Count{sum.Objects + n.Objects, sum.Bytes + n.Bytes}
	}
	for _, f := range r.Problems {
		// A rule of the store for files may be for all logs, and is told once.
		if f.Remedy != limitRule && (f.Key != "" || below != "") {
			f.Key = below + f.Key
		}
		add(&to.Problems, &to.MoreProblems, t.opts.MaxFindings, f)
	}
	for _, f := range r.Notes {
		if c.partition < 0 && ofGroup(f.Key) {
			continue // it belongs to the group
		}
		if f.Key != "" || below != "" {
			f.Key = below + f.Key
		}
		add(&to.Notes, &to.MoreNotes, t.opts.MaxFindings, f)
	}
	to.MoreProblems += r.MoreProblems
	to.MoreNotes += r.MoreNotes
}

// groupPrefixes begin the keys of a group, of the group of its compactors, and of the logs of its partitions.
func groupPrefixes() []string {
	return []string{member.Prefix, layout.CompactorsPrefix + "/", layout.PartitionsPrefix}
}

// ofGroup reports whether a key beside a group's log belongs to the group.
func ofGroup(key string) bool {
	return slices.ContainsFunc(groupPrefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
