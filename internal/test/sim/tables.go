package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
)

// moment says at which point of the log a table was read.
type moment uint8

const (
	momentEnd     moment = iota // at the end offset
	momentVersion               // at the floor of some manifest
)

// table is the log's table as a client saw it at one point of the log.
type table struct {
	end        uint64
	at         moment
	files      map[string]int64 // key → size; nil: not read
	properties map[string]string
	live       int
	cursor     *string // nil: unknown
}

// ids returns the ids of the edits in the table.
func (t *table) ids() map[string]bool {
	ids := map[string]bool{}
	for name := range t.properties {
		if id, ok := strings.CutPrefix(name, idPrefix); ok {
			ids[id] = true
		}
	}
	return ids
}

// with returns the table after one more edit.
func (t *table) with(e *manifest.Edit) *table {
	next := &table{files: maps.Clone(t.files), properties: maps.Clone(t.properties)}
	for _, f := range e.Add {
		next.files[f.Key] = f.Size
	}
	for _, key := range e.Remove {
		delete(next.files, key)
	}
	maps.Copy(next.properties, e.Properties)
	for _, name := range e.Unset {
		delete(next.properties, name)
	}
	return next
}

// looked notes which files a client saw. A snapshot must never change.
func (h *history) looked(id int, files []manifest.File, ret int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &h.ops[id]
	seen := make(map[string]int64, len(files))
	for _, f := range files {
		seen[f.Key] = f.Size
	}
	if o.table.files != nil && !maps.Equal(o.table.files, seen) {
		h.wrong = append(h.wrong, &BrokenError{"table", "the files of a snapshot of " + o.node + " have changed"})
	}
	o.table.files, o.ret, o.outcome = seen, ret, yes
}

// content returns what was written to a file.
func (h *history) content(key string) (body string, known bool) {
	v, known := h.contents.Load(key)
	body, _ = v.(string)
	return body, known
}

// checkTables checks that the table is made by the edits of the chain, each applied once,
// in the order of the log. Each client must have seen the table at some point of the log,
// and not at one too long ago.
func (h *history) checkTables() {
	if h.table == nil {
		return
	}
	there := h.table.ids()
	edits := h.edits(there)
	states := []*table{{files: map[string]int64{}, properties: map[string]string{}}}
	for _, o := range edits {
		states = append(states, states[len(states)-1].with(o.edit))
	}
	h.checkTable("at the end", h.table, edits, states)
	for i := range h.ops {
		if o := &h.ops[i]; o.kind == opTable {
			h.checkTable("to "+o.node, o.table, edits, states)
			h.checkRecent(o, edits)
		}
	}
	h.checkFiles(edits)
	h.checkOrder(there)
}

// edits returns the edits that are in the history, in the order of the log: by epoch, and
// within an epoch in the order of their commits.
func (h *history) edits(there map[string]bool) []*op {
	var edits []*op
	known := map[string]bool{}
	for i := range h.ops {
		o := &h.ops[i]
		if o.kind != opEdit {
			continue
		}
		id := o.values[0]
		known[id] = true
		switch {
		case o.outcome == yes && !there[id]:
			h.broken("lost", "edit %q was acknowledged to %s at offset %d, but is not in the table", id, o.node, o.offset)
		case o.outcome == no && there[id]:
			h.broken("risen", "%s was told that edit %q will never be committed, but it is in the table", o.node, id)
		}
		if there[id] {
			edits = append(edits, o)
		}
	}
	for id := range there {
		if !known[id] {
			h.broken("nobody's", "edit %q is in the table, but no client committed it", id)
		}
	}
	slices.SortStableFunc(edits, func(a, b *op) int { return cmp.Compare(a.epoch, b.epoch) })
	return edits
}

// checkTable checks that a table was made by a prefix of the edits.
func (h *history) checkTable(whom string, seen *table, edits []*op, states []*table) {
	ids := seen.ids()
	n := 0
	for n < len(edits) && ids[edits[n].values[0]] {
		n++
	}
	if n != len(ids) {
		h.broken("table", "the table shown %s at offset %d has %d edits, but only %d of them are the first edits of the log", whom, seen.end, len(ids), n)
		return
	}
	want := states[n]
	if !maps.Equal(seen.properties, want.properties) {
		h.broken("table", "the table shown %s at offset %d has the properties %v; the first %d edits make %v", whom, seen.end, seen.properties, n, want.properties)
	}
	if seen.files != nil && !maps.Equal(seen.files, want.files) || seen.live != len(want.files) {
		h.broken("table", "the table shown %s at offset %d has %d files, %v; the first %d edits make %v", whom, seen.end, seen.live, seen.files, n, want.files)
	}
	for i, o := range edits {
		if o.outcome != yes {
			continue
		}
		if i >= n && o.offset < seen.end {
			h.broken("table", "the table shown %s at offset %d lacks edit %q, which is at %d", whom, seen.end, o.values[0], o.offset)
		}
		if i < n && o.offset > seen.end {
			h.broken("table", "the table shown %s at offset %d has edit %q, which is at %d", whom, seen.end, o.values[0], o.offset)
		}
	}
	if seen.cursor == nil || seen.end > uint64(len(h.final)) {
		return
	}
	cursor := ""
	if seen.end > 0 {
		cursor = h.final[seen.end-1]
	}
	if *seen.cursor != cursor {
		h.broken("cursor", "the cursor shown %s at offset %d is %q, but that of the record before it is %q", whom, seen.end, *seen.cursor, cursor)
	}
}

// checkRecent checks that a table at the end offset has all edits that were acknowledged
// before.
func (h *history) checkRecent(seen *op, edits []*op) {
	if seen.table.at != momentEnd {
		return
	}
	ids := seen.table.ids()
	for _, o := range edits {
		if o.outcome == yes && o.ret < seen.call && !ids[o.values[0]] {
			h.broken("stale", "edit %q was acknowledged in step %d, but %s, which read the table in step %d, did not see it", o.values[0], o.ret, seen.node, seen.call)
		}
	}
}

// checkFiles checks that no file of the table was deleted, and no removed file before the
// edit that removes it.
func (h *history) checkFiles(edits []*op) {
	added, removed := map[string]bool{}, map[string]*op{}
	for _, o := range edits {
		for _, f := range o.edit.Add {
			added[f.Key] = true
		}
		for _, key := range o.edit.Remove {
			removed[key] = o
		}
	}
	for key, at := range h.swept {
		if by := removed[key]; added[key] && (by == nil || at < by.call) {
			h.broken("swept", "%s was deleted in step %d, although it was a file of the table", short(mask(key)), at)
		}
	}
}

// checkOrder checks that the entries of each epoch are in the log in the order in which
// they were sent, without a gap.
func (h *history) checkOrder(there map[string]bool) {
	at := make(map[string]int, len(h.final))
	for i, v := range h.final {
		at[v] = i
	}
	type place struct {
		missing string // first entry that is not in the log
		edit    *op    // the edit that comes after the last record, if any
		end     int    // offset after the last record; -1: no record yet
	}
	places := map[fence.Epoch]*place{}
	for i := range h.ops {
		o := &h.ops[i]
		if o.kind != opAppend && o.kind != opEdit || o.unsent {
			continue
		}
		p := places[o.epoch]
		if p == nil {
			p = &place{end: -1}
			places[o.epoch] = p
		}
		v := o.values[0]
		first, in := at[v]
		if o.kind == opEdit {
			in = there[v]
		}
		switch {
		case !in:
			p.missing = cmp.Or(p.missing, v)
			continue
		case p.missing != "":
			h.broken("gap", "%q of epoch %d is in the log, but %q, which was sent before it, is not", v, o.epoch, p.missing)
		case o.kind == opAppend && p.edit != nil && p.edit.offset != uint64(first):
			h.broken("moved", "edit %q was acknowledged at offset %d, but %q, which was sent next, is at %d", p.edit.values[0], p.edit.offset, v, first)
		case o.kind == opEdit && o.outcome == yes && p.end >= 0 && o.offset != uint64(p.end):
			h.broken("moved", "edit %q was acknowledged at offset %d, but the record before it is at %d", v, o.offset, p.end-1)
		}
		if o.kind == opAppend {
			p.edit, p.end = nil, first+len(o.values)
		} else if o.outcome == yes {
			p.edit = o
		}
	}
}
