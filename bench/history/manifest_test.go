package history

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

// table is a log that consists of edits of files, each folded by itself.
type table struct {
	testing.TB
	updater *state.Updater
	newest  *state.Manifest
	rng     *rand.Rand
	live    []string
}

func (b *table) update(f func(*state.Change) error) {
	b.Helper()
	m, err := b.updater.Update(b.Context(), f)
	if err != nil {
		b.Fatal(err)
	}
	b.newest = m
}

// edit adds files and removes random others.
func (b *table) edit(add, remove int) {
	b.Helper()
	e := &manifest.Edit{}
	for range remove {
		at, last := b.rng.IntN(len(b.live)), len(b.live)-1
		e.Remove = append(e.Remove, b.live[at])
		b.live[at], b.live = b.live[last], b.live[:last]
	}
	for range add {
		id, err := uuid.NewV7() // names that rise with time
		if err != nil {
			b.Fatal(err)
		}
		f := manifest.File{Key: layout.FileKey(1, id.String(), ".sst"), Size: int64(b.rng.IntN(1 << 20)), Records: b.rng.Uint64N(100)}
		e.Add, b.live = append(e.Add, f), append(b.live, f.Key)
	}
	b.update(func(m *state.Change) error {
		to := m.Floor
		to.Position.Seq++
		m.Hint = nil
		return m.Fold(m.Floor, to, nil, nil, []state.AppliedEdit{{Position: m.Floor.Position, Offset: m.Floor.Offset, Edit: e}})
	})
}

// costOfTable returns the mean cost of an update of a table with this many files.
func costOfTable(t *testing.T, f manifest.Format, files int) (bytes, calls float64) {
	t.Helper()
	const updates, changes = 200, 50
	st := &requests{Store: memstore.New(nil)}
	u, err := state.With(st, f, nil).Updater(layout.Compactor, fence.NewToken(1))
	if err != nil {
		t.Fatal(err)
	}
	b := &table{TB: t, updater: u, rng: rand.New(rand.NewPCG(1, 2))}
	to := frame.Start()
	to.Position = fence.Position{Epoch: 1, Seq: 1}
	seal := state.Seal{Position: frame.Genesis(), Next: 1, Nonce: fence.ID(uuid.New())}
	b.update(func(m *state.Change) error { return m.Fold(m.Floor, to, []state.Seal{seal}, nil, nil) })
	b.edit(files, 0)
	st.n.Store(0)
	st.bytes.Store(0)
	for range updates {
		b.edit(changes, changes)
		if b.newest.Version%20 == 0 { // like a compactor
			b.update(func(m *state.Change) error {
				m.PruneMark = m.Version
				m.Forget(m.Version)
				return nil
			})
		}
	}
	return float64(st.bytes.Load()) / updates, float64(st.n.Load()) / updates
}

// An update of a table of 100,000 files costs as much as one of 1,000.
func TestManifest(t *testing.T) {
	f, err := manifest.Init(t.Context(), memstore.New(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	smallBytes, smallCalls := costOfTable(t, f, 1000)
	bytes, calls := costOfTable(t, f, 100_000)
	exact(t, Row{Name: "manifest update with 100,000 live files, to one with 1,000: bytes", Value: bytes / smallBytes, Goal: 1.5, Note: fmt.Sprintf("%.0f KiB to %.0f, read and written, for 50 files added and 50 removed", bytes/1024, smallBytes/1024)})
	exact(t, Row{Name: "manifest update with 100,000 live files, to one with 1,000: requests", Value: calls / smallCalls, Goal: 1.5, Note: fmt.Sprintf("%.2f to %.2f", calls, smallCalls)})
}
