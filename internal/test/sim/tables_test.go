package sim

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
)

// edited is told with three edits. e1 adds f and g after record b. e2 removes f after c.
// e3 sets a property at the same offset. The outcome of y is unknown, x was refused.
func edited(change func(h *history)) *history {
	f, g := manifest.File{Key: "file/1/f", Size: 1}, manifest.File{Key: "file/1/g", Size: 2}
	edit := func(id string, epoch fence.Epoch, offset uint64, call, ret int, o outcome, e manifest.Edit) op {
		e.Properties = map[string]string{idPrefix + id: "", "last": id}
		return op{kind: opEdit, epoch: epoch, values: []string{id}, offset: offset, edit: &e, call: call, ret: ret, outcome: o}
	}
	seen := func(end uint64, at moment, cursor string, files map[string]int64, ids ...string) *table {
		s := &table{end: end, at: at, files: files, properties: map[string]string{}, live: len(files), cursor: &cursor}
		for _, id := range ids {
			s.properties[idPrefix+id], s.properties["last"] = "", id
		}
		return s
	}
	both, one := map[string]int64{f.Key: 1, g.Key: 2}, map[string]int64{g.Key: 2}
	return told(func(h *history) {
		h.ops[4].unsent, h.ops[5].epoch = true, 9 // so that checkOrder accepts the edits after them
		h.ops = append(h.ops,
			edit("e1", 1, 2, 3, 4, yes, manifest.Edit{Add: []manifest.File{f, g}}),
			edit("e2", 2, 3, 8, 9, yes, manifest.Edit{Remove: []string{f.Key}}),
			edit("e3", 2, 3, 8, 10, yes, manifest.Edit{}),
			edit("y", 2, 0, 12, -1, maybe, manifest.Edit{Remove: []string{g.Key}}),
			edit("x", 1, 0, 3, 9, no, manifest.Edit{}),
			op{kind: opTable, call: 5, ret: 6, outcome: yes, table: seen(2, momentEnd, "b", both, "e1")},
			op{kind: opTable, call: 11, ret: 11, outcome: yes, table: seen(2, momentVersion, "b", both, "e1")},
			op{kind: opTable, call: 11, ret: 11, outcome: yes, table: seen(3, momentEnd, "c", one, "e1", "e2", "e3")},
		)
		h.table = seen(3, momentEnd, "c", one, "e1", "e2", "e3")
		h.swept = map[string]int{f.Key: 20, "file/1/orphan": 2}
		if change != nil {
			change(h)
		}
	})
}

// Indexes of the operations in edited.
const (
	e1, e2, e3, y, x    = 8, 9, 10, 11, 12
	early, older, late3 = 13, 14, 15
)

func TestCheckTablesFinds(t *testing.T) {
	if err := edited(nil).check(); err != nil {
		t.Errorf("a correct history is reported: %v", err)
	}
	if err := edited(func(h *history) { // y was applied after all
		h.ops = append(h.ops[:early:early], h.ops[early:older]...)
		h.table.properties[idPrefix+"y"], h.table.properties["last"] = "", "y"
		h.table.files, h.table.live = map[string]int64{}, 0
		h.swept["file/1/g"] = 20
	}).check(); err != nil {
		t.Errorf("an unknown edit may have been applied: %v", err)
	}
	for want, change := range map[string]func(h *history){
		"lost": func(h *history) {
			delete(h.table.properties, idPrefix+"e3")
			h.table.properties["last"] = "e2"
		},
		"risen":    func(h *history) { h.table.properties[idPrefix+"x"] = "" },
		"nobody's": func(h *history) { h.table.properties[idPrefix+"z"] = "" },
		"gap: an edit is missing, and a record after it is there": func(h *history) {
			h.ops[e1].outcome, h.ops[e2].epoch, h.ops[e3].epoch = maybe, 3, 3
			h.ops[1], h.ops[e1] = h.ops[e1], h.ops[1]
			delete(h.table.properties, idPrefix+"e1")
		},
		"gap: an append is missing, and an edit after it is there": func(h *history) {
			h.ops[5].epoch = 2
		},
		"moved: before a record of its own": func(h *history) { h.ops[e1].offset = 1 },
		"moved: after one that came later": func(h *history) {
			h.ops[3], h.ops[e2] = h.ops[e2], h.ops[3]
		},
		"table: without an edit in the middle": func(h *history) {
			delete(h.ops[late3].table.properties, idPrefix+"e2")
		},
		"table: without a property": func(h *history) { delete(h.ops[late3].table.properties, "last") },
		"table: without a file":     func(h *history) { h.ops[early].table.files = map[string]int64{"file/1/g": 2} },
		"table: a file of another size": func(h *history) {
			h.ops[early].table.files = map[string]int64{"file/1/f": 1, "file/1/g": 3}
		},
		"table: another number of files": func(h *history) { h.ops[early].table.live = 1 },
		"table: an edit comes too soon":  func(h *history) { h.ops[late3].table.end = 2 },
		"table: an edit comes too late": func(h *history) {
			h.ops[older].table = edited(nil).ops[early].table
			h.ops[older].table.at, h.ops[older].table.end = momentVersion, 3
			h.ops[e2].offset, h.ops[e3].offset = 2, 2
		},
		"table: at the end": func(h *history) { h.table.live = 2 },
		"cursor":            func(h *history) { other := "a"; h.ops[early].table.cursor = &other },
		"stale":             func(h *history) { h.ops[early].call, h.ops[early].ret = 11, 11 },
		"swept: a live file": func(h *history) {
			h.swept["file/1/g"] = 20
		},
		"swept: before the edit that removes it": func(h *history) { h.swept["file/1/f"] = 7 },
		"zombie": func(h *history) {
			h.ops[e1].call, h.ops[e1].ret = 9, 10
		},
		"short": func(h *history) { h.ops[6].table = &table{end: 3} },
		// Only porcupine finds these.
		"order: an edit is acknowledged after its epoch": func(h *history) {
			h.ops[e2].epoch, h.ops[e2].call, h.ops[e2].ret, h.ops[e2].offset = 1, 7, 8, 3
			h.ops[e1], h.ops[e2] = h.ops[e2], h.ops[e1]
			h.table = nil
		},
		"order: an edit is at an offset that the log has not reached": func(h *history) {
			h.ops[e1].offset, h.table = 1, nil
		},
	} {
		err := edited(change).check()
		if kind, _, _ := strings.Cut(want, ":"); !strings.Contains(errText(err), kind+": ") {
			t.Errorf("%s is not found: %v", want, err)
		}
	}
}

// A snapshot that changes is reported at once.
func TestSnapshotChanges(t *testing.T) {
	h := &history{}
	id := h.begin(op{kind: opTable, table: &table{}})
	h.looked(id, []manifest.File{{Key: "file/1/f", Size: 1}}, 1)
	if h.looked(id, []manifest.File{{Key: "file/1/f", Size: 1}}, 1); len(h.wrong) > 0 {
		t.Error(h.wrong)
	}
	if h.looked(id, nil, 1); len(h.wrong) != 1 {
		t.Error("not reported: the snapshot is empty now")
	}
}
