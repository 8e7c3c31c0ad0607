package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// CheckOptions are the options of [Check]. The zero value works, and so does nil.
type CheckOptions struct {
	// Verify are the options for each log. Its Hooks are told of the group as a whole, in the only stage "partitions",
	// which counts logs.
	Verify *verify.Options
	// Concurrency is how many logs are checked at the same time, each in the memory of one verify.Run; 1 to 1,024, default 4.
	Concurrency int
}

// Validate returns what is wrong with the options, as [Check] does: [ErrOptions]. nil is valid.
func (o *CheckOptions) Validate() error {
	if o == nil {
		return nil
	}
	var all faults
	all.add("Verify", o.Verify.Validate())
	if o.Concurrency < 0 || o.Concurrency > 1024 {
		all.add("Concurrency", fmt.Errorf("%d must be 1 to 1,024, or 0 for 4", o.Concurrency))
	}
	return errors.Join(all...)
}

// Report is what [Check] has found. It marshals to JSON.
type Report struct {
	// Report adds up those of all logs. Its keys are those in the store of the group, and Log, Manifest, First, End,
	// Floor and Tail are not set.
	verify.Report
	Group Summary `json:"group"`
}

// Summary is what a report says of the group itself.
type Summary struct {
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

// Exists reports whether st has objects of a group or logs of partitions, be they damaged. The error is the store's.
func Exists(ctx context.Context, st store.Store, settle *store.SettleOptions) (bool, error) {
	for _, prefix := range []string{Prefix, PartitionsPrefix} {
		for _, err := range store.ListAll(ctx, st, prefix, nil, settle) {
			return err == nil, err
		}
	}
	return false, nil
}

// Check checks the group of workers in st: every object of the group, and of the group of its compactors;
// the log of each partition, as verify.Run does; and a log beside the group, if there is one. It may run beside members.
//
// Damage is in the report, which is never nil. The error is for what kept Check from reading: [ErrOptions];
// [ErrNoGroup] if there is no object of a group; else those of verify.Run.
func Check(ctx context.Context, st store.Store, opts *CheckOptions) (*Report, error) {
	report := &Report{Report: verify.Report{Problems: []verify.Finding{}, Notes: []verify.Finding{}, Objects: map[string]verify.Count{}}}
	bad := opts.Validate()
	if store.IsNil(st) {
		bad = errors.Join(fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions), bad)
	}
	if bad != nil {
		return report, bad
	}
	o := *cmp.Or(opts, &CheckOptions{})
	v := *cmp.Or(o.Verify, &verify.Options{})
	v.Clock, v.MaxFindings = clock.Or(v.Clock), cmp.Or(v.MaxFindings, 1000)
	report.Store, report.Part, report.Parts = st.Traits().Name, v.Part, v.Parts
	t := &town{st: st, opts: v, atOnce: cmp.Or(o.Concurrency, 4), report: report, high: map[int]fence.Epoch{}}
	begun := v.Clock.Now()
	err := t.run(ctx)
	report.Took = v.Clock.Now().Sub(begun)
	if err != nil {
		err = fmt.Errorf("group: %w", err)
	}
	if v.Hooks.Verified != nil {
		v.Hooks.Verified(verify.Verified{Report: &report.Report, Err: err})
	}
	return report, err
}

// town is a group with its logs.
type town struct {
	st     store.Store
	opts   verify.Options
	atOnce int
	report *Report
	high   map[int]fence.Epoch // the epochs that no assignment has given, by partition
}

// checked is the result of one log.
type checked struct {
	partition int // -1 for the log beside the group
	report    *verify.Report
	err       error
}

func (t *town) run(ctx context.Context) error {
	if err := t.rules(ctx); err != nil {
		return err
	}
	found, err := t.group(ctx, "")
	if errors.Is(err, ErrNoGroup) {
		for info, lerr := range store.ListAll(ctx, t.st, PartitionsPrefix, nil, t.opts.Settle) {
			if lerr != nil {
				return lerr
			}
			t.problem(FormatKey, restoreGroup, "it is missing, with all objects of the group, but a partition has a log: %s", info.Key)
			return t.logs(ctx, &inspected{}) // that beside it may be another's
		}
	}
	if err != nil {
		return err
	}
	g := &t.report.Group
	g.Partitions, g.Assignment, g.Members = found.Partitions, found.Number, found.Members
	if _, err := t.group(ctx, CompactorsPrefix); err != nil && !errors.Is(err, ErrNoGroup) {
		return err
	}
	if err := t.logs(ctx, found); err != nil || len(t.high) == 0 {
		return err
	}
	// The group has gone on meanwhile.
	if found, err = inspect(ctx, t.st, &store.SettleOptions{Clock: t.opts.Clock}); err != nil {
		return err
	}
	for p, epoch := range t.high {
		if epoch > found.Highest {
			t.problem(PartitionPrefix(p)+"/", noToken, "its log is in epoch %d, but the assignments of the group have given no token above %d: assignments were lost, and tokens would be given a second time", epoch, found.Highest)
		}
	}
	return nil
}

// rules looks for rules of the bucket once for all logs, which do not look themselves.
func (t *town) rules(ctx context.Context) error {
	found, err := Rules(ctx, t.st, t.opts.Settle)
	if err == nil && t.opts.Files != nil {
		var more []verify.Finding
		more, err = verify.Rules(ctx, t.opts.Files, t.opts.Settle)
		found = append(found, more...)
	}
	if errors.Is(err, store.ErrDenied) || errors.Is(err, errors.ErrUnsupported) {
		t.note("", "not looked at: the bucket's lifecycle rules, which may delete objects of the logs: %v", err)
		return nil
	}
	for _, f := range found {
		t.add(&t.report.Problems, &t.report.MoreProblems, f)
	}
	return err
}

// group checks the objects of the group below a folder.
func (t *town) group(ctx context.Context, below string) (*inspected, error) {
	st := t.st
	if below != "" {
		var err error
		if st, err = store.Sub(st, strings.TrimSuffix(below, "/")); err != nil {
			return nil, err
		}
	}
	found, err := inspect(ctx, st, &store.SettleOptions{Clock: t.opts.Clock})
	if err != nil {
		return nil, err
	}
	for _, f := range found.Faults {
		t.problem(below+f.Key, restoreGroup, "%s", f.What)
	}
	for _, key := range found.Strange {
		t.note(below+key, "no group has an object of this name")
	}
	t.report.Group.Objects += found.Objects
	t.report.Bytes += found.Bytes
	return found, nil
}

// log checks one log. Some may keep their files in a store of their own, and others in themselves.
func (t *town) log(ctx context.Context, st store.Store, o verify.Options) (*verify.Report, error) {
	if o.Files != nil {
		if f, err := manifest.ReadFormat(ctx, st, o.Settle); err == nil && f.Files == nil {
			o.Files = nil
		}
	}
	return verify.Run(ctx, st, &o)
}

// logs checks the log of each partition, and one beside the group.
func (t *town) logs(ctx context.Context, found *inspected) error {
	o := t.opts
	o.Hooks = verify.Hooks{}
	if o.Files != nil {
		o.Files = unruled{o.Files}
	}
	done := make(chan checked)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(t.atOnce)
	var all errgroup.Group
	all.Go(func() error {
		defer close(done)
		for p := -1; p < found.Partitions && gctx.Err() == nil; p++ {
			g.Go(func() error {
				c := checked{partition: p}
				st, err := store.Store(beside{unruled{t.st}}), error(nil)
				if p >= 0 {
					st, err = store.Sub(unruled{t.st}, PartitionPrefix(p))
				}
				if err == nil {
					c.report, err = t.log(gctx, st, o)
				}
				switch {
				case errors.Is(err, manifest.ErrNotInitialized):
					c.report, err = nil, nil
				case err != nil && p >= 0:
					err = fmt.Errorf("%s: %w", PartitionPrefix(p), err)
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
			t.sum(&c, found)
		}
		n++
		if t.opts.Hooks.Progress != nil {
			t.opts.Hooks.Progress(verify.Progress{Stage: "partitions", Done: n, Total: int64(found.Partitions) + 1})
		}
	}
	return all.Wait()
}

// sum adds the report of one log to that of the group.
func (t *town) sum(c *checked, found *inspected) {
	r, to, below := c.report, t.report, ""
	if c.partition >= 0 {
		below = PartitionPrefix(c.partition) + "/"
		if c.err == nil {
			to.Group.Logs++
			to.Group.Records += r.End
			if epoch := r.Tail.Epoch; epoch > found.Highest {
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
		to.Objects[kind] = verify.Count{Objects: sum.Objects + n.Objects, Bytes: sum.Bytes + n.Bytes}
	}
	for _, f := range r.Problems {
		f.Key = below + f.Key
		t.add(&to.Problems, &to.MoreProblems, f)
	}
	for _, f := range r.Notes {
		f.Key = below + f.Key
		t.add(&to.Notes, &to.MoreNotes, f)
	}
	to.MoreProblems += r.MoreProblems
	to.MoreNotes += r.MoreNotes
}

func (t *town) problem(key, remedy, format string, args ...any) {
	t.add(&t.report.Problems, &t.report.MoreProblems, verify.Finding{Key: key, What: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (t *town) note(key, format string, args ...any) {
	t.add(&t.report.Notes, &t.report.MoreNotes, verify.Finding{Key: key, What: fmt.Sprintf(format, args...)})
}

// add adds a finding, unless it is there or there are too many.
func (t *town) add(to *[]verify.Finding, more *int, f verify.Finding) {
	switch {
	case slices.Contains(*to, f):
	case len(*to) >= t.opts.MaxFindings:
		*more++
	default:
		*to = append(*to, f)
	}
}

// beside is the store of a log beside a group. It does not list what the group has there.
type beside struct{ unruled }

func (b beside) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range b.unruled.List(ctx, prefix, opts) {
			if (err != nil || !OfGroup(info.Key)) && !yield(info, err) {
				return
			}
		}
	}
}
