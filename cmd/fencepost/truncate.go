package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// truncating is what the flags of truncate say.
type truncating struct {
	before     uint64
	beforeTime time.Time
	wait       time.Duration
	dry        bool
	election   func() leader.Options
}

func (a *app) truncateCmd() *cobra.Command {
	var t truncating
	c := &cobra.Command{
		Use:   "truncate --before N | --before-time TIME [--dry-run] [--json] URL",
		Short: "give up the records before an offset or a time",
		Long: `Truncate gives up the records before number N, or those before a time, for good:
nobody can read them from then on. Only compacted records can be given up. Later
compactions delete them, after the grace period. By time it gives up whole blocks of
about 1 MiB: those with no later record. With --dry-run it changes nothing, and prints
what it would give up.

It needs the rights of a compactor, and waits until this process is the compactor;
--dry-run needs the right to read, and waits for nobody.
A running compact --watch holds that place: stop it, or have it give up records with
its --retain flags.

` + times,
		Example: "fencepost truncate --before-time 30d s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return t.run(cmd, a, args[0]) },
	}
	c.Flags().Uint64Var(&t.before, "before", 0, "offset of the first record that stays")
	timeVar(c.Flags(), &t.beforeTime, "before-time", "time of the first record that stays, instead")
	spanVar(c.Flags(), &t.wait, "wait", "1m", positive, "how long to wait for another compactor to end")
	c.Flags().BoolVar(&t.dry, "dry-run", false, "change nothing; print what would be given up")
	t.election = a.election(c)
	a.jsonFlag(c)
	return c
}

func (t *truncating) run(cmd *cobra.Command, a *app, url string) error {
	fl, ctx := cmd.Flags(), cmd.Context()
	switch {
	case fl.Changed("before") && fl.Changed("before-time"):
		return usage("--before and --before-time both say where the log is to begin")
	case !fl.Changed("before") && !fl.Changed("before-time"):
		return usage("--before is not given, nor --before-time: before which record?")
	}
	st, err := a.logStore(ctx, url)
	if err != nil {
		return err
	}
	if fl.Changed("before-time") {
		r, err := reader.Open(ctx, st, nil)
		if err != nil {
			return err
		}
		if t.before, err = notBefore(ctx, r, t.beforeTime); err != nil {
			return err
		}
	}
	if t.dry {
		return t.plan(ctx, a, st)
	}
	lo := t.election()
	a.awaitCompactor(&lo)
	tooLong := fmt.Errorf("another compactor was at work for %v; stop it, have it do this (compact --retain-records), or --wait longer", t.wait)
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(t.wait, func() { cancel(tooLong) })
	defer patience.Stop()
	var elected atomic.Bool
	lo.Hooks.Elected = func(leader.Election) { elected.Store(true); patience.Stop() } // from then on it works
	comp, err := compactor.New(st, &compactor.Options{Leader: &lo, Logger: a.log})
	if err != nil {
		return &kindError{errUsage, err}
	}
	if err := comp.Truncate(waiting, t.before); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil && !elected.Load() {
			return tooLong
		}
		return err
	}
	return a.begins(ctx, st)
}

// cutDoc is what truncate --dry-run --json prints.
type cutDoc struct {
	First   uint64 `json:"first"`
	Before  uint64 `json:"before"`
	Records uint64 `json:"records"`
}

// plan prints what would be given up.
func (t *truncating) plan(ctx context.Context, a *app, st store.Store) error {
	m, err := newest(ctx, st)
	if err != nil {
		return err
	}
	if t.before > m.FloorOffset {
		return fmt.Errorf("records before %d cannot be given up: only those before %d are compacted; compact first", t.before, m.FloorOffset)
	}
	d := cutDoc{First: m.First, Before: max(t.before, m.First)}
	d.Records = d.Before - d.First
	if a.json {
		return a.print(d)
	}
	if d.Records == 0 {
		return a.write(fmt.Appendf(nil, "would give up nothing: the log begins at record %d\n", d.First))
	}
	return a.write(fmt.Appendf(nil, "would give up %s; the log would begin at record %d\n", recordRange(d.First, d.Before), d.Before))
}

// newest reads the newest manifest.
func newest(ctx context.Context, st store.Store) (*inspect.State, error) {
	log, err := inspect.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	return log.Newest(ctx)
}

// begins prints where the log begins: after --before, if more was given up already.
func (a *app) begins(ctx context.Context, st store.Store) error {
	m, err := newest(ctx, st)
	if err != nil {
		return err
	}
	return a.show(map[string]uint64{"first": m.First}, fmt.Appendf(nil, "the log begins at record %d\n", m.First))
}

// notBefore returns the offset of the first record that is not before a time; 0 if all
// records are later.
//
// A time beyond tomorrow is a slip: taken as it is, it would mean the end of the log as it
// happens to be now, and give up everything. Clocks of writers may differ by a day.
func notBefore(ctx context.Context, r *reader.Reader, t time.Time) (uint64, error) {
	if t.After(time.Now().Add(24 * time.Hour)) {
		return 0, usage("%s lies in the future; the records that come until then are not there yet", t.UTC().Format(time.RFC3339))
	}
	// The first record that is later than the instant before t.
	offset, err := r.After(ctx, t.Add(-time.Microsecond))
	if errors.Is(err, reader.ErrGone) {
		return 0, nil
	}
	return offset, err
}
