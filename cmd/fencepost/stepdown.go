package main

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
)

func (a *app) stepDownCmd() *cobra.Command {
	var o leader.StepDownOptions
	var compactor bool
	c := &cobra.Command{
		Use:   "step-down URL",
		Short: "depose the leader",
		Long: `Step-down ends whoever's leadership it is, by swapping the newest lock to expired.
The deposed leader hears of it at its next heartbeat; its records that were not
acknowledged are those of any leader that loses its lock. A successor waits until
it has stopped, or its validity has passed, unless -immediate says otherwise;
writers are safe either way.`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.logStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			prefix := fencepost.LockPrefix
			if compactor {
				prefix = layout.CompactorLockPrefix
			}
			e, err := leader.New(st, prefix, &leader.Options{Logger: a.log.Named("leader")})
			if err != nil {
				return err
			}
			rec, err := e.StepDown(cmd.Context(), &o)
			if errors.Is(err, leader.ErrNoLeader) {
				a.con.note("nobody leads")
				return nil
			}
			if err != nil {
				return err
			}
			return a.write(fmt.Appendf(nil, "deposed %s of epoch %d\n", rec.Holder, rec.Epoch))
		},
	}
	fl := c.Flags()
	fl.StringVar(&o.Reason, "reason", "", "why, for people; kept in the lock")
	fl.BoolVar(&o.Immediate, "immediate", false, "let a successor begin at once")
	fl.BoolVar(&o.Force, "force", false, "also replace a newest lock that cannot be read")
	fl.BoolVar(&compactor, "compactor", false, "depose the compactor, not the leader")
	return c
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version of this program",
		Args:  wantArgs(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v, goVersion, revision := "(devel)", "", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = info.GoVersion
				if info.Main.Version != "" {
					v = info.Main.Version
				}
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						revision = " " + s.Value
					}
				}
			}
			return a.write(fmt.Appendf(nil, "fencepost %s%s %s\n", v, revision, goVersion))
		},
	}
}
