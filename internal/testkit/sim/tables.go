package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/manifest"
)

// moment at which a table was looked at.
type moment uint8

const (
	momentEnd     moment = iota // of the log, when it was taken
	momentOffset                // an earlier one
	momentVersion               // whatever a version of the manifest says
)

// table is what somebody saw of the log's table, and where.
type table struct {
	end        uint64
	at         moment
	files      map[string]int64 // key → size; nil if nobody has looked
	properties map[string]string
	live       int
	cursor     *string // nil: not known
}

// ids are the edits that are in it.
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

// looked notes which files somebody saw. A snapshot never changes.
func (h *history) looked(id int, files []manifest.File, ret int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &h.ops[id]
	seen := make(map[string]int64, len(files))
	for _, f := range files {
		seen[f.Key] = f.Size
	}
	if o.table.files != nil && !maps.Equal(o.table.files, seen) {
		h.wrong = append(h.wrong, &BrokenError{"table", "a snapshot of " + o.node + " has changed"})
	}
	o.table.files, o.ret, o.outcome = seen, ret, yes
}

// wrote notes what is in a file.
func (h *history) wrote(key, body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.contents[key] = body
}

func (h *history) content(key string) (body string, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	body, known = h.contents[key]
	return body, known
}

// checkTables: the table is made by the edits on the chain, each once, in the order
// of the log; whoever looked saw it as it was at some place of the log, and not too
// far back.
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
	h.checkTable("in the end", h.table, edits, states)
	for i := range h.ops {
		if o := &h.ops[i]; o.kind == opTable {
			h.checkTable("to "+o.node, o.table, edits, states)
			h.checkRecent(o, edits)
		}
	}
	h.checkFiles(edits)
	h.checkOrder(there)
}

// edits returns those that are part of the history, in the order of the log: by
// epoch, and in each as they were committed.
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
			h.broken("lost", "the edit %q was acknowledged to %s at %d and is not in the table", id, o.node, o.offset)
		case o.outcome == no && there[id]:
			h.broken("risen", "%s was told that the edit %q is not committed and never will be; it is in the table", o.node, id)
		}
		if there[id] {
			edits = append(edits, o)
		}
	}
	for id := range there {
		if !known[id] {
			h.broken("nobody's", "the edit %q is in the table, and nobody has committed it", id)
		}
	}
	slices.SortStableFunc(edits, func(a, b *op) int { return cmp.Compare(a.epoch, b.epoch) })
	return edits
}

// checkTable: what was seen is what the first so many edits make.
func (h *history) checkTable(whom string, seen *table, edits []*op, states []*table) {
	ids := seen.ids()
	n := 0
	for n < len(edits) && ids[edits[n].values[0]] {
		n++
	}
	if n != len(ids) {
		h.broken("table", "the table shown %s at offset %d has %d edits; only the first %d of them follow each other in the log", whom, seen.end, len(ids), n)
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
			h.broken("table", "the table shown %s at offset %d is without the edit %q, which lies at %d", whom, seen.end, o.values[0], o.offset)
		}
		if i < n && o.offset > seen.end {
			h.broken("table", "the table shown %s at offset %d has the edit %q, which lies at %d", whom, seen.end, o.values[0], o.offset)
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
		h.broken("cursor", "the cursor shown %s at offset %d is %q; that of the record before it is %q", whom, seen.end, *seen.cursor, cursor)
	}
}

// checkRecent: at the end of the log is all that was acknowledged before.
func (h *history) checkRecent(seen *op, edits []*op) {
	if seen.table.at != momentEnd {
		return
	}
	ids := seen.table.ids()
	for _, o := range edits {
		if o.outcome == yes && o.ret < seen.call && !ids[o.values[0]] {
			h.broken("stale", "the edit %q was acknowledged in step %d, and %s, who looked in step %d, did not see it", o.values[0], o.ret, seen.node, seen.call)
		}
	}
}

// checkFiles: a file of the table is never deleted, and one that was removed only
// after somebody had asked for that.
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
			h.broken("swept", "%s was deleted in step %d and is a file of the table", short(mask(key)), at)
		}
	}
}

// checkOrder: what one writer has appended and committed is in the log in that order,
// up to some place.
func (h *history) checkOrder(there map[string]bool) {
	at := make(map[string]int, len(h.final))
	for i, v := range h.final {
		at[v] = i
	}
	type place struct {
		missing string // the first entry that is not in the log
		edit    *op    // behind the last record
		end     int    // where that ends; -1: there was none
	}
	places := map[uint64]*place{}
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
			h.broken("gap", "%q of epoch %d is in the log, and %q, which came before it, is not", v, o.epoch, p.missing)
		case o.kind == opAppend && p.edit != nil && p.edit.offset != uint64(first):
			h.broken("moved", "the edit %q was acknowledged at %d; %q, which came next, is at %d", p.edit.values[0], p.edit.offset, v, first)
		case o.kind == opEdit && o.outcome == yes && p.end >= 0 && o.offset != uint64(p.end):
			h.broken("moved", "the edit %q was acknowledged at %d; the record before it is at %d", v, o.offset, p.end-1)
		}
		if o.kind == opAppend {
			p.edit, p.end = nil, first+len(o.values)
		} else if o.outcome == yes {
			p.edit = o
		}
	}
}
