package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/leader"
)

func (a *app) compactCmd() *cobra.Command {
	var watch bool
	var o compactor.Options
	var keep leader.PruneOptions
	var segment, retain bytesValue
	var dry bool
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
	fl := c.Flags()
	fl.BoolVar(&watch, "watch", false, "go on, whenever there is enough to do")
	fl.DurationVar(&o.Interval, "interval", 10*time.Second, "with -watch: how often to look")
	fl.IntVar(&o.MinObjects, "min-objects", 64, "with -watch: how many objects must wait")
	fl.DurationVar(&o.MaxAge, "max-age", time.Minute, "with -watch: or how long one must have waited")
	fl.Var(&segment, "segment-bytes", "how large a segment may grow (default 256 MiB)")
	fl.IntVar(&keep.Keep, "keep-locks", 1000, "how many locks of past leaders to keep at most")
	fl.DurationVar(&keep.For, "keep-locks-for", 90*24*time.Hour, "and for how long")
	fl.BoolVar(&dry, "dry-run", false, "change nothing; print what would be done")
	fl.DurationVar(&o.Retain.Age, "retain-age", 0, "give up records that are older (default never)")
	fl.Uint64Var(&o.Retain.Records, "retain-records", 0, "give up what is older than the newest so many records (default never)")
	fl.Var(&retain, "retain-bytes", "give up what is older than the newest so many bytes (default never)")
	fl.IntVar(&o.KeepVersions.Count, "keep-versions", 0, "how many older versions of the manifest to keep, to go back to")
	fl.DurationVar(&o.KeepVersions.Age, "keep-versions-for", 0, "or for how long to keep them")
	election := a.election(c)
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if watch && dry {
			return usage("-watch and -dry-run exclude each other")
		}
		for _, name := range []string{"interval", "min-objects", "max-age"} {
			if !watch && cmd.Flags().Changed(name) {
				return usage("-%s goes with -watch, which is not given", name)
			}
		}
		lo := election()
		lo.Hooks.Leader = func(r leader.Record) {
			if r.Leads() && r.Holder != lo.Identity {
				a.con.note("waiting for %s, the compactor of epoch %d; if it is gone, for %v at most", r.Holder, r.Epoch, r.Validity)
			}
		}
		lo.Hooks.Elected = func(e leader.Election) {
			if watch {
				a.con.note("the compactor of epoch %d; it looks every %v, and folds when %d objects wait or one has waited for %v", e.Epoch, o.Interval, o.MinObjects, o.MaxAge)
			}
		}
		st, err := a.logStore(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		e, err := leader.New(st, "compactor-lock", &lo)
		if err != nil {
			return &kindError{errUsage, err}
		}
		lo.Identity = e.Identity()
		o.Leader, o.KeepLocks, o.SegmentBytes, o.Retain.Bytes, o.Logger = &lo, &keep, int64(segment), int64(retain), a.log.Named("compactor")
		var round compactor.Report
		o.Progress = func(r compactor.Report) {
			round = r
			a.con.progress("compacting", int64(r.Bytes), 0, true)
		}
		if watch && !a.verbose {
			o.Logger = a.con.logger()
		}
		comp, err := compactor.New(st, &o)
		if err != nil {
			return &kindError{errUsage, err}
		}
		if watch {
			return comp.Run(cmd.Context())
		}
		if dry {
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

func (a *app) truncateCmd() *cobra.Command {
	var before uint64
	var wait time.Duration
	c := &cobra.Command{
		Use:   "truncate -before N URL",
		Short: "give up the records before an offset",
		Long: `Truncate gives up the records before number N, for good: nobody can read them from
then on. Only what is compacted can be given up. The next compactions free the space,
after the grace period; where compact -watch runs, it holds the compactor's lock, and
truncate waits for it, for as long as -wait says.`,
		Args: wantArgs(1, 1),
	}
	c.Flags().Uint64Var(&before, "before", 0, "offset of the first record that stays")
	c.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait for another compactor to end")
	election := a.election(c)
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("before") {
			return usage("-before is not given: before which record?")
		}
		st, err := a.logStore(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		lo := election()
		lo.Hooks.Leader = func(r leader.Record) {
			if r.Leads() && r.Holder != lo.Identity {
				a.con.note("waiting for %s, the compactor of epoch %d, for %v at most", r.Holder, r.Epoch, wait)
			}
		}
		e, err := leader.New(st, "compactor-lock", &lo)
		if err != nil {
			return &kindError{errUsage, err}
		}
		lo.Identity = e.Identity()
		comp, err := compactor.New(st, &compactor.Options{Leader: &lo, Logger: a.log.Named("compactor")})
		if err != nil {
			return &kindError{errUsage, err}
		}
		tooLong := fmt.Errorf("another compactor was at work for %v; stop it, have it do this (compact -retain-records), or -wait longer", wait)
		ctx, cancel := context.WithTimeoutCause(cmd.Context(), wait, tooLong)
		defer cancel()
		if err := comp.RunTruncate(ctx, before); err != nil {
			if cmd.Context().Err() == nil && ctx.Err() != nil {
				return tooLong
			}
			return err
		}
		// More may have been given up before.
		log, err := a.manifests(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		m, err := log.Newest(cmd.Context())
		if err != nil {
			return err
		}
		if a.json {
			return a.print(map[string]uint64{"first": m.First()})
		}
		return a.write(fmt.Appendf(nil, "the log begins at record %d\n", m.First()))
	}
	return c
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
