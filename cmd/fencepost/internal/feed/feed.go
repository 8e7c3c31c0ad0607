package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost/writer"
)

// batchBytes is about how many bytes go into one append. The writer groups appends.
const batchBytes = blockSize

// UnknownError ends feeding without a cursor: the term was lost, and it is unknown whether
// the last records are in the log.
type UnknownError struct {
	// Committed records are certainly in the log. Unknown records may be in it. Records
	// after those are certainly not.
	Committed, Unknown int
	// From and To are the bytes of the source that the unknown records hold.
	From, To int64
	Err      error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%d records are certainly in the log, up to byte %d of the input; it is unknown whether the next %d are, up to byte %d; "+
		"later ones are not (compare with cat; --cursor avoids this doubt): %v", e.Committed, e.From, e.Unknown, e.To, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// Feed appends an input to a log. Work is for fencepost.Run, which calls it once in each
// term.
type Feed struct {
	// Batch is about how many bytes go into one append, if less than 256 KiB.
	Batch int64

	in     *Input
	cursor *Cursor // nil if none is wanted
	hooks  Hooks

	pending []sent
	done    int64  // bytes that are certainly in the log, from this run or an earlier one
	doneSum uint32 // their CRC-32C
	stats   Stats
	fatal   error
}

// Hooks report progress. Work calls them; each may be nil.
type Hooks struct {
	// Positioned: feeding begins or goes on at this byte of the input.
	Positioned func(at int64)
	// Skipping: so many bytes that are in the log already have been skipped.
	Skipping func(at int64)
	// Acknowledged: the input is in the log up to this byte.
	Acknowledged func(at int64)
}

// Stats count what was appended and acknowledged.
type Stats struct {
	Records int   `json:"records"`
	Bytes   int64 `json:"bytes"`
	// End is the end offset: the number of all records in the log.
	End uint64 `json:"end"`
	// Position is how many bytes of the input are in the log.
	Position int64 `json:"position"`
}

type sent struct {
	future writer.Future
	batch  Batch
}

// New returns a feed of in. With a source it stores a cursor, and goes on where the log's
// cursor is.
func New(in *Input, source string, hooks Hooks) *Feed {
	f := &Feed{in: in, hooks: hooks}
	if source != "" {
		f.cursor = &Cursor{Source: source, Format: in.format}
	}
	return f
}

// Stats returns what is certainly in the log. Call it when the last writer is closed.
func (f *Feed) Stats() Stats {
	f.reap(true)
	s := f.stats
	s.Position = f.done
	return s
}

// Fatal returns why feeding must not be retried in the next term; nil if it may.
func (f *Feed) Fatal() error { return f.fatal }

// Work appends the rest of the input through w. It returns nil when all of it is part of
// the history. If it fails without a cursor, it closes w first, to learn which records are
// in the log.
func (f *Feed) Work(ctx context.Context, w *writer.Writer) error {
	err := f.work(ctx, w)
	if err != nil && f.cursor == nil {
		// If the term is over, the writer ends at once. Otherwise the outcome of what is in
		// flight is known within moments.
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		_ = w.Close(drain)
		f.account(err)
		if f.fatal != nil {
			return f.fatal
		}
	}
	return err
}

func (f *Feed) work(ctx context.Context, w *writer.Writer) error {
	if f.fatal != nil {
		return f.fatal
	}
	if err := f.place(ctx, w); err != nil {
		return err
	}
	limits := w.Format().Limits
	batch := min(batchBytes, limits.Object)
	if f.Batch > 0 {
		batch = min(batch, f.Batch)
	}
	for {
		b, err := f.in.Next(ctx, limits.Record, batch)
		if err != nil {
			// The records before are complete, whatever is wrong with the rest.
			if ferr := w.Flush(ctx); ferr != nil {
				return ferr
			}
			f.reap(true)
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var opts []writer.AppendOption
		if f.cursor != nil {
			opts = append(opts, writer.Cursor(Cursor{f.cursor.Source, f.cursor.Format, b.To, b.sumTo}.encode()))
		}
		future, err := w.AppendAsync(ctx, b.Records, opts...)
		if err != nil {
			return err
		}
		f.pending = append(f.pending, sent{future, b})
		f.reap(false)
	}
}

// place takes the input to where the log's cursor is.
func (f *Feed) place(ctx context.Context, w *writer.Writer) error {
	to, sum := f.done, f.doneSum
	if f.cursor != nil {
		was, err := f.cursor.check(w.Recovered().Cursor)
		if err != nil {
			return err
		}
		// Earlier terms of this run have appended these, which is certain now.
		for _, s := range f.pending {
			if s.batch.To <= was.Offset {
				f.count(s.batch)
			}
		}
		to, sum = was.Offset, was.Sum
	}
	f.pending = nil
	if err := f.in.Seek(ctx, to, sum, f.hooks.Skipping); err != nil {
		return err
	}
	f.done, f.doneSum = to, sum
	f.stats.End = w.Recovered().Offset
	if f.hooks.Positioned != nil {
		f.hooks.Positioned(to)
	}
	return nil
}

// reap removes acknowledged appends from the front of pending. If all is true, it waits
// for the outcome of each.
func (f *Feed) reap(all bool) {
	n := 0
	for _, s := range f.pending {
		if !all && !done(s.future) {
			break
		}
		first, err := s.future.Wait(context.Background())
		if err != nil {
			break
		}
		n++
		f.count(s.batch)
		f.stats.End = first + uint64(len(s.batch.Records))
		f.done, f.doneSum = s.batch.To, s.batch.sumTo
	}
	if n == 0 {
		return
	}
	f.in.Release(f.done)
	clear(f.pending[:n])
	f.pending = f.pending[n:]
	if f.hooks.Acknowledged != nil {
		f.hooks.Acknowledged(f.done)
	}
}

func done(f writer.Future) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}

func (f *Feed) count(b Batch) {
	f.stats.Records += len(b.Records)
	f.stats.Bytes += b.To - b.From
}

// account determines, after the writer has ended, whether it is certain which records the
// log has.
func (f *Feed) account(cause error) {
	f.reap(true)
	unknown := UnknownError{Committed: f.stats.Records, From: f.done, Err: cause}
	for _, s := range f.pending {
		if _, err := s.future.Wait(context.Background()); !errors.Is(err, writer.ErrNotCommitted) {
			unknown.Unknown += len(s.batch.Records)
			unknown.To = s.batch.To
		}
	}
	if unknown.Unknown > 0 {
		f.fatal = &unknown
	}
}
