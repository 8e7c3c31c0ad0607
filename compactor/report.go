package compactor

import (
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// Report says what a compactor did.
type Report struct {
	// Folded counts the objects of the chain that were folded. Records and Bytes are
	// what they held.
	Folded  uint64 `json:"folded"`
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"`
	// Edits counts the edits of the table among them.
	Edits int `json:"edits"`
	// Segments counts the segments that folding wrote, Merged those that were merged
	// into others.
	Segments int `json:"segments"`
	Merged   int `json:"merged"`
	// Floor is the first slot of the chain that is not folded. FloorOffset is the number
	// of records before it.
	Floor       fence.Position `json:"floor"`
	FloorOffset uint64         `json:"floor_offset"`
	// Truncated is the offset before which [Retain] has given up the records; 0 if it
	// has given up none this time.
	Truncated uint64 `json:"truncated"`
	// Pruned counts deleted objects by kind: "data", "manifest", "segment", "list",
	// "file", "orphan", "pin", "tmp", "lock"; and aborted uploads as "upload".
	Pruned map[string]int `json:"pruned,omitempty"`
	// PrunedKeys are the keys of some of them, at most 8 of each kind, for people. Locks
	// and uploads have none.
	PrunedKeys map[string][]string `json:"pruned_keys,omitempty"`
}

// examples is how many keys of a kind reports and plans name.
const examples = 8

func (r *Report) floor(p frame.Point) { r.Floor, r.FloorOffset = p.Position, p.Offset }

func (r *Report) count(kind string, n int) {
	if n == 0 {
		return
	}
	if r.Pruned == nil {
		r.Pruned, r.PrunedKeys = map[string]int{}, map[string][]string{}
	}
	r.Pruned[kind] += n
}

func (r *Report) pruned(kind string, keys []string) {
	if len(keys) == 0 {
		return
	}
	r.count(kind, len(keys))
	if room := examples - len(r.PrunedKeys[kind]); room > 0 {
		r.PrunedKeys[kind] = append(r.PrunedKeys[kind], slices.Clone(keys[:min(room, len(keys))])...)
	}
}

// progress calls the hook.
func (p *pass) progress() {
	if p.opts.Hooks.Progress != nil {
		p.opts.Hooks.Progress(p.report.clone())
	}
}

func (r Report) clone() Report {
	r.Pruned, r.PrunedKeys = maps.Clone(r.Pruned), maps.Clone(r.PrunedKeys)
	return r
}
