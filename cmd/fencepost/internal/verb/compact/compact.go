// Package compact is the verb compact.
package compact

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
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
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
}

func compactFlags(fl *pflag.FlagSet) *compaction {
	f := &compaction{}
	fl.BoolVar(&f.watch, "watch", false, "go on until stopped")
	kit.SpanVar(fl, &f.o.Interval, "interval", "10s", kit.Positive, "with --watch: how often to check for work")
	kit.SpanVar(fl, &f.o.IdleInterval, "idle-interval", "", kit.Positive, "with --watch: the same for an idle log (default --interval)")
	kit.CountVar(fl, &f.o.MinObjects, "min-objects", 64, "with --watch: fold when so many objects wait")
	kit.SpanVar(fl, &f.o.MaxAge, "max-age", "1m", kit.Positive, "with --watch: or when one has waited for so long")
	kit.BytesVar(fl, &f.o.SegmentBytes, "segment-bytes", "how large a segment may grow (default 256 MiB)")
	kit.CountVar(fl, &f.o.Concurrency, "concurrency", 16, "how many log objects to read at once")
	fl.IntVar(&f.o.RequestsPerSecond, "requests-per-second", 0, "most requests on average (default no bound)")
	kit.BytesVar(fl, &f.o.BytesPerSecond, "bytes-per-second", "most bytes read and written on average (default no bound)")
	kit.CountVar(fl, &f.keep.Keep, "keep-locks", 1000, "how many locks of past leaders and compactors to keep")
	kit.SpanVar(fl, &f.keep.For, "keep-locks-for", "90d", kit.Positive, "and for how long, at most")
	fl.BoolVar(&f.group, "group", false, "with --watch: compact the logs of a group's partitions")
	kit.CountVar(fl, &f.atOnce, "logs", 4, "with --group: how many logs to compact at once")
	fl.BoolVar(&f.dry, "dry-run", false, "change nothing; print what would be done")
	kit.SpanVar(fl, &f.o.Retain.Age, "retain-age", "", 0, "give up older records, such as 7d (default never)")
	fl.Uint64Var(&f.o.Retain.Records, "retain-records", 0, "give up all but about so many records (default never)")
	kit.BytesVar(fl, &f.o.Retain.Bytes, "retain-bytes", "give up all but about so many bytes of records (default never)")
	fl.IntVar(&f.o.KeepVersions, "keep-versions", 0, "how many older versions of the manifest to keep, for pins")
	kit.SpanVar(fl, &f.o.KeepVersionsFor, "keep-versions-for", "", 0, "keep the versions that were the newest within so long")
	return f
}

// options returns the options of a compactor that is elected as lo says.
func (f *compaction) options(lo *leader.Options) *compactor.Options {
	o := f.o
	lo.Prune = f.keep
	o.Leader = lo
	return &o
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
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
		Args:    kit.WantArgs(1, 1),
	}
	f := compactFlags(c.Flags())
	k.FilesFlag(c)
	election := k.Election(c)
	k.ListenFlag(c)
	k.JSONFlag(c)
	kit.Needs(c, "watch", "interval", "idle-interval", "min-objects", "max-age", "group", "listen", "prices")
	kit.Needs(c, "group", "logs")
	kit.Excludes(c, "watch", "dry-run")
	kit.Excludes(c, "group", "json", "keep-locks", "keep-locks-for") // rounds of many logs would be mixed; those of a group have no locks
	c.RunE = func(cmd *cobra.Command, args []string) error {
		lo := election()
		o := f.options(&lo)
		var err error
		if o.Files, err = k.Files(cmd.Context(), false); err != nil {
			return err
		}
		if f.group {
			return runGroup(cmd.Context(), k, args[0], f, o.Files, cmd.Flags().Changed, lo.Validity)
		}
		return compact(cmd.Context(), k, args[0], f, o)
	}
	return c
}

func compact(ctx context.Context, k *kit.Kit, url string, f *compaction, o *compactor.Options) error {
	k.AwaitCompactor(o.Leader)
	o.Leader.Hooks.Elected = func(e leader.Election) {
		if f.watch {
			k.Console.Note("this is the compactor of epoch %d; it checks every %v, and folds when %d objects wait or one has waited for %v", e.Epoch, o.Interval, o.MinObjects, o.MaxAge)
		}
	}
	o.Leader.Hooks = k.Gauges.Leader("compactor", o.Leader.Hooks)
	if f.watch {
		if err := k.AwaitLog(ctx, url); err != nil {
			return err
		}
	}
	st, err := k.LogStore(ctx, url)
	if err != nil {
		return err
	}
	o.Logger = k.Log
	if f.watch && !k.Verbose {
		o.Logger = k.Console.Logger(zap.InfoLevel)
	}
	var round compactor.Report
	o.Hooks.Progress = func(r compactor.Report) {
		round = r
		if !worked(r) {
			return
		}
		if !f.watch || k.Console.Bars { // a log line tells of each pass
			k.Console.Progress("compacting", r.Bytes, 0, true)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.Hooks.Passed = func(e compactor.Pass) {
		if f.watch && k.JSON && worked(e.Report) {
			if err := k.PrintRound(e.Report); err != nil {
				cancel(kit.Unread("compaction", err))
			}
		}
	}
	o.Hooks = k.Gauges.Compactor(o.Hooks)
	c, err := compactor.New(st, o)
	switch {
	case err != nil:
		return kit.Usage("%w", err)
	case f.watch:
		return cmp.Or(c.Run(ctx), context.Cause(ctx))
	case f.dry:
		return plan(ctx, k, c)
	}
	return once(ctx, k, c, &round)
}

// runGroup compacts the logs of a group until it is stopped.
func runGroup(ctx context.Context, k *kit.Kit, url string, f *compaction, files store.Store, changed func(flag string) bool, validity time.Duration) error {
	log := k.Log
	if !k.Verbose {
		log = k.Console.Logger(zap.InfoLevel)
	}
	o := f.o
	o.Files = files
	o.RequestsPerSecond, o.BytesPerSecond = 0, 0 // of one log
	o.Hooks = k.Gauges.Compactors()
	if !changed("interval") {
		o.Interval = 0
	}
	opts := &group.CompactOptions{
		Group: &group.Options{
			Identity: leader.DefaultIdentity(), Probe: k.Probing(url),
			Hooks: k.Gauges.Group(group.Hooks{Assigned: func(e group.Assigned) {
				k.Console.Note("this process compacts %d of %s; processes that share them: %d", e.Owned, kit.Plural(e.Partitions, "partition"), e.Members)
			}}),
		},
		Compactor: &o, RequestsPerSecond: f.o.RequestsPerSecond, BytesPerSecond: f.o.BytesPerSecond, Concurrency: f.atOnce, Logger: log,
	}
	if changed("validity") {
		opts.Group.Validity = validity
	}
	if err := opts.Validate(); err != nil {
		return kit.Usage("%w", err)
	}
	if err := k.AwaitGroup(ctx, url); err != nil {
		return err
	}
	st, err := k.Store(ctx, url, false)
	if err != nil {
		return err
	}
	return cmp.Or(group.Compact(ctx, st, opts), context.Cause(ctx))
}

// worked tells whether a pass found something to do.
func worked(r compactor.Report) bool {
	return r.Folded > 0 || r.Merged > 0 || r.Truncated > 0 || len(r.Pruned) > 0
}

func plan(ctx context.Context, k *kit.Kit, c *compactor.Compactor) error {
	plan, err := c.Plan(ctx)
	if err != nil {
		return err
	}
	return k.Show(planDoc{plan, survey.Pins(plan.Pins)}, []byte(planText(plan)))
}

func once(ctx context.Context, k *kit.Kit, c *compactor.Compactor, round *compactor.Report) error {
	report, err := c.Once(ctx)
	k.Console.Done()
	if err != nil {
		if round.Segments > 0 || len(round.Pruned) > 0 {
			k.Console.Note("before it ended: %s", strings.TrimSpace(compacted(*round)))
		}
		return err
	}
	return k.Show(report, []byte(compacted(report)))
}

func compacted(r compactor.Report) string {
	s := fmt.Sprintf("folded %s, %s, %s, into %s; merged %d; the floor is at %v\n",
		kit.Plural(r.Folded, "object"), kit.Plural(r.Records, "record"), kit.Size(r.Bytes), kit.Plural(r.Segments, "segment"), r.Merged, r.Floor)
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
