package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/doctor"
)

func (a *app) doctorCmd() *cobra.Command {
	var o doctor.Options
	var strict bool
	var files *fileStore
	c := &cobra.Command{
		Use:   "doctor [--deep] [--strict] [--json] URL",
		Short: "check all that an operator should check",
		Long: `Doctor checks most of what docs/runbook.md describes. It prints a line for each check,
with what to do if something is wrong. It lists everything, and changes nothing.

Of the store it checks lifecycle rules of the bucket, the clock, and the promises that
the log needs. Of the log it checks format and grace, its state, the leader, and how
often leaders were deposed. It finds what waits for a compactor, late checkpoints,
forgotten pins, objects that should have been deleted, and uploads that broke off. If
the log's table is published as a Delta table, it checks that too.

Where fencepost exec runs, and where a program leads alone, there is a lock and no log:
it checks who leads, and how often leaders were deposed.

If the URL is that of a group of workers, it checks their membership: who is alive, what
nobody owns, whose work fails, and whether anybody compacts the logs. The log of a
partition has a URL of its own, which ends in /partition/ and six digits.

With --deep it also probes the store, which writes below tmp/, and reads the whole log
as verify does. Of a group it reads the objects of the group and the logs of all
partitions.

What it could not check it calls a warning: for example, the store did not answer. What
it says to do is for the state that it has seen: if some time has passed, run it again
first.

The exit status is 1 if there is a problem, and with --strict also if there is a
warning.

It needs the rights of the role doctor: to read, also the lifecycle rules and the
uploads of the bucket, and with --deep to probe.`,
		Example: "fencepost doctor s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Files, err = files.open(cmd.Context(), false); err != nil {
				return err
			}
			found, err := a.examine(cmd.Context(), args[0], &o)
			if err != nil {
				return err
			}
			err = a.show(found, findingTable(found))
			for _, f := range found {
				if f.Level == doctor.Problem || strict && f.Level == doctor.Warning {
					return errDamaged
				}
			}
			return err
		},
	}
	c.Flags().BoolVar(&o.Deep, "deep", false, "probe the store, and read the whole log")
	c.Flags().BoolVar(&strict, "strict", false, "fail on warnings too")
	files = a.fileStoreFlag(c)
	a.jsonFlag(c)
	return c
}

// examine checks the log at a URL, or the group, or both; or the lock if that is all.
func (a *app) examine(ctx context.Context, url string, o *doctor.Options) ([]doctor.Finding, error) {
	st, err := a.store(ctx, url, false)
	if err != nil {
		return nil, err
	}
	o.Probe = a.probing(url)
	o.Progress = func(what string, done, total int64) { a.con.progress(what, done, total, false) }
	found, err := doctor.Examine(ctx, st, o)
	a.con.done()
	if err = orphaned(ctx, st, err); errors.Is(err, errOnlyLock) {
		return doctor.ExamineLock(ctx, st, o)
	}
	return found, err
}

func findingTable(found []doctor.Finding) []byte {
	n := map[doctor.Level]int{}
	b := aligned(func(w io.Writer) {
		for _, f := range found {
			n[f.Level]++
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, printable(f.What))
			if f.Level != doctor.OK && f.Remedy != "" {
				fmt.Fprintf(w, "\t\t→ %s\n", printable(f.Remedy))
			}
		}
	})
	if n[doctor.Problem]+n[doctor.Warning] == 0 {
		return append(b, "nothing is wrong\n"...)
	}
	return fmt.Appendf(b, "%s, %s\n", plural(n[doctor.Problem], "problem"), plural(n[doctor.Warning], "warning"))
}
