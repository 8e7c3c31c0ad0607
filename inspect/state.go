package inspect

import (
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
)

// State is what the newest manifest of a log says. It marshals to JSON. It is read-only.
type State struct {
	// Version of the manifest; 0 if there is none yet. Written is when that was, by its writer's time of day.
	Version uint64    `json:"version"`
	Written time.Time `json:"written,omitzero"`
	// Writer and Compactor are the epochs of the leader and of the compactor who have written a manifest last, and
	// the updates count what each has written in that epoch; 0 if none has.
	Writer          fence.Epoch `json:"writer_epoch"`
	WriterUpdate    uint64      `json:"writer_update"`
	Compactor       fence.Epoch `json:"compactor_epoch"`
	CompactorUpdate uint64      `json:"compactor_update"`
	// First is the offset of the first record that is kept.
	First uint64 `json:"first"`
	// Floor is the first slot that is not folded into segments, and FloorOffset how many records are before it.
	Floor       fence.Position `json:"floor"`
	FloorOffset uint64         `json:"floor_offset"`
	// Noted is the slot up to which the leader has noted that the log is acknowledged, or Floor if that is later.
	// A new leader reads what comes after it.
	Noted       fence.Position `json:"noted"`
	NotedOffset uint64         `json:"noted_offset"`
	// Segments, Seals and Files are how many are named: segments, seals before the floor, and files of the
	// table that are live there. Dropped objects wait until they may be deleted. Lists are pages of long lists.
	Segments int `json:"segments"`
	Seals    int `json:"seals"`
	Files    int `json:"files"`
	Dropped  int `json:"dropped"`
	Lists    int `json:"lists"`
	// Edits of the table before the floor.
	Edits uint64 `json:"edits"`
	// PruneMark is the version up to which nothing is promised.
	PruneMark uint64 `json:"prune_mark"`
	// Ends are the newest seals before the floor, in order. Long logs have more: see Seals.
	Ends []Header `json:"-"`
}

func newState(log *state.Log, m *state.Manifest) *State {
	noted, w, c := m.Tail(), m.Roles[layout.Writer], m.Roles[layout.Compactor]
	s := &State{
		Version: m.Version, Written: m.Written, Writer: w.Epoch, WriterUpdate: w.Update, Compactor: c.Epoch, CompactorUpdate: c.Update,
		First: m.First(), Floor: m.Floor.Position, FloorOffset: m.Floor.Offset, Noted: noted.Position, NotedOffset: noted.Offset,
		Segments: len(m.Segments) + paged(m.SegmentPages), Seals: len(m.Seals) + paged(m.SealPages), Files: m.Live(),
		Dropped: len(m.Dropped) + paged(m.DroppedPages), Lists: len(log.Lists(m)), Edits: m.Edits, PruneMark: m.PruneMark,
	}
	for _, e := range m.Seals {
		s.Ends = append(s.Ends, Header{Slot: e.Position, Offset: e.Offset, Seal: true, Next: e.Next})
	}
	return s
}

// paged counts the entries of pages.
func paged(pages []state.Page[uint64]) (n int) {
	for _, p := range pages {
		n += p.Count
	}
	return n
}

// SealSize is the size of a seal, in bytes. Every other log object is larger.
const SealSize = frame.HeaderSize

// Header is what a log object begins with.
type Header struct {
	Slot fence.Position
	// Seal ends the epoch of its slot, and Next goes on.
	Seal bool
	Next fence.Epoch
	// Edit is a change of the table. It has no records, nor has a seal.
	Edit bool
	// Offset is how many records are before it, and Records how many it has. The offset of a seal is only known
	// if it is one of [State].Ends.
	Offset  uint64
	Records int
	// Time is the writer's time of day. Age is how long the object has been in the store, by the store's
	// clock; 0 if the store does not tell.
	Time time.Time
	Age  time.Duration
}
