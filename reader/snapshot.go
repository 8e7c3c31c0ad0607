package reader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
)

// Snapshot is the log at one moment: the records up to then, the live files and
// properties of its table, and the producer's cursor. It is safe for concurrent use.
//
// A pin in the store keeps from deletion what the snapshot refers to, until
// [Snapshot.Close]. If the pin is lost, [Snapshot.Lost] is closed and [Snapshot.Err] says
// why: this process could not renew it in time, or somebody expired it. From then on
// files may be deleted at any time, and records may be deleted by retention. What was
// read before stays right.
//
// A snapshot lacks the records that were truncated before it was taken, or, if it was
// taken at an older version, before that version was pinned. Reading these fails with
// [ErrGone].
type Snapshot struct {
	r     *Reader
	m     *state.Manifest // the version that is kept
	table *state.Manifest // m with the edits before end
	end   frame.Point

	pin *renewer // nil if unpinned, or if another's pin keeps the version
}

// searches bounds how often a search begins again because the floor has moved. Each time
// a compactor has folded in between.
const searches = 32

var errFolded = fmt.Errorf("reader: the log was folded %d times during one search; compact it less often, or make its grace period longer", searches)

// Snapshot takes a snapshot of the end of the log, or of a version. Close it.
//
// Everything acknowledged before the call is in a snapshot of the end. Errors:
// [ErrOptions]; [ErrGone], which says what is still there; [ErrPinLost] if the pin was
// lost meanwhile; [ErrCorrupt], [ErrFormat], the store's or ctx's. It costs two PUTs for
// the pin, and reads the chain from the floor to the end.
func (r *Reader) Snapshot(ctx context.Context, opts *SnapshotOptions) (*Snapshot, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	o.Unpinned = o.Unpinned || r.log.Format().Backup // no compactor is at work there
	for range searches {
		s, err := r.snapshot(ctx, o)
		if !errors.Is(err, errMoved) {
			return s, err
		}
	}
	return nil, errFolded
}

// snapshot makes one attempt.
func (r *Reader) snapshot(ctx context.Context, o SnapshotOptions) (s *Snapshot, err error) {
	q := search{Reader: r, want: o}
	defer func() {
		if s == nil {
			err = errors.Join(err, q.release(ctx))
		}
	}()
	if err := q.find(ctx); err != nil {
		return nil, err
	}
	if q.pin != nil && q.pin.Err() != nil {
		return nil, q.pin.Err()
	}
	return &Snapshot{r: r, m: q.m, table: q.table, end: q.end, pin: q.pin}, nil
}

// Version is the version of the manifest that the snapshot refers to.
func (s *Snapshot) Version() uint64 { return s.m.Version }

// First is the offset of the first record, or End if there is none.
func (s *Snapshot) First() uint64 { return min(s.m.First(), s.end.Offset) }

// End is the number of records in the log at that moment. A caller that goes on from the
// snapshot with Tail(ctx, s.End()) misses nothing.
func (s *Snapshot) End() uint64 { return s.end.Offset }

// Cursor returns the producer's cursor, empty if there was none.
func (s *Snapshot) Cursor() []byte { return bytes.Clone(s.end.Cursor) }

// Properties returns the properties of the table.
func (s *Snapshot) Properties() map[string]string { return maps.Clone(s.table.Properties) }

// Live is the number of files in the table.
func (s *Snapshot) Live() int { return s.table.Live() }

// Files yields the live files of the table, in order of their keys. An error ends the
// sequence: [ErrPinLost] if the pin is lost and the table was deleted; [ErrCorrupt]; the
// store's or ctx's.
func (s *Snapshot) Files(ctx context.Context) iter.Seq2[manifest.File, error] {
	return func(yield func(manifest.File, error) bool) {
		for f, err := range s.r.log.Files(ctx, s.table) {
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

// Records yields the records of the snapshot from offset from on, as [Reader.Read] does.
// [Oldest] is the snapshot's own first record.
func (s *Snapshot) Records(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		c := s.r.stream(from)
		c.pinned, c.pin, c.until = s.m, s.pin, s.end.Offset
		c.records(ctx, func(rec Record, err error) bool {
			if err != nil {
				err = s.explain(err)
			}
			return yield(rec, err)
		})
	}
}

// explain adds to the error of something that is gone that the pin is lost, or that
// there is none.
func (s *Snapshot) explain(err error) error {
	switch {
	case !errors.Is(err, ErrGone) && !errors.Is(err, state.ErrPruned):
		return err
	case s.Err() != nil:
		return fmt.Errorf("%w: %w", s.Err(), err)
	case s.pin == nil:
		return fmt.Errorf("reader: the snapshot of version %d has no pin of its own: %w", s.m.Version, err)
	case s.pin.over():
		return fmt.Errorf("reader: the snapshot of version %d was closed: %w", s.m.Version, err)
	}
	return err
}

// Lost is closed when the pin is lost, at the latest a TTL after the last confirmed
// renewal was sent. It is nil if there is no pin.
func (s *Snapshot) Lost() <-chan struct{} {
	if s.pin == nil {
		return nil
	}
	return s.pin.lost
}

// Err returns nil while the pin holds, and after Close. When the pin is lost it returns
// why, an [ErrPinLost].
func (s *Snapshot) Err() error {
	if s.pin == nil {
		return nil
	}
	return s.pin.Err()
}

// Close deletes the pin. It may be called more than once. If it fails, the pin lapses
// when its TTL has passed.
func (s *Snapshot) Close(ctx context.Context) error {
	if s.pin == nil {
		return nil
	}
	return s.pin.release(ctx)
}
