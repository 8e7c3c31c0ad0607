// Package status is the verb status.
package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

// lockStatus reads who leads in a place without a log.
func lockStatus(ctx context.Context, k *kit.Kit, st store.Store) (view, error) {
	l, err := survey.TakeLock(ctx, st)
	if err != nil {
		return view{}, err
	}
	still := *l
	still.Leader.To, still.Leader.Until = time.Time{}, time.Time{} // a heartbeat is no change
	return view{table: LockTable(l, time.Now()), seen: LockTable(&still, time.Time{}), json: func(line bool) error {
		if line {
			return k.PrintLine(l)
		}
		return k.Print(l)
	}}, nil
}

// LockTable shows a lock to people.
func LockTable(l *survey.Lock, now time.Time) []byte {
	return kit.Rows(func(row func(name, format string, args ...any)) {
		row("store", "%s", l.Store)
		row("log", "none; there is only a lock, as fencepost exec makes one")
		row("leader", "%s", leadership(l.Leader))
		if !l.Leader.Until.IsZero() {
			row("lease", "until %s unless it is renewed; the last heartbeat was %s ago", kit.When(l.Leader.Until), kit.Brief(now.Sub(l.Leader.To)))
		}
	})
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	var objects, watch bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "status [--objects] [--watch] [--json] URL",
		Short: "print who leads, where the log ends, and its manifest",
		Long: `Status prints who leads, since when, and in which epoch. It prints the tail, the number
of records, the producer's cursor, the floor and the newest manifest. It also prints
what the probe found when the log was made. It writes nothing.

Status makes some ten requests. Besides, it reads every object after the last checkpoint.
On a busy log that is up to some 1,000 objects or 256 MiB. With --watch it reads each of
them only once. Lag and doctor say how many objects wait for a compactor.

Where fencepost exec runs, and where a program leads alone, there is a lock and no log.
Status then prints who leads, and until when unless the holder renews the lock.

With --objects it also counts objects and bytes of each kind: that lists everything.
If the log keeps the files of its table in another store, --files counts those too.
With --watch it prints all again after each change, until it is interrupted; with
--json as well, one line for each.

It needs the right to read.`,
		Example: "fencepost status --watch s3://bucket/orders",
		Args:    kit.WantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, isLog, err := k.LockStore(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			if !isLog && objects {
				return kit.Usage("--objects counts the objects of a log, and %s has only a lock", st.Traits().Name)
			}
			second, err := secondStore(cmd.Context(), k, st)
			if err != nil {
				return err
			}
			if objects {
				k.PassedOver(args[0])
			}
			o := &survey.Options{Objects: objects, Files: second, Progress: func(n int) { k.Console.Progress("listing", int64(n), 0, false) }}
			return showStatus(cmd.Context(), k, watch, every, func(ctx context.Context) (view, error) {
				v, err := logStatus(ctx, k, st, o)
				// Each look finds out anew what is there: a log may be made beside the lock, or be deleted.
				if err = kit.Orphaned(ctx, st, err); errors.Is(err, kit.ErrOnlyLock) && !objects {
					return lockStatus(ctx, k, st)
				}
				return v, err
			})
		},
	}
	c.Flags().BoolVar(&objects, "objects", false, "count all objects and bytes")
	c.Flags().BoolVar(&watch, "watch", false, "print again after each change")
	kit.SpanVar(c.Flags(), &every, "interval", "2s", kit.Positive, "with --watch: how often to check")
	k.FilesFlag(c)
	k.JSONFlag(c)
	kit.Needs(c, "watch", "interval")
	kit.Needs(c, "objects", "files") // only the count needs the second store
	return c
}

// secondStore opens the store that has the files of the table, if it was given.
func secondStore(ctx context.Context, k *kit.Kit, st store.Store) (store.Store, error) {
	second, err := k.Files(ctx, false)
	if second == nil || err != nil {
		return nil, err
	}
	log, err := inspect.Open(ctx, st, nil)
	if err == nil {
		_, err = log.Files(ctx, second)
	}
	return second, err
}

// view is a state that was read.
type view struct {
	table []byte // for people
	seen  []byte // another one is a change, which --watch prints
	json  func(line bool) error
}

// logStatus reads the state of a log.
func logStatus(ctx context.Context, k *kit.Kit, st store.Store, o *survey.Options) (view, error) {
	s, err := survey.Take(ctx, st, o)
	k.Console.Done()
	if err != nil {
		return view{}, err
	}
	o.Before = &s.Look
	table := Table(s)
	return view{table: table, seen: table, json: func(line bool) error {
		if line {
			return k.PrintLine(s)
		}
		return k.Print(s)
	}}, nil
}

// showStatus prints the state, and with watch again after each change of what people see of it.
func showStatus(ctx context.Context, k *kit.Kit, watch bool, every time.Duration, look func(context.Context) (view, error)) error {
	var last []byte
	for {
		v, err := look(ctx)
		switch {
		case err != nil && last != nil:
			if err := k.Again(ctx, err, "looking", every); err != nil {
				return err
			}
			continue
		case err != nil:
			return kit.Ends(ctx, err)
		case !watch && k.JSON:
			return v.json(false)
		case !watch:
			return k.Write(v.table)
		}
		if !bytes.Equal(v.seen, last) {
			last = v.seen
			if k.JSON {
				err = v.json(true)
			} else {
				err = k.Write(append(bytes.Clone(v.table), '\n'))
			}
			if err != nil {
				return err
			}
		}
		if err := kit.Pause(ctx, every); err != nil {
			return err
		}
	}
}

// Table shows a log to people.
func Table(s *survey.Log) []byte {
	return kit.Rows(func(row func(name, format string, args ...any)) {
		row("store", "%s", s.Store)
		if s.Kind == survey.KindBackup {
			row("backup", "of this log; it is read only, and fencepost restore makes a log of it elsewhere")
		}
		row("log", "%v, made %s", s.ID, kit.When(s.Created))
		row("limits", "object %s, record %s, cursor %s, manifest %s; grace %s", kit.Size(s.Limits.Object), kit.Size(s.Limits.Record), kit.Size(s.Limits.Cursor), kit.Size(s.Limits.Manifest), s.Grace)
		row("leader", "%s", leadership(s.Leader))
		row("compactor", "%s", leadership(s.Compactor))
		records := kit.Plural(s.End, "record")
		if s.First > 0 {
			records += fmt.Sprintf(", those before %d were truncated", s.First)
		}
		row("tail", "%v; %s", s.Tail, records)
		switch {
		case s.CursorText != "":
			row("cursor", "%s", s.CursorText)
		case len(s.Cursor) > 0:
			row("cursor", "%d bytes: %x", len(s.Cursor), s.Cursor[:min(len(s.Cursor), 64)])
		default:
			row("cursor", "none")
		}
		m := s.State
		row("floor", "%v, offset %d; noted %v, offset %d", m.Floor, m.FloorOffset, m.Noted, m.NotedOffset)
		if n := s.End - m.FloorOffset; n > 0 {
			row("", "%s after it, which are not compacted", kit.Plural(n, "record"))
		}
		if m.Version == 0 {
			row("manifest", "none yet")
		} else {
			row("manifest", "%d, of %s; prune mark %d", m.Version, kit.When(m.Written), m.PruneMark)
			row("", "names %s, %s, %d dropped, %s; %s at the floor", kit.Plural(m.Segments, "segment"), kit.Plural(m.Seals, "seal"), m.Dropped, kit.Plural(m.Lists, "list"), kit.Plural(m.Files, "live file"))
			if m.Writer > 0 {
				row("", "writer of epoch %d, update %d", m.Writer, m.WriterUpdate)
			}
			if m.Compactor > 0 {
				row("", "compactor of epoch %d, update %d", m.Compactor, m.CompactorUpdate)
			}
		}
		for _, kind := range inspect.Kinds() {
			c, ok := s.Objects[kind]
			if !ok {
				continue
			}
			note := ""
			if kind == inspect.Data && s.BeforeFloor != nil && s.BeforeFloor.Objects > 0 {
				note = fmt.Sprintf("; of these %d, %s, before the floor", s.BeforeFloor.Objects, kit.Size(s.BeforeFloor.Bytes))
			}
			row("objects", "%s: %d, %s%s", kind, c.Objects, kit.Size(c.Bytes), note)
		}
		switch c := s.FilesBeside; {
		case c != nil:
			row("files", "%d objects of this log, %s, in %s", c.Objects, kit.Size(c.Bytes), s.FilesStore)
		case s.FilesStore != "" && s.Objects != nil:
			row("files", "not counted: they are in %s; give its URL with --files", s.FilesStore)
		}
		if p := s.Probe; p != nil {
			row("probe", "%s: kept %s; %d clients raced, %d creates, %d swaps", kit.When(p.At), kit.Plural(len(p.Kept), "promise"), p.Clients, p.CreateRaces, p.SwapRaces)
			row("", "put %.1f ms, get %.1f ms, list %.1f ms", p.Put.P50, p.Get.P50, p.List.P50)
		}
	})
}

func leadership(l survey.Term) string {
	switch {
	case l.Epoch == 0:
		return "nobody yet"
	case l.State == "lapsed":
		return fmt.Sprintf("nobody; %s led in epoch %d until its lock lapsed", l.Holder, l.Epoch)
	case !l.Leads:
		s := fmt.Sprintf("nobody; %s led in epoch %d", l.Holder, l.Epoch)
		if l.Reason != "" {
			s += ", " + l.Reason
		}
		return s
	}
	s := fmt.Sprintf("%s, epoch %d, since %s; validity %s", l.Holder, l.Epoch, kit.When(l.From), l.Lasts())
	if l.State != "held" {
		s += ", " + l.State
	}
	return s
}
