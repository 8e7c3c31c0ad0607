package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/store"
)

// deltaTable is what a reader finds that knows Delta Lake and Parquet, and nothing of Fencepost, Kafka or
// groups. It reads the commits from the first one on, so it needs no checkpoint.
type deltaTable struct {
	root     store.Store
	active   map[string]bool
	versions [][]string         // the active files of each version, sorted
	files    map[string][]entry // what is in each file that any version names
}

// entry is what is kept of a row of the table: where its message was in Kafka, and a hash of it.
type entry struct {
	partition int32
	offset    int64
	hash      uint64
}

func newDeltaTable(root store.Store) *deltaTable {
	return &deltaTable{root: root, active: map[string]bool{}, files: map[string][]entry{}}
}

// deltaAction is the part of a line of a commit that a reader needs.
type deltaAction struct {
	Add *struct {
		Path string `json:"path"`
	} `json:"add"`
	Remove *struct {
		Path string `json:"path"`
	} `json:"remove"`
	Protocol *struct {
		Reader int `json:"minReaderVersion"`
	} `json:"protocol"`
}

// read reads the versions that came since the last call, and their files.
func (t *deltaTable) read(ctx context.Context) error {
	n := 0 // how many versions there are now
	for info, err := range store.ListAll(ctx, t.root, "_delta_log/", nil, nil) {
		if err != nil {
			return err
		}
		var v int
		if _, err := fmt.Sscanf(info.Key, "_delta_log/%020d.json", &v); err == nil {
			n = max(n, v+1)
		}
	}
	for len(t.versions) < n {
		if err := t.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step reads the next version.
func (t *deltaTable) step(ctx context.Context) error {
	key := fmt.Sprintf("_delta_log/%020d.json", len(t.versions))
	body, _, err := store.Read(ctx, t.root, key, &store.ReadOptions{Limit: 1 << 30})
	if err != nil {
		return err
	}
	if err := apply(body, t.active); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	t.versions = append(t.versions, slices.Sorted(maps.Keys(t.active)))
	for path := range t.active {
		if t.names(path) {
			continue
		}
		if t.files[path], err = readFile(ctx, t.root, path); err != nil {
			return fmt.Errorf("%s names %s: %w", key, path, err)
		}
	}
	return nil
}

// apply applies a commit to the set of active files.
func apply(commit []byte, active map[string]bool) error {
	for line := range strings.Lines(string(commit)) {
		var a deltaAction
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return err
		}
		switch {
		case a.Protocol != nil && a.Protocol.Reader > 1:
			return fmt.Errorf("the table needs a reader of version %d", a.Protocol.Reader)
		case a.Add != nil && active[a.Add.Path]:
			return fmt.Errorf("%s is added twice", a.Add.Path)
		case a.Add != nil:
			active[a.Add.Path] = true
		case a.Remove != nil && !active[a.Remove.Path]:
			return fmt.Errorf("%s is removed and was not active", a.Remove.Path)
		case a.Remove != nil:
			delete(active, a.Remove.Path)
		}
	}
	return nil
}

// readMemory is what the rows of a file may take. Somebody else may have written the file.
const readMemory = 1 << 30

// readFile reads a Parquet file.
func readFile(ctx context.Context, root store.Store, path string) ([]entry, error) {
	body, _, err := store.Read(ctx, root, path, &store.ReadOptions{Limit: 1 << 30})
	if err != nil {
		return nil, err
	}
	if err := delta.CheckParquet(bytes.NewReader(body), int64(len(body)), readMemory); err != nil {
		return nil, err
	}
	r := parquet.NewGenericReader[row](bytes.NewReader(body))
	defer func() { _ = r.Close() }()
	all, rows := make([]entry, 0, r.NumRows()), make([]row, 1024)
	for {
		n, err := r.Read(rows)
		for _, r := range rows[:n] {
			all = append(all, entry{r.Partition, r.Offset, hash(r.Key, r.Value)})
		}
		switch {
		case errors.Is(err, io.EOF) && int64(len(all)) == r.NumRows():
			return all, nil
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: %d of %d rows", io.ErrUnexpectedEOF, len(all), r.NumRows())
		case err != nil:
			return nil, err
		}
	}
}

// newest calls f for each row of the newest version.
func (t *deltaTable) newest(f func(entry)) {
	if len(t.versions) == 0 {
		return
	}
	for _, path := range t.versions[len(t.versions)-1] {
		for _, r := range t.files[path] {
			f(r)
		}
	}
}

// rows is how many rows the newest version has.
func (t *deltaTable) rows() (n int) {
	t.newest(func(entry) { n++ })
	return n
}

// names tells whether any version names a file.
func (t *deltaTable) names(path string) bool {
	_, ok := t.files[path]
	return ok
}

// span is a run of messages of a partition: those from first up to end.
type span struct{ first, end int64 }

// spans returns what a file has, as runs by partition.
func spans(rows []entry) map[int32][]span {
	runs := map[int32][]span{}
	for _, r := range rows {
		all := runs[r.partition]
		if n := len(all); n > 0 && all[n-1].end == r.offset {
			all[n-1].end++
			continue
		}
		runs[r.partition] = append(all, span{r.offset, r.offset + 1})
	}
	return runs
}

// prefixes checks each version: of each partition it must have the messages up to some offset, each
// once and without a gap. And it must have all that the version before it has.
//
// A topic with transactions has offsets without messages. This check is not for such a topic.
func (t *deltaTable) prefixes() error {
	runs := map[string]map[int32][]span{}
	for path, rows := range t.files {
		runs[path] = spans(rows)
	}
	before := map[int32]int64{}
	for v, files := range t.versions {
		all := map[int32][]span{}
		for _, path := range files {
			for p, s := range runs[path] {
				all[p] = append(all[p], s...)
			}
		}
		for p := range before {
			if _, ok := all[p]; !ok {
				all[p] = nil // all of it is gone
			}
		}
		for p, s := range all {
			end, err := joined(s)
			if err == nil && end < before[p] {
				err = fmt.Errorf("they end at %d, and version %d has them up to %d", end-1, v-1, before[p]-1)
			}
			if err != nil {
				return fmt.Errorf("version %d has messages of partition %d that are not all from the first one on, each once: %w", v, p, err)
			}
			before[p] = end
		}
	}
	return nil
}

// joined returns where runs end that begin at offset 0 and follow one another.
func joined(all []span) (end int64, err error) {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	for _, s := range all {
		if s.first != end {
			return end, fmt.Errorf("after %d comes %d", end-1, s.first)
		}
		end = s.end
	}
	return end, nil
}
