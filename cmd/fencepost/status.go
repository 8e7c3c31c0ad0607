package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

func (a *app) statusCmd() *cobra.Command {
	var objects, watch bool
	var files *fileStore
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
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("interval") && !watch {
				return usage("--interval goes with --watch, which is not given")
			}
			st, isLog, err := a.lockStore(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			if !isLog && (objects || files.url != "") {
				return usage("--objects and --files count the objects of a log, and %s has only a lock", st.Traits().Name)
			}
			second, err := a.secondStore(cmd.Context(), st, files, objects)
			if err != nil {
				return err
			}
			o := &survey.Options{Objects: objects, Files: second, Progress: func(n int) { a.con.progress("listing", int64(n), 0, false) }}
			return a.showStatus(cmd.Context(), watch, every, func(ctx context.Context) (view, error) {
				v, err := a.logStatus(ctx, st, o)
				// Each look finds out anew what is there: a log may be made beside the lock, or be deleted.
				if err = orphaned(ctx, st, err); errors.Is(err, errOnlyLock) && !objects {
					return a.lockStatus(ctx, st)
				}
				return v, err
			})
		},
	}
	c.Flags().BoolVar(&objects, "objects", false, "count all objects and bytes")
	c.Flags().BoolVar(&watch, "watch", false, "print again after each change")
	spanVar(c.Flags(), &every, "interval", "2s", positive, "with --watch: how often to check")
	files = a.fileStoreFlag(c)
	a.jsonFlag(c)
	return c
}

// secondStore opens the store that has the files of the table, if it was given.
func (a *app) secondStore(ctx context.Context, st store.Store, files *fileStore, counted bool) (store.Store, error) {
	if files.url == "" {
		return nil, nil
	}
	if !counted {
		return nil, usage("--files goes with --objects, which is not given: only the count needs the second store")
	}
	second, err := files.open(ctx, false)
	if err != nil {
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
func (a *app) logStatus(ctx context.Context, st store.Store, o *survey.Options) (view, error) {
	s, err := survey.Take(ctx, st, o)
	a.con.done()
	if err != nil {
		return view{}, err
	}
	o.Before = &s.Look
	table := statusTable(s)
	return view{table: table, seen: table, json: func(line bool) error {
		if line {
			return a.printLine(s)
		}
		return a.print(s)
	}}, nil
}

// showStatus prints the state, and with watch again after each change of what people see of it.
func (a *app) showStatus(ctx context.Context, watch bool, every time.Duration, look func(context.Context) (view, error)) error {
	var last []byte
	for {
		v, err := look(ctx)
		switch {
		case last != nil && ctx.Err() == nil && passing(err):
			a.con.note("%s; looking again in %v", line(err), every)
			v.seen = last
		case err != nil && watch:
			return ends(ctx, err)
		case err != nil:
			return err
		case !watch && a.json:
			return v.json(false)
		case !watch:
			return a.write(v.table)
		}
		if !bytes.Equal(v.seen, last) {
			last = v.seen
			if a.json {
				err = v.json(true)
			} else {
				err = a.write(append(bytes.Clone(v.table), '\n'))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

func statusTable(s *survey.Log) []byte {
	return rows(func(row func(name, format string, args ...any)) {
		row("store", "%s", s.Store)
		if s.Kind == survey.KindBackup {
			row("backup", "of this log; it is read only, and fencepost restore makes a log of it elsewhere")
		}
		row("log", "%v, made %s", s.ID, when(s.Created))
		row("limits", "object %s, record %s, cursor %s, manifest %s; grace %s", size(s.Limits.Object), size(s.Limits.Record), size(s.Limits.Cursor), size(s.Limits.Manifest), s.Grace)
		row("leader", "%s", leadership(s.Leader))
		row("compactor", "%s", leadership(s.Compactor))
		records := plural(s.End, "record")
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
			row("", "%s after it, which are not compacted", plural(n, "record"))
		}
		if m.Version == 0 {
			row("manifest", "none yet")
		} else {
			row("manifest", "%d, of %s; prune mark %d", m.Version, when(m.Written), m.PruneMark)
			row("", "names %s, %s, %d dropped, %s; %s at the floor", plural(m.Segments, "segment"), plural(m.Seals, "seal"), m.Dropped, plural(m.Lists, "list"), plural(m.Files, "live file"))
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
				note = fmt.Sprintf("; of these %d, %s, before the floor", s.BeforeFloor.Objects, size(s.BeforeFloor.Bytes))
			}
			row("objects", "%s: %d, %s%s", kind, c.Objects, size(c.Bytes), note)
		}
		switch c := s.FilesBeside; {
		case c != nil:
			row("files", "%d objects of this log, %s, in %s", c.Objects, size(c.Bytes), s.FilesStore)
		case s.FilesStore != "" && s.Objects != nil:
			row("files", "not counted: they are in %s; give its URL with --files", s.FilesStore)
		}
		if p := s.Probe; p != nil {
			row("probe", "%s: kept %s; %d clients raced, %d creates, %d swaps", when(p.At), plural(len(p.Kept), "promise"), p.Clients, p.CreateRaces, p.SwapRaces)
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
	s := fmt.Sprintf("%s, epoch %d, since %s; validity %s", l.Holder, l.Epoch, when(l.From), l.Lasts())
	if l.State != "held" {
		s += ", " + l.State
	}
	return s
}
