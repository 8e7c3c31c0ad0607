package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/verify"
)

func (a *app) verifyCmd() *cobra.Command {
	var isCopy bool
	c := &cobra.Command{
		Use:   "verify [-copy] [-json] URL",
		Short: "check everything, and say what is wrong and where",
		Long: `Verify reads the whole log, segments and chain, and checks every checksum,
sequence number, seal and reference. It prints each thing that is wrong with its
key and a remedy, and then its status is 1. What crashes and late requests leave
behind is listed as notes, and is no error. It changes nothing, and may run beside
writers, compactors and pruners.

With -copy it takes the log for a copy of one version, as a backup is: that the
versions before it are missing is in order then.`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			r, err := verify.Run(cmd.Context(), st, &verify.Options{Copy: isCopy, Hooks: verify.Hooks{Progress: func(p verify.Progress) {
				a.con.progress("reading "+p.Stage, p.Done, p.Total, p.Stage != "seals" && p.Stage != "objects")
			}}})
			a.con.done()
			if err != nil {
				// What was found until then is worth more than why it ended.
				for _, p := range r.Problems {
					a.con.note("problem: %v", p)
				}
				return err
			}
			if a.json {
				err = a.print(r)
			} else {
				err = a.write(verdict(r))
			}
			if !r.OK() {
				return errDamaged
			}
			return err
		},
	}
	c.Flags().BoolVar(&isCopy, "copy", false, "it is a backup's copy of one version")
	a.jsonFlag(c)
	return c
}

func verdict(r *verify.Report) []byte {
	var b bytes.Buffer
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem: %v\n", p)
	}
	if r.MoreProblems > 0 {
		fmt.Fprintf(&b, "problem: and %d more\n", r.MoreProblems)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %v\n", n)
	}
	if r.MoreNotes > 0 {
		fmt.Fprintf(&b, "note: and %d more\n", r.MoreNotes)
	}
	fmt.Fprintf(&b, "read records %d to %d: %d segments, %d objects of the chain up to %v, %s; %d seals, %d locks, manifest %d; in %v\n",
		r.First, r.End, r.Segments, r.Slots, r.Tail, size(int(r.Bytes)), r.Seals, r.Locks, r.Manifest, r.Took.Round(time.Millisecond))
	if r.OK() {
		b.WriteString("nothing is wrong\n")
	} else {
		fmt.Fprintf(&b, "%d problems\n", len(r.Problems)+r.MoreProblems)
	}
	return b.Bytes()
}
