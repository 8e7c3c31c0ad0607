package state_test

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

// Whoever holds the later token publishes; whoever holds an earlier one is told,
// and has changed nothing.
func ExampleUpdater_Update() {
	ctx := context.Background()
	st := memstore.New(nil)
	format, err := manifest.Init(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	log := state.With(st, format, nil)
	zombie, _ := log.Updater(layout.Compactor, fence.NewToken(1))
	leader, _ := log.Updater(layout.Compactor, fence.NewToken(2))

	nothing := func(*state.Change) error { return nil }
	m, err := leader.Update(ctx, nothing)
	fmt.Println(m.Version, err)
	_, err = zombie.Update(ctx, nothing)
	fmt.Println(err)
	m, err = log.Newest(ctx)
	fmt.Println(m.Version, m.Roles[layout.Compactor].Epoch, err)
	// Output:
	// 1 <nil>
	// fenced: the compactor of epoch 1 has been replaced by that of epoch 2
	// 1 2 <nil>
}

// A backup holds on to a version while the log goes on, is folded and pruned.
func ExampleLog_Pin() {
	ctx := context.Background()
	st := memstore.New(nil)
	format, err := manifest.Init(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	log := state.With(st, format, nil)
	compactor, _ := log.Updater(layout.Compactor, fence.NewToken(1))
	for range 3 {
		_, _ = compactor.Update(ctx, func(*state.Change) error { return nil })
	}

	pin, err := log.Pin(ctx, &state.PinOptions{Name: "backup-2026-11"})
	fmt.Println(pin.Version(), err)
	// The log goes on without it. Later, perhaps on another machine:
	pins, err := log.Pins(ctx)
	fmt.Println(len(pins), pins[0].Name, pins[0].Version, err)
	fmt.Println(log.Unpin(ctx, "backup-2026-11"))
	fmt.Println(pin.Renew(ctx) != nil)
	// Output:
	// 3 <nil>
	// 1 backup-2026-11 3 <nil>
	// <nil>
	// true
}

// What an edit says is for the log; what the table became of all edits is in the
// manifest.
func ExampleChange_Fold() {
	ctx := context.Background()
	st := memstore.New(nil)
	format, err := manifest.Init(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	log := state.With(st, format, nil)
	compactor, _ := log.Updater(layout.Compactor, fence.NewToken(1))

	// An opener's seal, and an edit of the epoch that it opened.
	seal := state.Seal{Position: frame.Genesis(), Next: 1}
	edit := &manifest.Edit{
		Add:        []manifest.File{{Key: layout.FileKey(1, "0192f3c4-0000-7000-8000-000000000001", ".parquet"), Size: 4096}},
		Properties: map[string]string{"schema": "1"},
	}
	m, err := compactor.Update(ctx, func(m *state.Change) error {
		from, to := m.Floor, m.Floor
		to.Position = fence.Position{Epoch: 1, Seq: 2}
		at := fence.Position{Epoch: 1, Seq: 1}
		return m.Fold(from, to, []state.Seal{seal}, nil, []state.AppliedEdit{{Position: at, Edit: edit}})
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(m.Live(), m.Properties["schema"])
	for f, err := range log.Files(ctx, m) {
		fmt.Println(f.Key, f.Size, err)
	}
	// Output:
	// 1 1
	// file/00000000000000000001/0192f3c4-0000-7000-8000-000000000001.parquet 4096 <nil>
}
