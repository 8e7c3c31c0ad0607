package main

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

// deposedDoc is what step-down --json prints.
type deposedDoc struct {
	Deposed bool        `json:"deposed"`
	Holder  string      `json:"holder,omitempty"`
	Epoch   fence.Epoch `json:"epoch,omitempty"`
	Since   time.Time   `json:"since,omitzero"`
}

func (a *app) stepDownCmd() *cobra.Command {
	var o leader.StepDownOptions
	var compactor bool
	var validity time.Duration
	c := &cobra.Command{
		Use:   "step-down [--json] URL",
		Short: "depose the leader",
		Long: `Step-down deposes the leader: it swaps the newest lock to expired. The deposed leader
learns that at its next heartbeat, and stops. Records that it has sent, and that are
not acknowledged, may be in the log or not, as after a crash. A successor waits until
the leader has stopped or its validity has passed; with --immediate it does not wait.
The log is safe in both cases. If another one leads meanwhile, that one is not deposed.

It needs the rights of a candidate, or of a compactor with --compactor.`,
		Example: "fencepost step-down --reason 'moving to another host' s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, _, err := a.lockStore(cmd.Context(), args[0], compactor)
			if err == nil {
				err = writable(cmd.Context(), st)
			}
			if err != nil {
				return err
			}
			e, err := a.elector(st, compactor, validity)
			if err != nil {
				return err
			}
			rec, err := e.StepDown(cmd.Context(), &o)
			if errors.Is(err, leader.ErrNoLeader) {
				if a.json {
					return a.print(deposedDoc{})
				}
				a.con.note("nobody leads")
				return nil
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.print(deposedDoc{Deposed: true, Holder: rec.Holder, Epoch: rec.Epoch, Since: rec.Acquired})
			}
			return a.write(fmt.Appendf(nil, "deposed %s of epoch %d\n", rec.Holder, rec.Epoch))
		},
	}
	fl := c.Flags()
	fl.StringVar(&o.Reason, "reason", "", "why, for people; the lock says it")
	fl.BoolVar(&o.Immediate, "immediate", false, "let a successor begin at once")
	fl.BoolVar(&o.Force, "force", false, "replace the newest lock even if it cannot be read")
	spanVar(fl, &validity, "validity", "15s", positive, "that of the leader, if its lock cannot be read")
	fl.BoolVar(&compactor, "compactor", false, "depose the compactor, not the leader")
	a.jsonFlag(c)
	return c
}

// release is the version of a release, which its builder passes to the linker (make release).
// A program that was installed by its version knows that by itself.
var release string

// version is what --version prints.
func version() string {
	v, goVersion, revision := "(devel)", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		goVersion = info.GoVersion
		v = cmp.Or(release, info.Main.Version, v)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("fencepost %s%s %s", v, revision, goVersion)
}
