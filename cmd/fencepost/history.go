package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

// termDoc is a leadership as history prints it.
type termDoc struct {
	survey.Term
	Led string `json:"led,omitempty"`
	// Gap is the time from To of the leadership before to From.
	Gap   string `json:"gap,omitempty"`
	Error string `json:"error,omitempty"`
}

func (a *app) historyCmd() *cobra.Command {
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
		Args:    wantArgs(1, 1),
	}
	c.Flags().BoolVar(&compactor, "compactor", false, "of the compactors, not the leaders")
	countVar(c.Flags(), &limit, "limit", 20, "how many leaderships to print")
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		st, _, err := a.lockStore(cmd.Context(), args[0], compactor)
		if err != nil {
			return err
		}
		e, err := a.elector(st, compactor, 0)
		if err != nil {
			return err
		}
		docs := []termDoc{}
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
			docs = append(docs, termOf(rec, err))
			if len(docs) > limit {
				break
			}
		}
		for i := range docs[:max(0, len(docs)-1)] {
			docs[i].after(docs[i+1])
		}
		docs = docs[:min(limit, len(docs))]
		return a.show(docs, historyTable(docs))
	}
	return c
}

func termOf(rec leader.Record, err error) termDoc {
	if err != nil {
		return termDoc{Term: survey.Term{Epoch: rec.Epoch}, Error: line(err)}
	}
	d := termDoc{Term: survey.TermOf(rec)}
	switch {
	case d.Next != 0: // nobody held it
		d.Holder, d.From, d.To = "", time.Time{}, time.Time{}
	case d.Leads:
		d.Led = brief(time.Since(d.From))
	default:
		d.Led = brief(d.To.Sub(d.From))
	}
	return d
}

// after notes how long nobody led before d.
func (d *termDoc) after(before termDoc) {
	if !before.Leads && !before.To.IsZero() && !d.From.IsZero() {
		d.Gap = brief(d.From.Sub(before.To))
	}
}

func historyTable(docs []termDoc) []byte {
	if len(docs) == 0 {
		return []byte("nobody has led yet\n")
	}
	return aligned(func(w io.Writer) {
		fmt.Fprintln(w, "EPOCH\tFROM\tLED\tGAP BEFORE\tTHEN\tHOLDER")
		for _, d := range docs {
			then := printable(d.Reason)
			switch {
			case d.Error != "":
				fmt.Fprintf(w, "%d\t-\t-\t-\tunreadable: %s\t-\n", d.Epoch, printable(d.Error))
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
				then += ", deposed by " + printable(d.EndedBy)
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", d.Epoch, when(d.From), d.Led, cmp.Or(d.Gap, "-"), cmp.Or(then, "-"), printable(d.Holder))
		}
	})
}
