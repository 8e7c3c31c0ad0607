package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/verify"
)

func (a *app) verifyCmd() *cobra.Command {
	var isCopy, noContent bool
	c := &cobra.Command{
		Use:   "verify [--copy] [--no-content] [--json] URL",
		Short: "check the whole log for damage",
		Long: `Verify reads the whole log and checks every checksum, sequence number, seal and
reference, also those of files, of pinned versions and of older versions that readers
may still use. It prints each problem with its key and a remedy; the exit status is
then 1. What crashes and late requests have left behind is listed as notes, and is no
problem. Verify changes nothing, and may run beside writers and compactors.

With --no-content it does not read the files of the table, and checks only that they
are there with their size.

With --copy the log is a copy of one version, as a backup is. Then it is no problem
that the versions before it are missing.

It needs the right to read.`,
		Example: "fencepost verify s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.store(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			r, err := verify.Run(cmd.Context(), st, &verify.Options{Copy: isCopy, NoContent: noContent, Hooks: verify.Hooks{Progress: func(p verify.Progress) {
				a.con.progress("reading "+p.Stage, p.Done, p.Total, p.Stage == "segments" || p.Stage == "chain")
			}}})
			a.con.done()
			if err != nil {
				// The problems that were found so far matter more than this error.
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
	c.Flags().BoolVar(&isCopy, "copy", false, "the log is a copy of one version, from a backup")
	c.Flags().BoolVar(&noContent, "no-content", false, "do not read the files of the table")
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
