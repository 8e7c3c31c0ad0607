package survey

import (
	"context"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

// Unfolded is what lies from the floor of a log to its tail. It marshals to JSON.
type Unfolded struct {
	// Objects of Bytes bytes. More: there are more objects than were counted, and Bytes are not known.
	Objects int   `json:"objects"`
	More    bool  `json:"more,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// OldestAt is when the first of them that is no seal was written, by its writer's time of day; zero if there is none, or if that
	// is not known.
	OldestAt time.Time `json:"oldest_at,omitzero"`
	// OldestAge is how long that object has been in the store, by the store's clock; 0 if the store
	// does not tell.
	OldestAge time.Duration `json:"-"`
}

// mostSeals bounds how many seals in a row are skipped to find the first object with records.
const mostSeals = 100

// unfolded measures what waits. It lists the objects below data/ from the floor on.
func (l *Log) unfolded(ctx context.Context, st store.Store, log *inspect.Log) error {
	u := &Unfolded{}
	seals := 0
	for h, err := range log.Unfolded(ctx, &l.State) {
		if err != nil {
			return err
		}
		if !h.Seal {
			u.OldestAt, u.OldestAge = h.Time, h.Age
			break
		}
		if seals++; seals == mostSeals {
			break
		}
	}
	for info, err := range Listing(ctx, st, inspect.Data.Prefix(), After(l.Floor), func() { u.Objects, u.Bytes = 0, 0 }) {
		if err != nil {
			return err
		}
		if n := inspect.Parse(info.Key); n.Kind == inspect.Data && !n.Slot.Before(l.Floor) {
			u.Objects++
			u.Bytes += info.Size
		}
	}
	l.Unfolded = u
	return nil
}

// After are the options of a listing that begins at a slot, or a little before it.
func After(p fence.Position) *store.ListOptions {
	if p.Seq > 0 {
		p.Seq--
	}
	return &store.ListOptions{StartAfter: inspect.Name{Kind: inspect.Data, Slot: p}.Key()}
}

// AfterFloor returns how many records are in the log, and whether there are changes of the table that no version of the
// manifest has. These are only searched for if no records are after the floor.
func AfterFloor(ctx context.Context, st store.Store) (end uint64, edits bool, err error) {
	log, err := inspect.Open(ctx, st, nil)
	if err != nil {
		return 0, false, err
	}
	look, err := log.Look(ctx, nil)
	if err != nil {
		return 0, false, err
	}
	if look.End > look.FloorOffset || look.Tail == look.Floor {
		return look.End, false, nil
	}
	for h, err := range log.Unfolded(ctx, &look.State) {
		if err != nil {
			return 0, false, err
		}
		if h.Edit {
			return look.End, true, nil
		}
	}
	return look.End, false, nil
}
