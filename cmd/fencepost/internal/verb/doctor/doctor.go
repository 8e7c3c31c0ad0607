// Package doctor is the verb doctor.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	var o doctor.Options
	var strict bool
	c := &cobra.Command{
		Use:   "doctor [--deep] [--strict] [--json] URL",
		Short: "check all that an operator should check",
		Long: `Doctor checks most of what docs/runbook.md describes. It prints a line for each check,
with what to do if something is wrong. It lists everything, and changes nothing.

Of the store it checks lifecycle rules of the bucket, and the clock. Of the log it checks
format and grace, its state, the leader, and how often leaders were deposed. It compares
what is listed with what the log names, also seals, and finds what waits for a
compactor, late checkpoints, forgotten pins, objects that should have been deleted, and
uploads that broke off. If the log's table is published as a Delta table, it checks
that too. What it did not look at it calls unseen: a disk that is full, for example.

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

The exit status is 65 if there is a problem, and with --strict also if there is a
warning.

It needs the rights of the role doctor: to read, also the lifecycle rules and the
uploads of the bucket, and with --deep to probe.`,
		Example: "fencepost doctor s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Files, err = k.Files(cmd.Context(), false); err != nil {
				return err
			}
			found, err := examine(cmd.Context(), k, args[0], &o)
			if err != nil {
				if k.JSON {
					_ = k.Print(append(found, doctor.Finding{Check: "store", Level: doctor.Problem, What: kit.Line(err)}))
				}
				return err
			}
			err = k.Show(found, FindingTable(found))
			for _, f := range found {
				if f.Level == doctor.Problem || strict && f.Level == doctor.Warning {
					return kit.ErrDamaged
				}
			}
			return err
		},
	}
	c.Flags().BoolVar(&o.Deep, "deep", false, "probe the store, and read the whole log")
	c.Flags().BoolVar(&strict, "strict", false, "fail on warnings too")
	k.FilesFlag(c)
	k.JSONFlag(c)
	return c
}

// examine checks the log at a URL, or the group, or both; or the lock if that is all.
func examine(ctx context.Context, k *kit.Kit, url string, o *doctor.Options) ([]doctor.Finding, error) {
	st, err := k.Store(ctx, url, false)
	if err != nil {
		return nil, err
	}
	o.Probe = k.Probing(url)
	o.Progress = func(what string, done, total int64) { k.Console.Progress(what, done, total, false) }
	found, err := doctor.Examine(ctx, st, o)
	k.Console.Done()
	for _, name := range k.PassedOver(url) {
		found = append(found, doctor.Finding{Check: "growth", Level: doctor.Unseen, What: name + " cannot be read, and is passed over"})
	}
	if err = kit.Orphaned(ctx, st, err); errors.Is(err, kit.ErrOnlyLock) {
		return doctor.ExamineLock(ctx, st, o)
	}
	return found, err
}

// FindingTable shows findings to people.
func FindingTable(found []doctor.Finding) []byte {
	n, unseen := map[doctor.Level]int{}, ""
	b := kit.Aligned(func(w io.Writer) {
		for _, f := range found {
			if n[f.Level]++; f.Level == doctor.Unseen {
				unseen += ", " + f.Check
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.Check, kit.Printable(f.What))
			if f.Remedy != "" {
				fmt.Fprintf(w, "\t\t→ %s\n", kit.Printable(f.Remedy))
			}
		}
	})
	b = fmt.Appendf(b, "%s, %s", kit.Plural(n[doctor.Problem], "problem"), kit.Plural(n[doctor.Warning], "warning"))
	if unseen != "" {
		b = fmt.Appendf(b, "; not looked at: %s", unseen[2:])
	}
	return append(b, '\n')
}
