package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/reader"
)

func (a *app) catCmd() *cobra.Command {
	from := fromFlag(reader.Oldest)
	var follow bool
	var format string
	c := &cobra.Command{
		Use:   "cat [--from N] [--follow] URL",
		Short: "print the records",
		Long: `Cat prints the records from number N on, to the end of the log or, with --follow,
along with it as it grows. Without --from it begins where the log does. A number that
the log has not reached is an error; with --follow cat waits for it.

Formats: raw prints the bytes as they went in, one record after the other; frames
puts a length of 4 bytes before each, the most significant first; json prints a
line for each, {"offset":…,"time":…,"value":…}, with "base64" for "value" if that
is not UTF-8.`,
		Args: wantArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			encode, ok := encoders[format]
			if !ok {
				return usage("--format is raw, frames or json, not %q", format)
			}
			r, err := a.reader(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.cat(cmd.Context(), r, uint64(from), follow, encode)
		},
	}
	c.Flags().Var(&from, "from", "offset of the first record (default where the log begins)")
	c.Flags().BoolVar(&follow, "follow", false, "go on as the log grows")
	c.Flags().StringVar(&format, "format", "raw", "raw, frames or json")
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
		v := struct {
			Offset uint64    `json:"offset"`
			Time   time.Time `json:"time"`
			Value  *string   `json:"value,omitempty"`
			Base64 *[]byte   `json:"base64,omitempty"`
		}{Offset: r.Offset, Time: r.Time}
		if utf8.Valid(r.Value) {
			s := string(r.Value)
			v.Value = &s
		} else {
			v.Base64 = &r.Value
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(v)
	},
}

func (a *app) cat(ctx context.Context, r *reader.Reader, from uint64, follow bool, encode encoder) error {
	records := r.Read(ctx, from)
	some := func() {}
	if follow {
		records = r.Tail(ctx, from)
		some = a.waits(ctx, r, from)
		defer some()
	}
	none := true
	err := a.stream(follow, func(out *output) error {
		for rec, err := range records {
			if err != nil {
				return err
			}
			if none {
				some()
				none = false
			}
			if err := out.encode(encode, rec); err != nil {
				return fmt.Errorf("writing to standard output: %w", err)
			}
		}
		return nil
	})
	if err != nil || follow || !none || from == reader.Oldest {
		return err
	}
	end, err := endOf(ctx, r)
	if err == nil && from > end {
		err = ahead(from, end)
	}
	return err
}

// endOf is the offset behind the last record.
func endOf(ctx context.Context, r *reader.Reader) (uint64, error) {
	s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		return 0, err
	}
	return s.End(), s.Close(ctx)
}

// waits says after a while that a reader waits for the log to come to its first record,
// unless the function that it returns is called before.
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

// stream lets f print many small things, and what it has printed when it fails as
// well.
func (a *app) stream(follow bool, f func(*output) error) (err error) {
	out := newOutput(a.out, follow)
	defer func() {
		if ferr := out.Close(); err == nil && ferr != nil {
			err = fmt.Errorf("writing to standard output: %w", ferr)
		}
		if err != nil && closed(err) {
			err = errQuiet
		}
	}()
	return f(out)
}

// flushAfter is how long a record may wait for company.
const flushAfter = 20 * time.Millisecond

// output gathers small records into larger writes, without keeping one back for
// long while the log is followed.
type output struct {
	mu     sync.Mutex
	w      *bufio.Writer
	timer  *time.Timer // runs while something waits; nil if nobody follows
	err    error
	follow bool
}

func newOutput(w io.Writer, follow bool) *output {
	return &output{w: bufio.NewWriterSize(w, 256<<10), follow: follow}
}

func (o *output) encode(encode encoder, r reader.Record) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	o.err = encode(o.w, r)
	if o.err == nil && o.follow && o.timer == nil {
		o.timer = time.AfterFunc(flushAfter, o.flush)
	}
	return o.err
}

// write writes bytes that nobody follows.
func (o *output) write(b []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = o.w.Write(b)
	}
	return o.err
}

func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = nil
	if o.err == nil {
		o.err = o.w.Flush()
	}
}

// Close writes what waits.
func (o *output) Close() error {
	o.mu.Lock()
	if o.timer != nil {
		o.timer.Stop()
	}
	o.mu.Unlock()
	o.flush()
	return o.err
}
