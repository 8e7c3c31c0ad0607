// Package lag is the verb lag.
package lag

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
)

// Doc is what lag --json prints.
type Doc struct {
	*survey.Log
	Consumer  *behindDoc   `json:"consumer,omitempty"`
	Consumers []*behindDoc `json:"consumers,omitempty"`
	// More is how many more consumers there are, whose positions are not read.
	More int `json:"more_consumers,omitempty"`
}

// behindDoc is the lag of a consumer: what lies between it and the end of the log.
type behindDoc struct {
	Name string `json:"name,omitempty"`
	// At is the offset of the record that it reads next. It is past the end if the log has lost
	// records, as by a restore.
	At     uint64 `json:"at"`
	Behind uint64 `json:"behind"`
	// First is the oldest record that the log still has. It is only there if the record at At is gone.
	First uint64 `json:"first,omitempty"`
	// Next is the time of the record that the consumer reads next.
	Next time.Time `json:"next_at,omitzero"`
	// Error says why the record at At cannot be read, or the position itself: then At and Behind are 0.
	Error string `json:"error,omitempty"`
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	var at uint64
	c := &cobra.Command{
		Use:   "lag [--at N] [--json] URL",
		Short: "print how far compaction, checkpoints and consumers are behind",
		Long: `Lag prints where the log ends, and when the last record came. It prints how many records
and objects wait to be compacted, and for how long. It says how many records a new
leader would read before it can append. It prints how far each named consumer is behind
(fencepost cat --consumer), and with --at one that reads record N next.

It lists the objects that are not compacted, and prints 100 named consumers at most: the
first by name, and how many more there are. If the position of a consumer or its next
record is damaged, it says so, and prints the others. Times are those of the writers.

It needs the right to read.`,
		Example: "fencepost lag --at 4711 s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
	}
	kit.OffsetVar(c.Flags(), &at, "at", "the offset that a consumer reads next")
	k.JSONFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		st, err := k.LogStore(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		// What it says of the leaders is beside the point: a lock that cannot be read hides nothing else.
		l, err := survey.Take(cmd.Context(), st, &survey.Options{Unfolded: true, BadLock: func(inspect.Kind, error) {}})
		if err != nil {
			return err
		}
		doc := Doc{Log: l}
		r, err := reader.Open(cmd.Context(), st, nil)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("at") {
			if at > l.End {
				return kit.Ahead(at, l.End)
			}
			if doc.Consumer, err = behind(cmd.Context(), r, at, l.End); err != nil {
				return err
			}
		}
		if doc.Consumers, doc.More, err = consumers(cmd.Context(), st, r, l); err != nil {
			return err
		}
		return k.Show(doc, lagTable(doc, time.Now()))
	}
	return c
}

// behind returns the lag of a consumer whose next record is at. If a record cannot be read, it returns the lag and the error.
func behind(ctx context.Context, r *reader.Reader, at, end uint64) (*behindDoc, error) {
	d := &behindDoc{At: at, Behind: end - min(at, end)}
	if at >= end {
		return d, nil
	}
	for rec, err := range r.Read(ctx, at) {
		if gone, ok := errors.AsType[*reader.GoneError](err); ok { // retention has overtaken it
			d.First = gone.First
			break
		}
		if err != nil {
			return d, err
		}
		d.Next = rec.Time
		break
	}
	return d, nil
}

// mostConsumers bounds the requests for the positions of consumers.
const mostConsumers = 100

// consumers returns the lags of the named consumers of this log, in the order of their names, and how many more
// there are. A position of a consumer that has committed nothing yet is left out.
func consumers(ctx context.Context, st store.Store, r *reader.Reader, l *survey.Log) (all []*behindDoc, more int, err error) {
	var names []string
	for info, err := range store.ListAll(ctx, st, inspect.Consumer.Prefix(), nil, nil) {
		if err != nil {
			return nil, 0, err
		}
		if n := inspect.Parse(info.Key); n.Kind == inspect.Consumer {
			names = append(names, n.ID)
		}
	}
	slices.Sort(names) // a listing has no order
	names = slices.Compact(names)
	for i, name := range names {
		if len(all) == mostConsumers {
			return all, len(names) - i, nil
		}
		d, err := positionOf(ctx, st, r, l.ID.String(), name, l.End)
		if err != nil {
			return nil, 0, err
		}
		if d != nil {
			d.Name = name
			all = append(all, d)
		}
	}
	return all, 0, nil
}

// positionOf returns how far a named consumer is behind; nil if it is none of this log.
func positionOf(ctx context.Context, st store.Store, r *reader.Reader, log, name string, end uint64) (d *behindDoc, err error) {
	d = &behindDoc{}
	found, err := register.Read(ctx, st, inspect.Name{Kind: inspect.Consumer, ID: name}.Key(), nil)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // it was deleted after the listing
	}
	if err == nil {
		offset, own := strings.CutPrefix(string(found.Value), log+" ")
		at, perr := strconv.ParseUint(offset, 10, 64)
		if own = own && perr == nil; !own {
			return nil, nil //nolint:nilnil // of another log, which this one was restored over: cat says so
		}
		d, err = behind(ctx, r, at, end)
	}
	// One that is damaged does not hide the others.
	if errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat) {
		d.Error, err = kit.Line(err), nil
	}
	return d, err
}

func lagTable(d Doc, now time.Time) []byte {
	return kit.Rows(func(row func(name, format string, args ...any)) {
		last := ""
		if !d.LastAt.IsZero() {
			last = fmt.Sprintf("; the last object came %s ago, at %s", kit.Brief(now.Sub(d.LastAt)), kit.When(d.LastAt))
		}
		row("end", "%s%s", kit.Plural(d.End, "record"), last)
		waiting := "nothing waits"
		u := d.Unfolded
		if n := d.End - d.FloorOffset; n > 0 || !u.OldestAt.IsZero() {
			waiting = fmt.Sprintf("%s wait in %s, %s", kit.Plural(n, "record"), kit.Plural(u.Objects, "object"), kit.Size(u.Bytes))
			if !u.OldestAt.IsZero() {
				waiting += ", for " + kit.Brief(now.Sub(u.OldestAt))
			}
		}
		row("compacted", "%s; %s", kit.Plural(d.FloorOffset, "record"), waiting)
		row("checkpoint", "%s; a new leader reads %s", kit.Plural(d.NotedOffset, "record"), kit.Plural(d.End-d.NotedOffset, "record"))
		behind := func(name string, c *behindDoc) {
			switch {
			case c.Error != "" && c.Behind > 0:
				row(name, "at %d; %s behind, the next one cannot be read: %s", c.At, kit.Plural(c.Behind, "record"), kit.Printable(c.Error))
			case c.Error != "":
				row(name, "cannot be read: %s", kit.Printable(c.Error))
			case c.At > d.End:
				row(name, "at %d, which the log does not have", c.At)
			case c.First > 0:
				row(name, "at %d; %s behind, but those before %d are gone", c.At, kit.Plural(c.Behind, "record"), c.First)
			case c.Next.IsZero():
				row(name, "at %d; %s behind", c.At, kit.Plural(c.Behind, "record"))
			default:
				row(name, "at %d; %s behind, the next one has waited for %s", c.At, kit.Plural(c.Behind, "record"), kit.Brief(now.Sub(c.Next)))
			}
		}
		if d.Consumer != nil {
			behind("consumer", d.Consumer)
		}
		for _, c := range d.Consumers {
			behind("consumer "+c.Name, c)
		}
		if d.More > 0 {
			row("", "up to %s more", kit.Plural(d.More, "consumer"))
		}
	})
}
