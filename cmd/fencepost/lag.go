package main

import (
	"bytes"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/reader"
)

// lagDoc is what lag --json prints.
type lagDoc struct {
	*survey.Lag
	Consumer *behindDoc `json:"consumer,omitempty"`
}

// behindDoc is the lag of a consumer: what lies between it and the end of the log.
type behindDoc struct {
	At     uint64 `json:"at"`
	Behind uint64 `json:"behind"`
	// Next is the time of the record that the consumer reads next.
	Next time.Time `json:"next_at,omitzero"`
}

func (a *app) lagCmd() *cobra.Command {
	var at uint64
	c := &cobra.Command{
		Use:   "lag [--at N] [--json] URL",
		Short: "print how far compaction, checkpoints and a consumer are behind",
		Long: `Lag prints where the log ends, and when the last record came. It prints how many records
and objects wait to be compacted, and for how long. It says how many records a new
leader would read before it can append. With --at it also prints the lag of a consumer
that reads record N next.

It lists the objects that are not compacted. Times are those of the writers.

It needs the right to read.`,
		Example: "fencepost lag --at 4711 s3://bucket/orders",
		Args:    wantArgs(1, 1),
	}
	offsetVar(c.Flags(), &at, "at", "the offset that a consumer reads next")
	a.jsonFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		st, err := a.logStore(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		l, err := survey.Behind(cmd.Context(), st)
		if err != nil {
			return err
		}
		doc := lagDoc{Lag: l}
		if cmd.Flags().Changed("at") {
			r, err := reader.Open(cmd.Context(), st, nil)
			if err != nil {
				return err
			}
			if doc.Consumer, err = behind(cmd.Context(), r, at, l.End); err != nil {
				return err
			}
		}
		if a.json {
			return a.print(doc)
		}
		return a.write(lagTable(doc, time.Now()))
	}
	return c
}

func behind(ctx context.Context, r *reader.Reader, at, end uint64) (*behindDoc, error) {
	if at > end {
		return nil, ahead(at, end)
	}
	d := &behindDoc{At: at, Behind: end - at}
	if at == end {
		return d, nil
	}
	for rec, err := range r.Read(ctx, at) {
		if err != nil {
			return nil, err
		}
		d.Next = rec.Time
		break
	}
	return d, nil
}

func lagTable(d lagDoc, now time.Time) []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	last := ""
	if !d.LastAt.IsZero() {
		last = fmt.Sprintf("; the last object came %s ago, at %s", brief(now.Sub(d.LastAt)), when(d.LastAt))
	}
	row("end", "%s%s", plural(d.End, "record"), last)
	waiting := "nothing waits"
	if d.Waiting > 0 || !d.OldestAt.IsZero() {
		waiting = fmt.Sprintf("%s wait in %s, %s", plural(d.Waiting, "record"), plural(d.Objects, "object"), size(int(d.Bytes)))
		if !d.OldestAt.IsZero() {
			waiting += ", for " + brief(now.Sub(d.OldestAt))
		}
	}
	row("compacted", "%s; %s", plural(d.Compacted, "record"), waiting)
	row("checkpoint", "%s; a new leader reads %s", plural(d.Checkpoint, "record"), plural(d.End-d.Checkpoint, "record"))
	if c := d.Consumer; c != nil {
		since := ""
		if !c.Next.IsZero() {
			since = ", the next one has waited for " + brief(now.Sub(c.Next))
		}
		row("consumer", "at %d; %s behind%s", c.At, plural(c.Behind, "record"), since)
	}
	_ = w.Flush()
	return b.Bytes()
}
