package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/leader"
)

// compaction is what the flags of compact say.
type compaction struct {
	watch, dry            bool
	o                     compactor.Options
	keep                  leader.PruneOptions
	segment, retain, rate bytesValue
}

func compactFlags(fl *pflag.FlagSet) *compaction {
	f := &compaction{}
	fl.BoolVar(&f.watch, "watch", false, "go on, whenever there is enough to do")
	spanVar(fl, &f.o.Interval, "interval", 10*time.Second, positive, "with -watch: how often to look")
	countVar(fl, &f.o.MinObjects, "min-objects", 64, "with -watch: how many objects must wait")
	spanVar(fl, &f.o.MaxAge, "max-age", time.Minute, positive, "with -watch: or how long one must have waited")
	fl.Var(&f.segment, "segment-bytes", "how large a segment may grow (default 256 MiB)")
	countVar(fl, &f.o.Levels, "levels", 3, "how often a record is written again by merging, at most")
	countVar(fl, &f.o.FanIn, "fan-in", 64, "how much larger segments are from level to level")
	fl.BoolVar(&f.o.NoCompress, "no-compress", false, "store segments as they are")
	countVar(fl, &f.o.Parallel, "parallel", 16, "how many objects of the log to read at once")
	fl.IntVar(&f.o.RequestsPerSecond, "requests-per-second", 0, "how many requests to make on average at most (default no bound)")
	fl.Var(&f.rate, "bytes-per-second", "how much to read and write on average at most (default no bound)")
	countVar(fl, &f.keep.Keep, "keep-locks", 1000, "how many locks of past leaders to keep at most")
	spanVar(fl, &f.keep.For, "keep-locks-for", 90*24*time.Hour, positive, "and for how long")
	fl.BoolVar(&f.dry, "dry-run", false, "change nothing; print what would be done")
	spanVar(fl, &f.o.Retain.Age, "retain-age", 0, 0, "give up records that are older, such as 7d (default never)")
	fl.Uint64Var(&f.o.Retain.Records, "retain-records", 0, "give up what is older than the newest so many records (default never)")
	fl.Var(&f.retain, "retain-bytes", "give up what is older than the newest so many bytes (default never)")
	fl.IntVar(&f.o.KeepVersions.Count, "keep-versions", 0, "how many older versions of the manifest to keep, to go back to")
	spanVar(fl, &f.o.KeepVersions.Age, "keep-versions-for", 0, 0, "or for how long to keep them")
	return f
}

// options of the compactor.
func (f *compaction) options() *compactor.Options {
	o, keep := f.o, f.keep
	o.KeepLocks, o.SegmentBytes, o.Retain.Bytes, o.BytesPerSecond = &keep, int64(f.segment), int64(f.retain), int64(f.rate)
	return &o
}

func (a *app) compactCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "compact [-watch | -dry-run] URL",
		Short: "fold the log into segments and prune what nobody needs",
		Long: `Compact waits until this process is the compactor, folds the log into segments,
merges small ones, deletes what is older than the log's grace period and no
longer needed, prints what it did, and ends. With -watch it goes on for as long
as it runs; of several one works and the others wait. It never disturbs writers
or readers. With -dry-run it only prints what it would do.

The -retain flags bound the history: what lies beyond any of them is given up,
whole segments at a time and oldest first, and deleted after the grace period.`,
		Args: wantArgs(1, 1),
	}
	f := compactFlags(c.Flags())
	election := a.election(c)
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if f.watch && f.dry {
			return usage("-watch and -dry-run exclude each other")
		}
		for _, name := range []string{"interval", "min-objects", "max-age"} {
			if !f.watch && cmd.Flags().Changed(name) {
				return usage("-%s goes with -watch, which is not given", name)
			}
		}
		o, lo := f.options(), election()
		lo.Hooks.Leader = func(r leader.Record) {
			if r.Leads() && r.Holder != lo.Identity {
				a.con.note("waiting for %s, the compactor of epoch %d; if it is gone, for %v at most", r.Holder, r.Epoch, r.Validity)
			}
		}
		lo.Hooks.Elected = func(e leader.Election) {
			if f.watch {
				a.con.note("the compactor of epoch %d; it looks every %v, and folds when %d objects wait or one has waited for %v", e.Epoch, o.Interval, o.MinObjects, o.MaxAge)
			}
		}
		st, err := a.logStore(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		o.Leader, o.Logger = &lo, a.log.Named("compactor")
		var round compactor.Report
		o.Progress = func(r compactor.Report) {
			round = r
			a.con.progress("compacting", int64(r.Bytes), 0, true)
		}
		if f.watch && !a.verbose {
			o.Logger = a.con.logger()
		}
		comp, err := compactor.New(st, o)
		if err != nil {
			return &kindError{errUsage, err}
		}
		if f.watch {
			return comp.Run(cmd.Context())
		}
		if f.dry {
			return a.plan(cmd.Context(), comp)
		}
		return a.compactOnce(cmd.Context(), comp, &round)
	}
	return c
}

func (a *app) plan(ctx context.Context, c *compactor.Compactor) error {
	plan, err := c.Plan(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(plan)
	}
	return a.write([]byte(plan.String()))
}

func (a *app) compactOnce(ctx context.Context, c *compactor.Compactor, round *compactor.Report) error {
	report, err := c.RunOnce(ctx)
	a.con.done()
	if err != nil {
		if round.Segments > 0 || len(round.Pruned) > 0 {
			a.con.note("before it ended: %s", strings.TrimSpace(compacted(*round)))
		}
		return err
	}
	if a.json {
		return a.print(report)
	}
	return a.write([]byte(compacted(report)))
}

func compacted(r compactor.Report) string {
	s := fmt.Sprintf("folded %d objects, %d records, %s, into %d segments; merged %d; the floor is at %v\n",
		r.Folded, r.Records, size(int(r.Bytes)), r.Segments, r.Merged, r.Floor.Position)
	if r.Truncated > 0 {
		s += fmt.Sprintf("gave up the records before %d\n", r.Truncated)
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Pruned)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", r.Pruned[kind], kind))
	}
	if len(kinds) == 0 {
		return s + "pruned nothing\n"
	}
	return s + "pruned " + strings.Join(kinds, ", ") + "\n"
}
