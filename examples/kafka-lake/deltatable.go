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

	"github.com/fencepost/fencepost/store"
)

// deltaTable is what a reader finds that knows Delta Lake and Parquet, and nothing of Fencepost, Kafka or
// groups. It reads the commits from the first one on, so it needs no checkpoint.
type deltaTable struct {
	versions [][]string       // the active files of each version, sorted
	files    map[string][]row // the rows of each file that any version names
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

// readDelta reads the Delta table in a store, with all its versions.
func readDelta(ctx context.Context, root store.Store) (*deltaTable, error) {
	t := &deltaTable{files: map[string][]row{}}
	active := map[string]bool{}
	for {
		key := fmt.Sprintf("_delta_log/%020d.json", len(t.versions))
		body, _, err := store.ReadAll(ctx, root, key, 1<<30, nil)
		if errors.Is(err, store.ErrNotFound) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		if err := apply(body, active); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		t.versions = append(t.versions, slices.Sorted(maps.Keys(active)))
		for path := range active {
			if _, known := t.files[path]; known {
				continue
			}
			if t.files[path], err = readRows(ctx, root, path); err != nil {
				return nil, fmt.Errorf("%s names %s: %w", key, path, err)
			}
		}
	}
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

// readRows reads a Parquet file.
func readRows(ctx context.Context, root store.Store, path string) ([]row, error) {
	body, _, err := store.ReadAll(ctx, root, path, 1<<30, nil)
	if err != nil {
		return nil, err
	}
	r := parquet.NewGenericReader[row](bytes.NewReader(body))
	defer func() { _ = r.Close() }()
	rows := make([]row, r.NumRows())
	n, err := r.Read(rows)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < len(rows) {
		return nil, fmt.Errorf("%w: %d of %d rows", io.ErrUnexpectedEOF, n, len(rows))
	}
	return rows, nil
}

// newest calls f for each row of the newest version.
func (t *deltaTable) newest(f func(row)) {
	if len(t.versions) == 0 {
		return
	}
	for _, path := range t.versions[len(t.versions)-1] {
		for _, r := range t.files[path] {
			f(r)
		}
	}
}

// names tells whether any version names a file.
func (t *deltaTable) names(path string) bool {
	_, ok := t.files[path]
	return ok
}

// span is a run of messages of a partition: those from first up to end.
type span struct{ first, end int64 }

// spans returns what a file has, as runs by partition.
func spans(rows []row) map[int32][]span {
	runs := map[int32][]span{}
	for _, r := range rows {
		all := runs[r.Partition]
		if n := len(all); n > 0 && all[n-1].end == r.Offset {
			all[n-1].end++
			continue
		}
		runs[r.Partition] = append(all, span{r.Offset, r.Offset + 1})
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
			all[p] = all[p] // nothing of it may be gone
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
