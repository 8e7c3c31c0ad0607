package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost/writer"
)

// batchBytes is about how much goes into one append. The writer groups them.
const batchBytes = blockSize

// UnknownError ends feeding without a cursor: the term was lost, and nobody can
// tell whether the last records are in the log.
type UnknownError struct {
	// Committed records are certainly in the log; Unknown ones may be or not; what
	// came after them is certainly not.
	Committed, Unknown int
	// From and To are the bytes of the source that are in doubt.
	From, To int64
	Err      error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%d records were appended for certain, up to byte %d of the input; of the next %d, up to byte %d, it is unknown whether they are in the log; "+
		"nothing behind them is (look with cat, and use --cursor, which makes this certain): %v", e.Committed, e.From, e.Unknown, e.To, e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// Feed appends an input to a log. Its Work is for fencepost.Run and may be called
// once a term.
type Feed struct {
	// Batch is about how many bytes go into one append, if less than 256 KiB.
	Batch int

	in     *Input
	cursor *Cursor // nil if none is wanted
	hooks  Hooks

	pending []sent
	done    int64  // bytes that are certainly in the log, of this run or before
	doneSum uint32 // of them
	stats   Stats
	fatal   error
}

// Hooks tell how it goes. Each may be nil, and is called from Work.
type Hooks struct {
	// Positioned: feeding begins, or goes on, at a byte of the input.
	Positioned func(at int64)
	// Skipping: so many bytes that are in the log have been read over.
	Skipping func(at int64)
	// Acknowledged: the input is in the log up to a byte.
	Acknowledged func(at int64)
}

// Stats count what was appended and acknowledged.
type Stats struct {
	Records int   `json:"records"`
	Bytes   int64 `json:"bytes"`
	// End is the offset in the log behind the last record.
	End uint64 `json:"end"`
	// Position is how many bytes of the input are in the log.
	Position int64 `json:"position"`
}

type sent struct {
	future writer.Future
	batch  Batch
}

// New feeds in. With a cursor, of which only Source counts, it goes on where the
// log's ends.
func New(in *Input, source string, hooks Hooks) *Feed {
	f := &Feed{in: in, hooks: hooks}
	if source != "" {
		f.cursor = &Cursor{Source: source, Format: in.format}
	}
	return f
}

// Stats returns what is certainly appended. It is for after the last writer has
// been closed.
func (f *Feed) Stats() Stats {
	f.reap(true)
	s := f.stats
	s.Position = f.done
	return s
}

// Fatal returns why feeding must not be tried again, although the term's loss
// alone would be no reason; or nil.
func (f *Feed) Fatal() error { return f.fatal }

// Work appends the rest of the input through w. It returns nil when all of it is
// part of the history. On an error without a cursor it closes w first, to learn
// what became of the rest.
func (f *Feed) Work(ctx context.Context, w *writer.Writer) error {
	err := f.work(ctx, w)
	if err != nil && f.cursor == nil {
		// Bounded by the writer's own term if that is over; else what is under way is
		// settled within moments.
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
			// What came before is complete, whatever is wrong with the rest.
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
			c, err := Cursor{f.cursor.Source, f.cursor.Format, b.To, b.sumTo}.encode()
			if err != nil {
				return err
			}
			opts = append(opts, writer.Cursor(c))
		}
		future, err := w.AppendAsync(ctx, b.Records, opts...)
		if err != nil {
			return err
		}
		f.pending = append(f.pending, sent{future, b})
		f.reap(false)
	}
}

// place goes to where the log ends.
func (f *Feed) place(ctx context.Context, w *writer.Writer) error {
	to, sum := f.done, f.doneSum
	if f.cursor != nil {
		was, err := f.cursor.check(w.Recovered().Cursor)
		if err != nil {
			return err
		}
		// What was appended in earlier terms of this run, and is certain now.
		for _, s := range f.pending {
			if s.batch.To <= was.Offset {
				f.count(s.batch)
			}
		}
		to, sum = was.Offset, was.Sum
	}
	f.pending = nil
	skipping := f.hooks.Skipping
	if skipping == nil {
		skipping = func(int64) {}
	}
	if err := f.in.Seek(ctx, to, sum, skipping); err != nil {
		return err
	}
	f.done, f.doneSum = to, sum
	f.stats.End = w.Recovered().Offset
	if f.hooks.Positioned != nil {
		f.hooks.Positioned(to)
	}
	return nil
}

// reap takes what is acknowledged from the front, and waits for all of it if
// all is settled or about to be.
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

// account finds out, after the writer has ended, whether it is certain what the
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
