package state

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
)

// Table is the state that edits make: live files and properties. Files that have been
// live for a while are in pages, the others are here. [Log.Files] yields both.
type Table struct {
	// Edits is how many edits have been applied. EditedAt is the offset of the last one:
	// the number of records before it.
	Edits    uint64 `json:"edits,omitempty"`
	EditedAt uint64 `json:"edited_at,omitempty"`
	// Properties of the table.
	Properties map[string]string `json:"properties,omitempty"`
	// Files are live and not in a page, in order of their keys.
	Files []manifest.File `json:"files,omitempty"`
	// FilePages hold the other files, in order of their keys.
	FilePages []Page[string] `json:"file_pages,omitempty"`
	// Removed are files in FilePages that are no longer live, in order; RemovedPages hold
	// more of them. So a removal does not rewrite its page at once.
	Removed      []string       `json:"removed,omitempty"`
	RemovedPages []Page[string] `json:"removed_pages,omitempty"`
}

// Live is how many files are live.
func (t *Table) Live() int {
	n := len(t.Files) - len(t.Removed)
	for _, p := range t.FilePages {
		n += p.Count
	}
	for _, p := range t.RemovedPages {
		n -= p.Count
	}
	return n
}

// AppliedEdit is an edit in its place on the chain.
type AppliedEdit struct {
	// Position is the slot of the object that holds it.
	Position fence.Position
	// Offset is the number of records before it.
	Offset uint64
	Edit   *manifest.Edit
}

// Apply returns a manifest like m whose table has some more edits applied, in their
// order. It is for reading with [Log.Files]. Errors are those of [Change.Fold].
func (m *Manifest) Apply(edits []AppliedEdit) (*Manifest, error) {
	c := m.clone()
	if err := c.apply(edits); err != nil {
		return nil, err
	}
	return c, nil
}

// apply applies edits to the inline part of the table. An edit of a correct
// writer it never refuses.
func (m *Manifest) apply(edits []AppliedEdit) error {
	if len(edits) == 0 {
		return nil
	}
	a := applying{m: m, files: make(map[string]manifest.File), removed: make(map[string]bool), dropped: make(map[string]bool)}
	for _, f := range m.Table.Files {
		a.files[f.Key] = f
	}
	for _, key := range m.Table.Removed {
		a.removed[key] = true
	}
	for _, d := range m.Dropped {
		a.dropped[d.Key] = true
	}
	properties, at := m.Properties, m.EditedAt
	for _, e := range edits {
		var err error
		if e.Offset < at {
			return document.Corrupt(layout.DataKey(e.Position), "the edit lies at offset %d, one before it at %d", e.Offset, at)
		}
		if err := a.edit(e); err != nil {
			return err
		}
		if properties, err = SetProperties(e.Edit, properties); err != nil {
			return document.Corrupt(layout.DataKey(e.Position), "%v", err)
		}
		at = e.Offset
	}
	m.Properties, m.EditedAt = properties, at
	m.Edits += uint64(len(edits))
	m.Table.Files = slices.SortedFunc(maps.Values(a.files), func(a, b manifest.File) int { return cmp.Compare(a.Key, b.Key) })
	m.Removed = slices.Sorted(maps.Keys(a.removed))
	m.drop(a.out...)
	return nil
}

// applying is the inline part of a table while edits are applied.
type applying struct {
	m       *Manifest
	files   map[string]manifest.File
	removed map[string]bool
	dropped map[string]bool
	out     []string // removed by these edits, in order
}

func (a *applying) edit(e AppliedEdit) error {
	key := layout.DataKey(e.Position)
	if err := e.Edit.Validate(); err != nil {
		return document.Corrupt(key, "%v", err)
	}
	for _, f := range e.Edit.Add {
		epoch, _, _, _ := layout.ParseFileKey(f.Key)
		_, live := a.files[f.Key]
		switch {
		case epoch != e.Position.Epoch:
			// guard:edit-epoch. An edit adds only files of its own epoch; anything else is damage.
			return document.Corrupt(key, "the edit adds %s, a file of another epoch", f.Key)
		case live || a.removed[f.Key] || a.dropped[f.Key]:
			// guard:edit-again. An edit is damage if it adds a file that the manifest itself names as
			// live or as removed.
			return document.Corrupt(key, "the edit adds %s, which is live or was removed before", f.Key)
		}
		a.files[f.Key] = f
	}
	for _, gone := range e.Edit.Remove {
		_, live := a.files[gone]
		if !live {
			// guard:edit-live. An edit that removes a file which is not live is damage.
			//
			//mutant:replace a.removed[gone] || a.dropped[gone] || pageOf(a.m.FilePages, gone) < 0 => false
			if a.removed[gone] || a.dropped[gone] || pageOf(a.m.FilePages, gone) < 0 {
				return document.Corrupt(key, "the edit removes %s, which is not live", gone)
			}
			a.removed[gone] = true
		}
		delete(a.files, gone)
		a.dropped[gone] = true
		a.out = append(a.out, gone)
	}
	return nil
}

// drop notes objects that the next version no longer refers to.
func (m *Manifest) drop(keys ...string) {
	for _, key := range keys {
		m.Dropped = append(m.Dropped, Dropped{Key: key, Version: m.Version + 1})
	}
}
