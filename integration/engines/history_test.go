//go:build integration && unix

package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/store"
)

// history is what the commits of the Delta log say, computed without package delta.
type history struct {
	root     store.Store
	mu       sync.Mutex
	files    map[string]span // of the newest version
	versions []span
	edits    map[uint64]span // by the edits of the log that a version has
	named    map[string]bool // files of any version
}

func newHistory(root store.Store) *history {
	return &history{root: root, files: map[string]span{}, edits: map[uint64]span{}, named: map[string]bool{}}
}

// newest returns the number of the newest version, -1 if there is none.
func (h *history) newest(ctx context.Context) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		body, _, err := store.Read(ctx, h.root, fmt.Sprintf("_delta_log/%020d.json", len(h.versions)), &store.ReadOptions{Limit: 16 << 20})
		if errors.Is(err, store.ErrNotFound) {
			return len(h.versions) - 1, nil
		}
		if err == nil {
			err = h.apply(string(body))
		}
		if err != nil {
			return 0, fmt.Errorf("version %d: %w", len(h.versions), err)
		}
	}
}

// apply adds a version.
func (h *history) apply(body string) error {
	edits := uint64(0)
	for line := range strings.Lines(body) {
		var a struct {
			Add    *struct{ Path, Stats string }
			Remove *struct{ Path string }
			Txn    *struct{ Version uint64 }
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return err
		}
		if a.Txn != nil {
			edits = a.Txn.Version
		}
		if a.Remove != nil {
			delete(h.files, a.Remove.Path)
		}
		if a.Add == nil {
			continue
		}
		var s struct {
			NumRecords           int64
			MinValues, MaxValues struct{ ID int64 }
		}
		if err := json.Unmarshal([]byte(a.Add.Stats), &s); err != nil {
			return err
		}
		h.files[a.Add.Path], h.named[a.Add.Path] = span{s.MinValues.ID, s.MaxValues.ID + 1}, true
		if n := s.MaxValues.ID + 1 - s.MinValues.ID; n != s.NumRecords {
			return fmt.Errorf("%s has %d rows by its statistics, and %d by its bounds", a.Add.Path, s.NumRecords, n)
		}
	}
	var all span
	for i, s := range slices.SortedFunc(maps.Values(h.files), func(a, b span) int { return int(a.From - b.From) }) {
		if i == 0 {
			all = s
		} else if s.From != all.To {
			return fmt.Errorf("rows %d to %d are missing or doubled", all.To, s.From)
		}
		all.To = s.To
	}
	h.versions, h.edits[edits] = append(h.versions, all), all
	return nil
}

// at returns what a version has.
func (h *history) at(version int) span {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.versions[version]
}

// current returns the files of the newest version, and ever those of any version.
func (h *history) current() []string { return slices.Sorted(maps.Keys(h.files)) }
func (h *history) ever() []string    { return slices.Sorted(maps.Keys(h.named)) }

// content is what an engine must find in rows with these numbers.
func (s span) content() content {
	n := s.To - s.From
	if n == 0 {
		return content{}
	}
	last := s.To - 1
	c := content{Rows: n, Distinct: n, Least: &s.From, Most: &last, IDs: (s.From + last) * n / 2}
	c.Sum = float64(c.IDs) / 4
	return c
}

// content is what an engine has computed of all rows.
type content struct {
	Rows, IDs, Distinct int64
	Least, Most         *int64
	Sum                 float64
}

func (c content) String() string {
	b, _ := json.Marshal(c)
	return string(b)
}
