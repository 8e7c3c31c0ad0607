package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// compaction is what the flags of compact say.
type compaction struct {
	watch, dry, group bool
	atOnce            int
	o                 compactor.Options
	keep              leader.PruneOptions
	gauges            *gauges
}

func compactFlags(fl *pflag.FlagSet) *compaction {
	f := &compaction{}
	fl.BoolVar(&f.watch, "watch", false, "go on until stopped")
	spanVar(fl, &f.o.Interval, "interval", "10s", positive, "with --watch: how often to check for work")
	spanVar(fl, &f.o.IdleInterval, "idle-interval", "", positive, "with --watch: the same for an idle log (default --interval)")
	countVar(fl, &f.o.MinObjects, "min-objects", 64, "with --watch: fold when so many objects wait")
	spanVar(fl, &f.o.MaxAge, "max-age", "1m", positive, "with --watch: or when one has waited for so long")
	bytesVar(fl, &f.o.SegmentBytes, "segment-bytes", "how large a segment may grow (default 256 MiB)")
	countVar(fl, &f.o.Levels, "levels", 3, "how often merging writes a record again, at most")
	countVar(fl, &f.o.FanIn, "fan-in", 64, "the size ratio between the levels of segments")
	fl.BoolVar(&f.o.NoCompress, "no-compress", false, "store segments without compression")
	countVar(fl, &f.o.Concurrency, "concurrency", 16, "how many log objects to read at once")
	fl.IntVar(&f.o.RequestsPerSecond, "requests-per-second", 0, "most requests on average (default no bound)")
	bytesVar(fl, &f.o.BytesPerSecond, "bytes-per-second", "most bytes read and written on average (default no bound)")
	countVar(fl, &f.keep.Keep, "keep-locks", 1000, "how many locks of past leaders and compactors to keep")
	spanVar(fl, &f.keep.For, "keep-locks-for", "90d", positive, "and for how long, at most")
	fl.BoolVar(&f.group, "group", false, "with --watch: compact the logs of a group's partitions")
	countVar(fl, &f.atOnce, "logs", 4, "with --group: how many logs to compact at once")
	fl.BoolVar(&f.dry, "dry-run", false, "change nothing; print what would be done")
	spanVar(fl, &f.o.Retain.Age, "retain-age", "", 0, "give up older records, such as 7d (default never)")
	fl.Uint64Var(&f.o.Retain.Records, "retain-records", 0, "give up all but about so many records (default never)")
	bytesVar(fl, &f.o.Retain.Bytes, "retain-bytes", "give up all but about so many bytes of records (default never)")
	fl.IntVar(&f.o.KeepVersions, "keep-versions", 0, "how many older versions of the manifest to keep, for pins")
	spanVar(fl, &f.o.KeepVersionsFor, "keep-versions-for", "", 0, "keep the versions that were the newest within so long")
	return f
}

// options returns the options of a compactor that is elected as lo says.
func (f *compaction) options(lo *leader.Options) *compactor.Options {
	o := f.o
	lo.Prune = f.keep
	o.Leader = lo
	return &o
}

func (a *app) compactCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "compact [--watch [--group] | --dry-run] [--json] URL",
		Short: "fold the log into segments, and delete what is not needed",
		Long: `Compact folds the log into segments, and merges small segments. It deletes what is not
needed any more, and is older than the log's grace period. Then it prints what it did,
and ends. With --watch it goes on until it is stopped, and waits for a log that is not
there yet. With --json as well it prints a line for each round that did something. With
--dry-run it changes nothing, and prints what it would do. It never disturbs writers or readers.

The --retain flags bound the history: records beyond any bound are given up, whole
segments at a time and the oldest first, and deleted after the grace period.

It needs the rights of a compactor; --dry-run needs the right to read. It waits until
this process is the compactor: of several, one works and the others wait.

With --group the URL is that of a group of workers, and each partition has a log. All
processes that run it share these logs, and --requests-per-second is for all logs of
this process together. The defaults are then --interval 1m and --idle-interval 15m.
To compact one partition by hand, stop them, and give the URL of
its log, which ends in /partition/ and six digits.`,
		Example: "fencepost compact --watch --retain-age 30d s3://bucket/orders",
		Args:    wantArgs(1, 1),
	}
	f := compactFlags(c.Flags())
	files := a.fileStoreFlag(c)
	election := a.election(c)
	f.gauges = a.listenFlag(c)
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if f.group && a.json {
			return usage("--group and --json exclude each other: the rounds of many logs would be mixed")
		}
		if f.watch && f.dry {
			return usage("--watch and --dry-run exclude each other")
		}
		changed := cmd.Flags().Changed
		for _, name := range []string{"interval", "idle-interval", "min-objects", "max-age", "group", "listen", "prices"} {
			if !f.watch && changed(name) {
				return usage("--%s goes with --watch, which is not given", name)
			}
		}
		if !f.group && changed("logs") {
			return usage("--logs goes with --group, which is not given")
		}
		lo := election()
		o := f.options(&lo)
		var err error
		if o.Files, err = files.open(cmd.Context(), false); err != nil {
			return err
		}
		if f.group {
			for _, name := range []string{"keep-locks", "keep-locks-for"} {
				if changed(name) {
					return usage("--%s does not go with --group: the logs of a group have no locks", name)
				}
			}
			return a.compactGroup(cmd.Context(), args[0], f, o.Files, changed, lo.Validity)
		}
		return a.compact(cmd.Context(), args[0], f, o)
	}
	return c
}

func (a *app) compact(ctx context.Context, url string, f *compaction, o *compactor.Options) error {
	a.awaitCompactor(o.Leader)
	o.Leader.Hooks.Elected = func(e leader.Election) {
		if f.watch {
			a.con.note("this is the compactor of epoch %d; it checks every %v, and folds when %d objects wait or one has waited for %v", e.Epoch, o.Interval, o.MinObjects, o.MaxAge)
		}
	}
	stop, err := f.gauges.start(a)
	if err != nil {
		return err
	}
	defer stop()
	o.Leader.Hooks = f.gauges.leader("compactor", o.Leader.Hooks)
	if f.watch {
		if err := a.awaitLog(ctx, url, f.gauges); err != nil {
			return err
		}
	}
	st, err := a.logStore(ctx, url)
	if err != nil {
		return err
	}
	o.Logger = a.log
	if f.watch && !a.verbose {
		o.Logger = a.con.logger()
	}
	if f.watch {
		st = unwatched(st)
	}
	st = f.gauges.store(st)
	var round compactor.Report
	o.Hooks.Progress = func(r compactor.Report) {
		round = r
		if !worked(r) {
			return
		}
		if !f.watch || a.con.bars { // a log line tells of each pass
			a.con.progress("compacting", int64(r.Bytes), 0, true)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.Hooks.Passed = func(e compactor.Pass) {
		if f.watch && a.json && worked(e.Report) {
			if err := a.printRound(e.Report); err != nil {
				cancel(unread("compaction", err))
			}
		}
	}
	o.Hooks = f.gauges.compactor(o.Hooks)
	c, err := compactor.New(st, o)
	switch {
	case err != nil:
		return &kindError{errUsage, err}
	case f.watch:
		return cmp.Or(c.Run(ctx), context.Cause(ctx))
	case f.dry:
		return a.plan(ctx, c)
	}
	return a.compactOnce(ctx, c, &round)
}

// compactGroup compacts the logs of a group until it is stopped.
func (a *app) compactGroup(ctx context.Context, url string, f *compaction, files store.Store, changed func(flag string) bool, validity time.Duration) error {
	stop, err := f.gauges.start(a)
	if err != nil {
		return err
	}
	defer stop()
	log := a.log
	if !a.verbose {
		log = a.con.logger()
	}
	o := f.o
	o.Files = files
	o.RequestsPerSecond, o.BytesPerSecond = 0, 0 // of one log
	o.Hooks = f.gauges.compactors()
	if !changed("interval") {
		o.Interval = 0
	}
	opts := &group.CompactOptions{
		Group: &group.Options{
			Identity: leader.DefaultIdentity(), Probe: a.probing(url),
			Hooks: f.gauges.group(group.Hooks{Assigned: func(e group.Assigned) {
				a.con.note("this process compacts %d of %s; processes that share them: %d", e.Owned, nPartitions(e.Partitions), e.Members)
			}}),
		},
		Compactor: &o, RequestsPerSecond: f.o.RequestsPerSecond, BytesPerSecond: f.o.BytesPerSecond, Concurrency: f.atOnce, Logger: log,
	}
	if changed("validity") {
		opts.Group.Validity = validity
	}
	if err := opts.Validate(); err != nil {
		return &kindError{errUsage, err}
	}
	if err := a.awaitGroup(ctx, url, f.gauges); err != nil {
		return err
	}
	st, err := a.store(ctx, url, false)
	if err != nil {
		return err
	}
	return cmp.Or(group.Compact(ctx, f.gauges.store(st), opts), context.Cause(ctx))
}

// worked tells whether a pass found something to do.
func worked(r compactor.Report) bool {
	return r.Folded > 0 || r.Merged > 0 || r.Truncated > 0 || len(r.Pruned) > 0
}

// awaitCompactor says for which compactor this process waits.
func (a *app) awaitCompactor(o *leader.Options) {
	o.Hooks.Leader = func(r leader.Record) {
		if r.Leads() && r.Holder != o.Identity {
			a.con.note("waiting for %s, the compactor of epoch %d; if it has crashed, for %v at most", r.Holder, r.Epoch, r.Validity)
		}
	}
}

func (a *app) plan(ctx context.Context, c *compactor.Compactor) error {
	plan, err := c.Plan(ctx)
	if err != nil {
		return err
	}
	return a.show(planDoc{plan, pinDocs(plan.Pins)}, []byte(planText(plan)))
}

func (a *app) compactOnce(ctx context.Context, c *compactor.Compactor, round *compactor.Report) error {
	report, err := c.Once(ctx)
	a.con.done()
	if err != nil {
		if round.Segments > 0 || len(round.Pruned) > 0 {
			a.con.note("before it ended: %s", strings.TrimSpace(compacted(*round)))
		}
		return err
	}
	return a.show(report, []byte(compacted(report)))
}

func compacted(r compactor.Report) string {
	s := fmt.Sprintf("folded %s, %s, %s, into %s; merged %d; the floor is at %v\n",
		plural(r.Folded, "object"), plural(r.Records, "record"), size(r.Bytes), plural(r.Segments, "segment"), r.Merged, r.Floor)
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
