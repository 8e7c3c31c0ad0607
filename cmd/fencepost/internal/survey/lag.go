package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// Lag says what lies between the parts of a log and its end. It marshals to JSON. All times are
// the writers' times of day; zero if unknown.
type Lag struct {
	Tail fence.Position `json:"tail"`
	// End is the number of all records. LastAt is when the last object of the log was
	// written.
	End    uint64    `json:"end"`
	LastAt time.Time `json:"last_at,omitzero"`
	// Compacted is the number of records before the floor. The others are in Objects objects
	// of Bytes bytes, the first of which was written at OldestAt.
	Compacted uint64    `json:"compacted"`
	Waiting   uint64    `json:"waiting"`
	Objects   int       `json:"objects"`
	Bytes     int64     `json:"bytes"`
	OldestAt  time.Time `json:"oldest_at,omitzero"`
	// OldestAge is how long that object has been in the store, by the store's clock; 0 if the store
	// does not tell.
	OldestAge time.Duration `json:"-"`
	// Checkpoint is the number of records before the last checkpoint: a new leader reads the
	// others.
	Checkpoint uint64 `json:"checkpoint"`
}

// Behind measures the lag of the log in st. It lists the objects below data/ from the floor
// on, and writes nothing.
func Behind(ctx context.Context, st store.Store) (*Lag, error) {
	log, err := state.Open(ctx, st, nil)
	if err != nil {
		return nil, err
	}
	m, tail, last, err := findTail(ctx, st, log)
	if err != nil {
		return nil, err
	}
	l := &Lag{
		Tail: tail.Position, End: tail.Offset, LastAt: last, Compacted: m.Floor.Offset, Waiting: tail.Offset - m.Floor.Offset,
		Checkpoint: min(m.Tail().Offset, tail.Offset), // m may have a checkpoint of records that came after the walk
	}
	if l.LastAt.IsZero() && tail.Position.Seq > 1 {
		if h, _, err := header(ctx, st, fence.Position{Epoch: tail.Position.Epoch, Seq: tail.Position.Seq - 1}); err == nil {
			l.LastAt = h.Time
		}
	}
	if l.OldestAt, l.OldestAge, err = oldest(ctx, st, log, m); err != nil {
		return nil, err
	}
	after := &store.ListOptions{}
	if at := m.Floor.Position; at.Seq > 1 {
		after.StartAfter = layout.DataKey(fence.Position{Epoch: at.Epoch, Seq: at.Seq - 1})
	}
	for info, err := range Listing(ctx, st, layout.DataPrefix, after, func() { l.Objects, l.Bytes = 0, 0 }) {
		if err != nil {
			return nil, err
		}
		if p, ok := layout.ParseDataKey(info.Key); ok && !m.Past(p) {
			l.Objects++
			l.Bytes += info.Size
		}
	}
	return l, nil
}

// Loose is what is in the log after its floor, and so in no version of the manifest.
type Loose struct {
	// End is the number of all records, Records how many of them are after the floor.
	End, Records uint64
	// Edits tells whether there are changes of the table after the floor. It is only
	// searched for if there are no records.
	Edits bool
}

// AfterFloor returns what is after the floor of the log in st.
func AfterFloor(ctx context.Context, st store.Store) (Loose, error) {
	log, err := state.Open(ctx, st, nil)
	if err != nil {
		return Loose{}, err
	}
	m, tail, _, err := findTail(ctx, st, log)
	if err != nil {
		return Loose{}, err
	}
	l := Loose{End: tail.Offset, Records: tail.Offset - m.Floor.Offset}
	if l.Records > 0 || tail.Position == m.Floor.Position {
		return l, nil
	}
	edits := false
	begin := func(m *state.Manifest) frame.Point {
		edits = false
		return m.Floor
	}
	m, tail, _, err = walkToTail(ctx, st, log, begin, func(step chain.Step) { edits = edits || step.Frame.Kind == frame.Edit })
	if err != nil {
		return Loose{}, err
	}
	return Loose{End: tail.Offset, Records: tail.Offset - m.Floor.Offset, Edits: edits}, nil
}

// header reads the header of a log object.
func header(ctx context.Context, st store.Store, p fence.Position) (frame.Header, store.Info, error) {
	b, info, err := store.Read(ctx, st, layout.DataKey(p), &store.ReadOptions{Length: frame.HeaderSize})
	if err != nil {
		return frame.Header{}, info, err
	}
	h, err := frame.DecodeHeader(b)
	if err != nil {
		err = fmt.Errorf("%s: %w", layout.DataKey(p), err)
	}
	return h, info, err
}

// oldest returns when the first object at or after the floor of m was written that is no seal, and its
// age; zero if there is none, or it was pruned meanwhile.
func oldest(ctx context.Context, st store.Store, log *state.Log, m *state.Manifest) (time.Time, time.Duration, error) {
	p := m.Floor.Position
	for range tailTries {
		h, info, err := header(ctx, st, p)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return time.Time{}, 0, lost(ctx, log, m, p)
		case err != nil:
			return time.Time{}, 0, err
		case h.Kind != frame.Seal:
			age, known := info.Age()
			if known {
				age = max(age, 1) // 0 says that it is not known
			}
			return h.Time, age, nil
		}
		p = fence.Position{Epoch: h.Next, Seq: 1}
	}
	return time.Time{}, 0, nil
}

// lost returns an error if the object at p, which was absent after m was read, is lost: compaction cannot go on there.
// It was not pruned if the floor is still that of m. It was not the tail if m has a checkpoint after it. A checkpoint of
// a later manifest says nothing: the object may have come meanwhile.
func lost(ctx context.Context, log *state.Log, m *state.Manifest, p fence.Position) error {
	now, err := log.Newest(ctx)
	if err != nil || now.Floor.Position != m.Floor.Position || !p.Before(m.Tail().Position) {
		return err
	}
	return fmt.Errorf("%w: %s is missing; manifest %d says that the log was acknowledged up to %v",
		fence.ErrCorrupt, layout.DataKey(p), m.Version, m.Tail().Position)
}
