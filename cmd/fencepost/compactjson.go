package main

import (
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
)

// compactionDoc is what compact prints of one round with --json.
type compactionDoc struct {
	Folded      uint64              `json:"folded"`
	Records     uint64              `json:"records"`
	Bytes       uint64              `json:"bytes"`
	Edits       int                 `json:"edits"`
	Segments    int                 `json:"segments"`
	Merged      int                 `json:"merged"`
	Floor       fence.Position      `json:"floor"`
	FloorOffset uint64              `json:"floor_offset"`
	Truncated   uint64              `json:"truncated"`
	Pruned      map[string]int      `json:"pruned,omitempty"`
	PrunedKeys  map[string][]string `json:"pruned_keys,omitempty"`
}

func roundOf(r compactor.Report) compactionDoc { return compactionDoc(r) }

// planDoc is what compact prints with --dry-run and --json.
type planDoc struct {
	Version     uint64         `json:"version"`
	Floor       fence.Position `json:"floor"`
	FloorOffset uint64         `json:"floor_offset"`
	FoldObjects int            `json:"fold_objects"`
	FoldBytes   int64          `json:"fold_bytes"`
	Merges      []mergeDoc     `json:"merges"`
	Start       uint64         `json:"start"`
	Truncate    uint64         `json:"truncate"`
	Deletes     []deletionDoc  `json:"deletes"`
	Pins        []pinDoc       `json:"pins"`
}

type mergeDoc struct {
	Segments []string `json:"segments"`
	First    uint64   `json:"first"`
	End      uint64   `json:"end"`
	Bytes    int64    `json:"bytes"`
}

type deletionDoc struct {
	Kind     string   `json:"kind"`
	Count    int      `json:"count"`
	Bytes    int64    `json:"bytes"`
	Examples []string `json:"examples"`
}

func planOf(p *compactor.Plan) planDoc {
	d := planDoc{
		Version: p.Version, Floor: p.Floor, FloorOffset: p.FloorOffset, FoldObjects: p.FoldObjects, FoldBytes: p.FoldBytes,
		Merges: []mergeDoc{}, Start: p.Start, Truncate: p.Truncate, Deletes: []deletionDoc{}, Pins: pinDocs(p.Pins),
	}
	for _, m := range p.Merges {
		d.Merges = append(d.Merges, mergeDoc(m))
	}
	for _, x := range p.Deletes {
		d.Deletes = append(d.Deletes, deletionDoc(x))
	}
	return d
}
