// Package truncate is the verb truncate.
package truncate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
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

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
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

` + kit.Times,
		Example: "fencepost truncate --before-time 30d s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE:    func(cmd *cobra.Command, args []string) error { return t.run(cmd, k, args[0]) },
	}
	c.Flags().Uint64Var(&t.before, "before", 0, "offset of the first record that stays")
	kit.TimeVar(c.Flags(), &t.beforeTime, "before-time", "time of the first record that stays, instead")
	kit.SpanVar(c.Flags(), &t.wait, "wait", "1m", kit.Positive, "how long to wait for another compactor to end")
	c.Flags().BoolVar(&t.dry, "dry-run", false, "change nothing; print what would be given up")
	t.election = k.Election(c)
	k.JSONFlag(c)
	kit.Excludes(c, "before", "before-time")
	return c
}

func (t *truncating) run(cmd *cobra.Command, k *kit.Kit, url string) error {
	fl, ctx := cmd.Flags(), cmd.Context()
	if !fl.Changed("before") && !fl.Changed("before-time") {
		return kit.Usage("--before is not given, nor --before-time: before which record?")
	}
	st, err := k.LogStore(ctx, url)
	if err != nil {
		return err
	}
	if fl.Changed("before-time") {
		r, err := reader.Open(ctx, st, nil)
		if err != nil {
			return err
		}
		if t.before, err = kit.NotBefore(ctx, r, t.beforeTime); err != nil {
			return err
		}
	}
	if t.dry {
		return t.plan(ctx, k, st)
	}
	lo := t.election()
	k.AwaitCompactor(&lo)
	tooLong := fmt.Errorf("another compactor was at work for %v; stop it, have it do this (compact --retain-records), or --wait longer", t.wait)
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(t.wait, func() { cancel(tooLong) })
	defer patience.Stop()
	var elected atomic.Bool
	lo.Hooks.Elected = func(leader.Election) { elected.Store(true); patience.Stop() } // from then on it works
	comp, err := compactor.New(st, &compactor.Options{Leader: &lo, Logger: k.Log})
	if err != nil {
		return kit.Usage("%w", err)
	}
	if err := comp.Truncate(waiting, t.before); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil && !elected.Load() {
			return tooLong
		}
		return err
	}
	return begins(ctx, k, st)
}

// CutDoc is what truncate --dry-run --json prints.
type CutDoc struct {
	First   uint64 `json:"first"`
	Before  uint64 `json:"before"`
	Records uint64 `json:"records"`
}

// plan prints what would be given up.
func (t *truncating) plan(ctx context.Context, k *kit.Kit, st store.Store) error {
	m, err := newest(ctx, st)
	if err != nil {
		return err
	}
	if t.before > m.FloorOffset {
		return fmt.Errorf("records before %d cannot be given up: only those before %d are compacted; compact first", t.before, m.FloorOffset)
	}
	d := CutDoc{First: m.First, Before: max(t.before, m.First)}
	d.Records = d.Before - d.First
	text := fmt.Appendf(nil, "would give up nothing: the log begins at record %d\n", d.First)
	if d.Records > 0 {
		text = fmt.Appendf(nil, "would give up %s; the log would begin at record %d\n", kit.RecordRange(d.First, d.Before), d.Before)
	}
	return k.Show(d, text)
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
func begins(ctx context.Context, k *kit.Kit, st store.Store) error {
	m, err := newest(ctx, st)
	if err != nil {
		return err
	}
	return k.Show(map[string]uint64{"first": m.First}, fmt.Appendf(nil, "the log begins at record %d\n", m.First))
}
