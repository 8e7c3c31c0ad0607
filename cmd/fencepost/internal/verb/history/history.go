// Package history is the verb history.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

// TermDoc is a leadership as history prints it.
type TermDoc struct {
	survey.Term
	Led string `json:"led,omitempty"`
	// Gap is the time from To of the leadership before to From.
	Gap   string `json:"gap,omitempty"`
	Error string `json:"error,omitempty"`
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	var compactor bool
	var limit int
	c := &cobra.Command{
		Use:   "history [--limit N] [--compactor] [--json] URL",
		Short: "print who led, for how long, and how each leadership ended",
		Long: `History prints the leaderships of the log, the newest first: its epoch, who led, since
when and for how long, how it ended, and how long nobody led before it. Old ones are
known as long as their locks are kept. Where fencepost exec runs, and where a program
leads alone, there is a lock and no log: it prints who led there.

The times are the holders' times of day. A leadership that lapsed ends here with its
last heartbeat, although the leader may have gone on for its validity. So a gap that
is a little longer than the validity is a crash, and one of less than a second a good
hand-over.

It needs the right to read.`,
		Example: "fencepost history --limit 50 s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
	}
	c.Flags().BoolVar(&compactor, "compactor", false, "of the compactors, not the leaders")
	kit.CountVar(c.Flags(), &limit, "limit", 20, "how many leaderships to print")
	k.JSONFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		st, _, err := k.LockStore(cmd.Context(), args[0], compactor)
		if err != nil {
			return err
		}
		e, err := k.Elector(st, compactor, 0)
		if err != nil {
			return err
		}
		docs := []TermDoc{}
		// One more than is printed, for the gap before the last.
		for rec, err := range e.History(cmd.Context()) {
			if err != nil && !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
				return err
			}
			if err == nil && rec.Leads() {
				// Whether it has crashed, a second reading tells: that compares ages.
				now, lerr := survey.Leader(cmd.Context(), e)
				if lerr != nil && !errors.Is(lerr, leader.ErrNoLeader) {
					return lerr
				}
				rec.Lapsed = now.Epoch == rec.Epoch && now.Lapsed
			}
			docs = append(docs, TermOf(rec, err))
			if len(docs) > limit {
				break
			}
		}
		for i := range docs[:max(0, len(docs)-1)] {
			docs[i].after(docs[i+1])
		}
		docs = docs[:min(limit, len(docs))]
		return k.Show(docs, Table(docs))
	}
	return c
}

// TermOf is a leadership, or the error of a lock that cannot be read.
func TermOf(rec leader.Record, err error) TermDoc {
	if err != nil {
		return TermDoc{Term: survey.Term{Epoch: rec.Epoch}, Error: kit.Line(err)}
	}
	d := TermDoc{Term: survey.TermOf(rec)}
	switch {
	case d.Next != 0: // nobody held it
		d.Holder, d.From, d.To = "", time.Time{}, time.Time{}
	case d.Leads:
		d.Led = kit.Brief(time.Since(d.From))
	default:
		d.Led = kit.Brief(d.To.Sub(d.From))
	}
	return d
}

// after notes how long nobody led before d.
func (d *TermDoc) after(before TermDoc) {
	if !before.Leads && !before.To.IsZero() && !d.From.IsZero() {
		d.Gap = kit.Brief(d.From.Sub(before.To))
	}
}

// Table shows leaderships to people.
func Table(docs []TermDoc) []byte {
	if len(docs) == 0 {
		return []byte("nobody has led yet\n")
	}
	return kit.Aligned(func(w io.Writer) {
		fmt.Fprintln(w, "EPOCH\tFROM\tLED\tGAP BEFORE\tTHEN\tHOLDER")
		for _, d := range docs {
			then := kit.Printable(d.Reason)
			switch {
			case d.Error != "":
				fmt.Fprintf(w, "%d\t-\t-\t-\tunreadable: %s\t-\n", d.Epoch, kit.Printable(d.Error))
				continue
			case d.Next != 0:
				fmt.Fprintf(w, "%d\t-\t-\t-\tnobody led; epoch %d follows\t-\n", d.Epoch, d.Next)
				continue
			case d.Leads && d.State == "held":
				then = "leads"
			case d.Leads:
				then = "leads, " + d.State
			case d.State == "lapsed":
				then = d.State
			case d.EndedBy != "":
				then += ", deposed by " + kit.Printable(d.EndedBy)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", d.Epoch, kit.When(d.From), d.Led, cmp.Or(d.Gap, "-"), cmp.Or(then, "-"), kit.Printable(d.Holder))
		}
	})
}
