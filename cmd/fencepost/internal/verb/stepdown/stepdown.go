// Package stepdown is the verb step-down.
package stepdown

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

// DeposedDoc is what step-down --json prints.
type DeposedDoc struct {
	Deposed bool        `json:"deposed"`
	Holder  string      `json:"holder,omitempty"`
	Epoch   fence.Epoch `json:"epoch,omitempty"`
	Since   time.Time   `json:"since,omitzero"`
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
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
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, _, err := k.LockStore(cmd.Context(), args[0], compactor)
			if err == nil {
				err = kit.Writable(cmd.Context(), st)
			}
			if err != nil {
				return err
			}
			e, err := k.Elector(st, compactor, validity)
			if err != nil {
				return err
			}
			rec, err := e.StepDown(cmd.Context(), &o)
			if errors.Is(err, leader.ErrNoLeader) {
				k.Console.Note("nobody leads")
				return k.Show(DeposedDoc{}, nil)
			}
			if err != nil {
				return err
			}
			return k.Show(DeposedDoc{Deposed: true, Holder: rec.Holder, Epoch: rec.Epoch, Since: rec.Acquired}, fmt.Appendf(nil, "deposed %s of epoch %d\n", rec.Holder, rec.Epoch))
		},
	}
	fl := c.Flags()
	fl.StringVar(&o.Reason, "reason", "", "why, for people; the lock says it")
	fl.BoolVar(&o.Immediate, "immediate", false, "let a successor begin at once")
	fl.BoolVar(&o.Force, "force", false, "replace the newest lock even if it cannot be read")
	kit.SpanVar(fl, &validity, "validity", "15s", kit.Positive, "that of the leader, if its lock cannot be read")
	fl.BoolVar(&compactor, "compactor", false, "depose the compactor, not the leader")
	k.JSONFlag(c)
	return c
}
