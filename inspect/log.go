package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Log is a log that is looked at. It is safe for concurrent use, and need not be closed.
type Log struct {
	log    *state.Log
	st     store.Store
	settle *store.SettleOptions
}

// Open reads the format of the log in st: one GET. Settle, which may be nil, tunes retries. Errors are those of
// [manifest.ReadFormat].
func Open(ctx context.Context, st store.Store, settle *store.SettleOptions) (*Log, error) {
	o := &state.Options{Settle: settle}
	if settle != nil {
		o.Clock = settle.Clock
	}
	log, err := state.Open(ctx, st, o)
	if err != nil {
		return nil, err
	}
	return &Log{log, st, settle}, nil
}

// Format is what format.json says.
func (l *Log) Format() manifest.Format { return l.log.Format() }

// Newest reads the newest manifest. It costs one LIST, and one GET unless nothing has changed since the last call.
// Errors: [fence.ErrCorrupt], also if manifests have been lost; [fence.ErrFormat]; the store's or ctx's.
func (l *Log) Newest(ctx context.Context) (*State, error) {
	m, err := l.log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	return newState(l.log, m), nil
}

// Look is a log at one moment. It marshals to JSON. It is read-only.
type Look struct {
	// State was read after the end was found. What a leader has noted since beyond Tail is left out.
	State `json:"manifest"`
	// Tail is the first empty slot of the log, and End how many records were ever appended.
	Tail fence.Position `json:"tail"`
	End  uint64         `json:"end"`
	// Cursor is the producer's at the tail; empty if there is none.
	Cursor []byte `json:"cursor,omitempty"`
	// LastAt is when the last object was written, by its writer's time of day; zero if that is not known.
	LastAt time.Time `json:"last_at,omitzero"`

	// The last object before the tail is at last. The next look reads it again: it is gone, or another one, if the
	// log was replaced by an older copy of itself.
	last, tail frame.Point
	log        fence.ID
}

// tries bounds how often the walk to the tail begins again because the floor has moved.
const tries = 100

// Look walks to the end of the log. It reads every object after what the leader has noted last; on a busy log those
// are up to some 1,000 or 256 MiB. Before is an earlier look at the same place, or nil: then it reads only what came
// after that. It adds one LIST and two GETs.
//
// Errors: [fence.ErrCorrupt] says what is damaged or missing; those of [Log.Newest].
func (l *Log) Look(ctx context.Context, before *Look) (*Look, error) {
	if before != nil && before.log != l.Format().Log {
		before = nil
	}
	k, err := l.look(ctx, before)
	if before != nil && (errors.Is(err, fence.ErrCorrupt) || err == nil && k.Tail.Before(before.Tail)) { // replaced, or damaged
		k, err = l.look(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case !k.LastAt.IsZero():
	case before != nil && k.Tail == before.Tail:
		k.LastAt = before.LastAt
	case k.Tail.Seq > 1:
		if h, err := l.header(ctx, fence.Position{Epoch: k.Tail.Epoch, Seq: k.Tail.Seq - 1}); err == nil {
			k.LastAt = h.Time
		}
	}
	return k, nil
}

func (l *Log) look(ctx context.Context, before *Look) (*Look, error) {
	format := l.Format()
	var m *state.Manifest
	newest := func(ctx context.Context) (at fence.Position, err error) {
		if m, err = l.log.Newest(ctx); err == nil {
			at = m.Floor.Position
		}
		return at, err
	}
	f := chain.Follower{Source: &chain.Source{Store: l.st, Log: format.Log, Limits: format.Limits, Settle: l.settle}, Floor: newest}
	for range tries {
		if _, err := newest(ctx); err != nil {
			return nil, err
		}
		k := &Look{log: format.Log, tail: m.Tail()}
		if before != nil && k.tail.Position.Before(before.last.Position) {
			k.tail = before.last
		}
		k.last = k.tail
		var failed error
		for step, err := range f.Walk(ctx, k.tail) {
			if failed = err; err == nil {
				k.last, k.tail = step.From, step.To
				if step.Frame.Kind != frame.Seal {
					k.LastAt = step.Frame.Time
				}
			}
		}
		if failed == nil {
			failed = f.Tail(ctx, k.tail.Position)
		}
		switch {
		case errors.Is(failed, chain.ErrMoved):
			continue
		case failed != nil:
			return nil, failed
		}
		k.State, k.Tail, k.End, k.Cursor = *newState(l.log, m), k.tail.Position, k.tail.Offset, k.tail.Cursor
		if k.Tail.Before(k.Noted) {
			k.Noted, k.NotedOffset = k.Tail, k.End
		}
		return k, nil
	}
	return nil, fmt.Errorf("the floor moved %d times while the tail was looked for; is the log compacted without pause?", tries)
}

// Unfolded yields the headers of the objects from the floor of s on, in the order of the log: one GET of [SealSize]
// bytes each, so it is for those who need few. It ends at the first empty slot, or where the log was folded meanwhile:
// then what it has yielded last may be what a zombie has left in the place of an object that was pruned.
//
// Errors end it: [fence.ErrCorrupt] for an object that is damaged, or that is missing although the leader has noted
// a later one; [fence.ErrFormat]; the store's or ctx's.
func (l *Log) Unfolded(ctx context.Context, s *State) iter.Seq2[Header, error] {
	return func(yield func(Header, error) bool) {
		p := s.Floor
		for {
			h, err := l.header(ctx, p)
			if errors.Is(err, store.ErrNotFound) || errors.Is(err, fence.ErrCorrupt) {
				err = l.missing(ctx, s, p, err)
				if err == nil {
					return
				}
			}
			if !yield(h, err) || err != nil {
				return
			}
			if p.Seq++; h.Seal {
				p = fence.Position{Epoch: h.Next, Seq: 1}
			}
		}
	}
}

// header reads the header of a log object.
func (l *Log) header(ctx context.Context, p fence.Position) (Header, error) {
	key := layout.DataKey(p)
	b, info, err := store.Read(ctx, l.st, key, &store.ReadOptions{Length: frame.HeaderSize, Settle: l.settle})
	if err != nil {
		return Header{}, err
	}
	h, err := frame.DecodeHeader(b)
	if err != nil {
		return Header{}, fmt.Errorf("%s: %w", key, err)
	}
	if h.Log != l.Format().Log || h.Position != p {
		return Header{}, fmt.Errorf("%w: %s: it is of log %s and says that it is %s", fence.ErrCorrupt, key, h.Log, layout.DataKey(h.Position))
	}
	out := Header{Slot: p, Seal: h.Kind == frame.Seal, Next: h.Next, Edit: h.Kind == frame.Edit, Offset: h.Offset, Records: int(h.Records), Time: h.Time}
	if age, known := info.Age(); known {
		out.Age = max(age, 1) // 0 says that it is not known
	}
	return out, nil
}

// missing returns nil if the object at p, which is absent or damaged, was folded after s was read, or if it is absent at
// the end of the log. Otherwise it is err, or says that it is lost: it was not pruned if the floor is still that of s, and it
// was not the tail if the leader had noted a later one in s. What is noted later says nothing: the object may have come meanwhile.
func (l *Log) missing(ctx context.Context, s *State, p fence.Position, err error) error {
	now, nerr := l.Newest(ctx)
	switch absent := errors.Is(err, store.ErrNotFound); {
	case nerr != nil:
		return nerr
	case p.Before(now.Floor):
		return nil
	case !absent:
		return err
	case now.Floor == s.Floor && p.Before(s.Noted):
		return fmt.Errorf("%w: %s is missing; manifest %d says that the log was acknowledged up to %v", fence.ErrCorrupt, layout.DataKey(p), s.Version, s.Noted)
	}
	return nil
}

// Files returns the store that has the files of the log's table, under their keys: the log's own, or second if the log
// keeps them there, whose mark it reads then. The error is [manifest.ErrFiles] if second is missing, superfluous, or
// not that of the log in this place.
func (l *Log) Files(ctx context.Context, second store.Store) (store.Store, error) {
	f := l.Format()
	return state.With(l.st, f, &state.Options{Settle: l.settle, Files: second}).CheckFiles(ctx, true)
}
