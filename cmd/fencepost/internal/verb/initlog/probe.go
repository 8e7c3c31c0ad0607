package initlog

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// Probe returns the verb.
func Probe(k *kit.Kit) *cobra.Command {
	c := &cobra.Command{
		Use:   "probe [--json] URL",
		Short: "test whether a store has what the protocol needs",
		Long: `Probe tests whether a store keeps the promises that the protocol needs: creates and
swaps are atomic, and reads and listings see what was written. Some clients race on
objects below tmp/, for some seconds; probe deletes these objects again. Init does
the same. Both warn of lifecycle rules of the bucket that would delete objects of
the log, if they may read the rules.

Like init it makes the directory of a file:// URL if there is none.

It needs the rights to write and delete below tmp/.`,
		Example: "fencepost probe s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := k.Store(cmd.Context(), args[0], true) // as init does, which it is tried before
			if e, ok := errors.AsType[*store.Error](err); ok && e.Hint == kit.GoneHint {
				e.Hint = kit.ProbeHint
			}
			if err != nil {
				return err
			}
			report, err := probe.Run(cmd.Context(), st, k.Probing(args[0]))
			warnOfRules(cmd.Context(), k, st)
			if k.JSON {
				v := struct {
					*probe.Report
					Error string `json:"error,omitempty"`
				}{Report: report}
				if err != nil {
					v.Error = kit.Line(err)
				}
				return cmp.Or(err, k.Print(v))
			}
			if err != nil {
				return err // the report of a probe that was cut short would mislead
			}
			return k.Write([]byte(report.String()))
		},
	}
	k.JSONFlag(c)
	return c
}
