package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/reader"
)

func (a *app) catCmd() *cobra.Command {
	var from uint64 = reader.Oldest
	var follow bool
	var format string
	var who consumer
	c := &cobra.Command{
		Use:   "cat [--from N] [--follow] [--consumer NAME] URL",
		Short: "print the records",
		Long: `Cat prints the records from number N on, or from the first one, to the end of the
log. With --follow it goes on as the log grows. If the log has fewer than N records,
that is an error; with --follow cat waits for the record.

Formats: raw prints the bytes as they were appended, one record after the other;
frames puts a length of 4 bytes before each, the most significant first; json prints
a line of JSON for each, {"offset":…,"time":…,"value":…}. If the record is not UTF-8,
the line has "base64" instead of "value".

With --consumer cat begins at the position of that name in the store, and keeps it up to
date: at the end, and with --follow once a second. A record counts when it is written to
standard output, so what reads there sees each record at least once. Of two with one
name, the one that was started later goes on, and the other ends with an error. With
--epoch the one with the greater epoch does, such as $FENCEPOST_EPOCH of fencepost exec.

It needs the right to read, and with --consumer to write below consumer/.`,
		Example: "fencepost cat --follow s3://bucket/orders",
		Args:    wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			encode, ok := encoders[format]
			if !ok {
				return usage("--format is raw, frames or json, not %q", format)
			}
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, err := who.open(cmd.Context(), r, &from)
			if err != nil {
				return err
			}
			return who.close(ctx, a.cat(ctx, r, from, follow, encode, &who))
		},
	}
	offsetVar(c.Flags(), &from, "from", "offset of the first record (default the first that the log has)")
	c.Flags().BoolVar(&follow, "follow", false, "go on as the log grows")
	c.Flags().StringVar(&format, "format", "raw", "raw, frames or json")
	c.Flags().StringVar(&who.name, "consumer", "", "begin at the position of that name, and keep it up to date")
	c.Flags().Uint64Var(&who.epoch, "epoch", 0, "take the position over for this epoch (default for the next one)")
	return c
}

type encoder func(w *bufio.Writer, r reader.Record) error

var encoders = map[string]encoder{
	"raw": func(w *bufio.Writer, r reader.Record) error {
		_, err := w.Write(r.Value)
		return err
	},
	"frames": func(w *bufio.Writer, r reader.Record) error {
		if _, err := w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(r.Value)))); err != nil {
			return err
		}
		_, err := w.Write(r.Value)
		return err
	},
	"json": func(w *bufio.Writer, r reader.Record) error {
		l := recordLine{Offset: r.Offset, Time: r.Time}
		if utf8.Valid(r.Value) {
			l.Value = string(r.Value)
		} else {
			l.Base64 = &r.Value
		}
		return l.encode(w)
	},
}

// recordLine is a record as cat and export print it in JSON. One of the last three is set.
type recordLine struct {
	Offset uint64    `json:"offset"`
	Time   time.Time `json:"time"`
	Value  any       `json:"value,omitempty"`
	Text   *string   `json:"text,omitempty"`
	Base64 *[]byte   `json:"base64,omitempty"`
}

func (l recordLine) encode(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(l)
}

func (a *app) cat(ctx context.Context, r *reader.Reader, from uint64, follow bool, encode encoder, who *consumer) error {
	records := r.Read(ctx, from)
	some := func() {}
	if follow {
		records = r.Tail(ctx, from)
		some = a.waits(ctx, r, from)
		defer some()
	}
	none := true
	var last uint64
	err := a.stream(func(out *bufio.Writer) error {
		for rec, err := range records {
			if err != nil {
				return err
			}
			if none {
				some()
				none = false
			}
			err := encode(out, rec)
			if err == nil && follow {
				if err = out.Flush(); err == nil { // so that no record waits for the next
					who.note(rec.Offset)
				}
			}
			if err != nil {
				return err
			}
			last = rec.Offset
		}
		return nil
	})
	if !none && err == nil {
		who.note(last) // all of it is flushed
	}
	if err != nil || follow || !none || from == reader.Oldest {
		return err
	}
	end, err := endOf(ctx, r)
	if err == nil && from > end {
		err = ahead(from, end)
	}
	return err
}

// endOf returns the end offset: the number of all records.
func endOf(ctx context.Context, r *reader.Reader) (uint64, error) {
	s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		return 0, err
	}
	return s.End(), s.Close(ctx)
}

// waits says after a while that a reader waits until the log has its first record, unless
// stop is called before.
func (a *app) waits(ctx context.Context, r *reader.Reader, from uint64) (stop func()) {
	if from == reader.Oldest {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-time.After(a.patience):
		case <-ctx.Done():
			return
		}
		if end, err := endOf(ctx, r); err == nil && from > end {
			a.con.note("waiting for record %d; the log ends at %d", from, end)
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// stream lets f print many small things. If f fails, what it has printed is still written.
func (a *app) stream(f func(*bufio.Writer) error) error {
	out := bufio.NewWriterSize(a.out, 256<<10)
	err := f(out)
	// After a failed write Flush returns the same error.
	if ferr := out.Flush(); err == nil || errors.Is(err, ferr) {
		return written(ferr)
	}
	return err
}
