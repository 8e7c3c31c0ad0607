package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
)

// RoleState is a role's last update.
type RoleState struct {
	Epoch fence.Epoch `json:"epoch"`
	// Update counts the updates of this epoch, from 1.
	Update uint64 `json:"update"`
	// Nonce of the last update tells it from one of another process that was
	// given the same token.
	Nonce fence.ID `json:"nonce"`
}

// Manifest is one version of the log's state. It is read-only; see [Change].
type Manifest struct {
	Format   int      `json:"format"`
	Requires []string `json:"requires,omitempty"`
	Log      fence.ID `json:"log"`
	// Version is the number in the key; 0 is the state before the first manifest.
	Version uint64 `json:"version"`
	// Nonce makes each manifest's bytes unlike all others.
	Nonce   fence.ID                  `json:"nonce"`
	Written time.Time                 `json:"written"`
	Roles   map[layout.Role]RoleState `json:"roles"`
	// Floor is the first point of the chain that is not folded into segments. Everything
	// before it may be deleted, except the seals.
	Floor frame.Point `json:"floor"`
	// Hint is a later point of the chain, which the leader has noted; nil if there is none.
	Hint *frame.Point `json:"hint,omitempty"`
	// Start is the offset of the first record that is still promised. It rises when
	// history is given up; see [Manifest.First].
	Start uint64 `json:"start,omitempty"`
	// Segments hold the records from Start to the floor, in order and without a gap.
	// The oldest are in pages if there are many; see [Log.Segments].
	Segments     []Segment      `json:"segments,omitempty"`
	SegmentPages []Page[uint64] `json:"segment_pages,omitempty"`
	// Seals are all seals on the chain before the floor, in order; the oldest are in pages
	// if there are many. See [Log.Seals]. Their objects stay in the store for ever.
	Seals     []Seal         `json:"seals,omitempty"`
	SealPages []Page[uint64] `json:"seal_pages,omitempty"`
	// Table is what the edits before the floor have made of the files and properties.
	Table
	// PruneMark is the version up to which nothing is promised: what a version at or below
	// it dropped may be deleted.
	PruneMark uint64 `json:"prune_mark,omitempty"`
	// KeepsVersions: the compactor keeps versions that were replaced, so nobody else may
	// raise the mark.
	KeepsVersions bool `json:"keeps_versions,omitempty"`
	// Dropped are the objects that no version refers to any more, in the order in which
	// that happened; the oldest are in pages if there are many. Those of versions up to
	// Forgotten are deleted. See [Log.Dropped].
	Dropped      []Dropped      `json:"dropped,omitempty"`
	DroppedPages []Page[uint64] `json:"dropped_pages,omitempty"`
	Forgotten    uint64         `json:"forgotten,omitempty"`

	release uint64 // see Release; not stored
}

// Segment is a compacted run of the log: an immutable object with the records
// [First, End).
type Segment struct {
	Key   string `json:"key"`
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
	// Size of the object and of its index at the end, in bytes.
	Size  int64 `json:"size"`
	Index int64 `json:"index"`
	// From and To are the least and greatest wall times of the writers.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// Seal is a seal on the chain before the floor.
type Seal struct {
	Position fence.Position `json:"position"`
	// Next is the epoch that it opened; Nonce is that of the seal's object.
	Next   fence.Epoch `json:"next"`
	Nonce  fence.ID    `json:"nonce"`
	Offset uint64      `json:"offset"`
}

// Dropped is an object that version Version no longer refers to.
type Dropped struct {
	Key     string `json:"key"`
	Version uint64 `json:"version"`
}

// Tail returns the later of floor and hint: the point from which to walk to the tail.
func (m *Manifest) Tail() frame.Point {
	if m.Hint != nil && m.Floor.Before(*m.Hint) {
		return *m.Hint
	}
	return m.Floor
}

// First is the offset of the first record that can be read: Start, or that of the first
// segment if earlier segments were dropped.
func (m *Manifest) First() uint64 {
	return max(m.Held(), m.Start)
}

// Held is the offset of the first record whose segment m names. It is before
// [Manifest.First] as long as a pin may hold what was given up.
func (m *Manifest) Held() uint64 {
	switch {
	case len(m.SegmentPages) > 0:
		return m.SegmentPages[0].From
	case len(m.Segments) > 0:
		return m.Segments[0].First
	}
	return m.Floor.Offset
}

// Past reports whether the floor has passed slot p. Then p is folded or was never on the
// chain, and may have been pruned.
func (m *Manifest) Past(p fence.Position) bool { return p.Before(m.Floor.Position) }

// Change is a manifest in the making: what the function of an update is given, and the
// only thing that can be changed. Manifests that were read are shared, so nobody may
// change them.
type Change struct{ *Manifest }

// Fold moves the floor from one point to a later one. Seals, segs and edits are the
// seals, the segments with the records, and the edits between them, in order. Files that
// the edits remove are dropped. The error is [ErrVoid] if the floor is not at from, since
// somebody else has folded. It is [fence.ErrCorrupt], with the key of the log object, for
// an edit that no correct writer commits.
func (m *Change) Fold(from, to frame.Point, seals []Seal, segs []Segment, edits []AppliedEdit) error {
	// guard:fold-floor. A fold is applied only to a manifest with the floor from which the fold was
	// made.
	if !m.Floor.Equal(from) {
		return ErrVoid
	}
	if err := m.apply(edits); err != nil {
		return err
	}
	m.Floor = to
	m.Segments = append(m.Segments, segs...)
	m.Seals = append(m.Seals, seals...)
	return nil
}

// Truncate gives up the records before an offset. Segments that hold no others are named
// until [Change.Release] drops them, for snapshots that are pinned. An offset before
// Start changes nothing. Records that are not folded cannot be given up.
func (m *Change) Truncate(before uint64) error {
	if before > m.Floor.Offset {
		return fmt.Errorf("manifest: records before %d cannot be given up: only those before %d are folded; compact first", before, m.Floor.Offset)
	}
	m.Start = max(m.Start, before)
	return nil
}

// Release drops the segments whose records are all before an offset and before Start.
func (m *Change) Release(before uint64) { m.release = max(m.release, min(before, m.Start)) }

// Forget removes from the list of dropped objects what versions up to upTo dropped. Call
// it after these objects were deleted from the store.
func (m *Change) Forget(upTo uint64) { m.Forgotten = max(m.Forgotten, min(upTo, m.PruneMark)) }

// Replace puts one segment in the place of consecutive ones that hold the same records,
// and drops these. The error is [ErrVoid] if they are no longer there.
func (m *Change) Replace(old []Segment, with Segment) error {
	// guard:replace-there. A merge replaces segments in the manifest only if the manifest still names
	// all of them.
	//
	//mutant:replace !slices.EqualFunc => false && !slices.EqualFunc
	i := slices.IndexFunc(m.Segments, func(s Segment) bool { return len(old) > 0 && s.Key == old[0].Key })
	if i < 0 || len(m.Segments)-i < len(old) {
		return ErrVoid
	}
	same := func(a, b Segment) bool { return a.Key == b.Key }
	if !slices.EqualFunc(m.Segments[i:i+len(old)], old, same) {
		return ErrVoid
	}
	for _, s := range old {
		m.drop(s.Key)
	}
	m.Segments = slices.Replace(m.Segments, i, i+len(old), with)
	return nil
}

// clone copies everything that an update may change.
func (m *Manifest) clone() *Manifest {
	c := *m
	c.Roles = make(map[layout.Role]RoleState, len(m.Roles)+1)
	for r, s := range m.Roles {
		c.Roles[r] = s
	}
	if m.Hint != nil {
		h := *m.Hint
		c.Hint = &h
	}
	c.Segments = slices.Clone(m.Segments)
	c.Seals = slices.Clone(m.Seals)
	c.Dropped = slices.Clone(m.Dropped)
	c.SegmentPages, c.SealPages = slices.Clone(m.SegmentPages), slices.Clone(m.SealPages)
	c.DroppedPages, c.FilePages = slices.Clone(m.DroppedPages), slices.Clone(m.FilePages)
	c.RemovedPages = slices.Clone(m.RemovedPages)
	c.Table.Files, c.Removed = slices.Clone(m.Table.Files), slices.Clone(m.Removed)
	c.Properties = maps.Clone(m.Properties)
	c.release = 0
	return &c
}
