package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
)

// SnapshotOptions describe a snapshot. The zero value works.
type SnapshotOptions struct {
	// At is the moment that is wanted; the end of the log by default.
	At Moment
	// TTL is how long the snapshot's pin holds when it is not renewed, because this
	// process is gone; default 1 min, at least manifest.MinPinTTL. It is renewed
	// three times as often, with one PUT.
	TTL time.Duration
	// Name is in the pin, for people.
	Name string
	// Unpinned leaves the pin out: the snapshot writes nothing, and what it refers to
	// may be deleted after the log's grace period.
	Unpinned bool
}

// Snapshot is a log as it was at one moment: its records up to then, the live files
// and properties of its table, and the producer's cursor. It is safe for concurrent
// use.
//
// A pin in the store keeps what it refers to from being deleted, until Close. If
// the pin is lost, because this process could not renew it in time or somebody has
// taken it away, [Snapshot.Lost] is closed and Err says so. Records go on from what
// is kept otherwise, and fail if retention has deleted them; files may be deleted at
// any time from then on. What was read before stays right.
//
// The pin protects the files and the records, also those behind the floor of the
// version that it names, but for what had been given up already when a version before
// the newest was pinned, for a moment in the past: reading that fails with [ErrGone].
type Snapshot struct {
	r     *Reader
	m     *state.Manifest // that is pinned
	state *state.Manifest // m with the table as it was
	end   uint64
	// cursor is the producer's; nil if it is not known.
	cursor *[]byte

	pin *keeper // nil if unpinned, or if it leans on another's
}

const defaultTTL = time.Minute

// snapshotTries bounds how often a snapshot is begun anew because the floor has
// passed what was being read. Each time somebody has folded in between.
const snapshotTries = 32

var errFolded = fmt.Errorf("reader: the log was folded %d times while it was looked at; is it compacted without pause, and its grace too short?", snapshotTries)

// Snapshot takes a snapshot. It holds on to the version of the manifest that it
// needs, and reads the log from that version's floor to the moment that is wanted.
// Close it.
//
// Errors: [ErrGone], with what can be had instead; [ErrAhead] if the log has not
// come so far; [ErrPinLost] if the pin was lost meanwhile; [ErrCorrupt], [ErrFormat],
// the store's or ctx's.
func (r *Reader) Snapshot(ctx context.Context, opts *SnapshotOptions) (*Snapshot, error) {
	var o SnapshotOptions
	if opts != nil {
		o = *opts
	}
	switch {
	case o.TTL == 0:
		o.TTL = defaultTTL
	case o.TTL < manifest.MinPinTTL:
		return nil, fmt.Errorf("reader: a snapshot's TTL of %v is too short: it must be at least %v", o.TTL, manifest.MinPinTTL)
	}
	if o.At.by == "version" && o.At.number == 0 {
		// To the manifests 0 is the newest, whose floor may be far from the end of the log.
		return nil, errors.New("reader: there is no version 0: versions begin at 1, and the zero Moment is the end of the log")
	}
	for range snapshotTries {
		s, err := r.take(ctx, &o)
		if !errors.Is(err, errOvertaken) {
			return s, err
		}
	}
	return nil, errFolded
}

// take makes one attempt.
func (r *Reader) take(ctx context.Context, o *SnapshotOptions) (s *Snapshot, err error) {
	f := finding{Reader: r, opts: o}
	defer func() {
		if s == nil {
			err = errors.Join(err, f.letGo(ctx))
		}
	}()
	if err := f.find(ctx); err != nil {
		return nil, err
	}
	if f.pin != nil && f.pin.Err() != nil {
		return nil, f.pin.Err()
	}
	s = &Snapshot{r: r, m: f.m, state: f.state, end: f.at.Offset, pin: f.pin}
	if !f.noCursor {
		s.cursor = &f.at.Cursor
	}
	return s, nil
}

// Version is the manifest version that the snapshot holds on to.
func (s *Snapshot) Version() uint64 { return s.m.Version }

// First is the offset of the first record of the snapshot, and End that behind its
// last.
func (s *Snapshot) First() uint64 { return min(s.m.First(), s.end) }

// End is the offset behind the last record. Who goes on from the snapshot with
// Tail(ctx, s.End()) misses nothing.
func (s *Snapshot) End() uint64 { return s.end }

// Cursor is the producer's cursor at that moment, empty if there was none. It is
// not known, and the second result false, of offsets that were compacted since.
func (s *Snapshot) Cursor() ([]byte, bool) {
	if s.cursor == nil {
		return nil, false
	}
	return bytes.Clone(*s.cursor), true
}

// Properties of the table.
func (s *Snapshot) Properties() map[string]string { return maps.Clone(s.state.Properties) }

// Live is how many files the table has.
func (s *Snapshot) Live() int { return s.state.Live() }

// Files yields the live files of the table, in order of their keys. An error ends
// the sequence: ErrPinLost with [ErrGone], [ErrCorrupt], the store's or ctx's.
func (s *Snapshot) Files(ctx context.Context) iter.Seq2[manifest.File, error] {
	return func(yield func(manifest.File, error) bool) {
		for f, err := range s.r.log.Files(ctx, s.state) {
			if err != nil {
				yield(manifest.File{}, s.explain(err))
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// Records yields the records of the snapshot from offset from on, as Reader.Read
// does.
func (s *Snapshot) Records(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		c := s.r.cursor(from)
		c.held, c.pin, c.until = s.m, s.pin, s.end
		c.records(ctx, func(rec Record, err error) bool {
			if err != nil {
				err = s.explain(err)
			}
			return yield(rec, err)
		})
	}
}

// explain says of something that is gone that the pin is lost, or that there never
// was one.
func (s *Snapshot) explain(err error) error {
	switch {
	case !errors.Is(err, ErrGone) && !errors.Is(err, state.ErrGone):
		return err
	case s.Err() != nil:
		return fmt.Errorf("%w: %w", s.Err(), err)
	case s.pin == nil:
		return fmt.Errorf("reader: the snapshot of version %d has no pin of its own: %w", s.m.Version, err)
	}
	return err
}

// Lost is closed when the pin is lost, at the latest a TTL after the last renewal that
// was confirmed was sent. It is nil if there is no pin.
func (s *Snapshot) Lost() <-chan struct{} {
	if s.pin == nil {
		return nil
	}
	return s.pin.lost
}

// Err is nil as long as the pin holds, then an error that is [ErrPinLost]. Closing
// the snapshot is no loss.
func (s *Snapshot) Err() error {
	if s.pin == nil {
		return nil
	}
	return s.pin.Err()
}

// Close gives the pin up. It may be called more than once. If the store cannot be
// reached the pin goes when its TTL has passed.
func (s *Snapshot) Close(ctx context.Context) error {
	if s.pin == nil {
		return nil
	}
	return s.pin.release(ctx)
}
