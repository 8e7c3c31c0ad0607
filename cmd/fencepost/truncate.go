package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

func (a *app) truncateCmd() *cobra.Command {
	var before uint64
	var beforeTime string
	var wait time.Duration
	c := &cobra.Command{
		Use:   "truncate -before N | -before-time TIME URL",
		Short: "give up the records before an offset or a time",
		Long: `Truncate gives up the records before number N, or those that are earlier than a
time, for good: nobody can read them from then on. Only what is compacted can be
given up. The next compactions free the space, after the grace period; where
compact -watch runs, it holds the compactor's lock, and truncate waits for it, for
as long as -wait says.

By time it gives up blocks of some 1 MiB, those of whose records all are earlier.

` + times,
		Args: wantArgs(1, 1),
	}
	c.Flags().Uint64Var(&before, "before", 0, "offset of the first record that stays")
	c.Flags().StringVar(&beforeTime, "before-time", "", "time of the first record that stays, instead")
	spanVar(c.Flags(), &wait, "wait", time.Minute, positive, "how long to wait for another compactor to end")
	election := a.election(c)
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		fl := cmd.Flags()
		switch {
		case fl.Changed("before") && fl.Changed("before-time"):
			return usage("-before and -before-time both say where the log is to begin")
		case !fl.Changed("before") && !fl.Changed("before-time"):
			return usage("-before is not given, nor -before-time: before which record?")
		}
		var first time.Time
		if fl.Changed("before-time") {
			var err error
			if first, err = moment("before-time", beforeTime); err != nil {
				return err
			}
		}
		st, err := a.logStore(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if fl.Changed("before-time") {
			if before, err = a.notBefore(cmd.Context(), st, first); err != nil {
				return err
			}
		}
		lo := election()
		lo.Hooks.Leader = func(r leader.Record) {
			if r.Leads() && r.Holder != lo.Identity {
				a.con.note("waiting for %s, the compactor of epoch %d, for %v at most", r.Holder, r.Epoch, wait)
			}
		}
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

// notBefore is the offset of the first record that is not earlier than a time; 0 if all
// that there is is later.
func (a *app) notBefore(ctx context.Context, st store.Store, t time.Time) (uint64, error) {
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		return 0, err
	}
	// The first that is later than the instant before.
	offset, err := r.After(ctx, t.Add(-time.Microsecond))
	if errors.Is(err, reader.ErrGone) {
		return 0, nil
	}
	return offset, err
}
