package writer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// An opening is told once, with what it has read, and also if it has failed.
func TestOpenedIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, &writer.Options{Checkpoint: -1})
		for range 3 {
			e.Append(a, "x")
		}
		abandon(a)
		var told []writer.Opening
		opts := &writer.Options{Hooks: writer.Hooks{Opened: func(o writer.Opening) { told = append(told, o) }}}
		w := e.open("b", 7, opts)
		if len(told) != 1 || told[0].Err != nil || told[0].Epoch != 7 || told[0].Offset != 3 || told[0].Read.Records != 3 || w.Recovered().Offset != 3 {
			t.Errorf("told %+v", told)
		}
		_, err := writer.Open(t.Context(), e.Mem, fence.NewToken(5), opts)
		if len(told) != 2 || !errors.Is(told[1].Err, writer.ErrFenced) || !errors.Is(told[1].Err, err) || told[1].Epoch != 5 || told[1].Offset != 0 {
			t.Errorf("told %+v; Open returned %v", told, err)
		}
		if _, err := writer.Open(t.Context(), e.Mem, fence.NewToken(8), &writer.Options{Concurrency: -1, Hooks: opts.Hooks}); !errors.Is(err, writer.ErrOptions) || len(told) != 2 {
			t.Errorf("after %v told %d times", err, len(told))
		}
	})
}

// A checkpoint is told with the end that it notes, and so is its failure.
func TestCheckpointIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		told := make(chan writer.Checkpoint, 8)
		w := e.open("a", 1, &writer.Options{Checkpoint: 10 * time.Second, Hooks: writer.Hooks{Checkpoint: func(c writer.Checkpoint) { told <- c }}})
		first := <-told
		if first.Err != nil || first.Epoch != 1 || first.Position != logtest.At(1, 1) || first.Offset != 0 {
			t.Errorf("the first checkpoint: %+v", first)
		}
		e.fault(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.ManifestPrefix, Fault: faultstore.Fault{Err: &store.Error{Op: "put", Kind: store.ErrDenied}}})
		e.Append(w, "x")
		failed := <-told
		if !errors.Is(failed.Err, store.ErrDenied) || failed.Position != logtest.At(1, 2) || failed.Offset != 1 {
			t.Errorf("a checkpoint that failed: %+v", failed)
		}
	})
}

// Hooks cost an append no allocation.
func TestHooksDoNotAllocate(t *testing.T) {
	per := func(hooks writer.Hooks) float64 {
		st := memstore.New(nil)
		if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probed: fixture.Probed(time.Now())}); err != nil {
			t.Fatal(err)
		}
		w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{
			Checkpoint: -1, NoCompress: true, Hedge: -1, Hooks: hooks,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close(context.Background())
		one := [][]byte{make([]byte, 100)}
		return testing.AllocsPerRun(1, func() { // of 100 appends, since it rounds
			for range 100 {
				if _, err := w.Append(t.Context(), one); err != nil {
					t.Error(err)
				}
			}
		}) / 100
	}
	var bytes int64
	var without, with []float64
	for range 9 {
		without = append(without, per(writer.Hooks{}))
		with = append(with, per(writer.Hooks{Acknowledged: func(a writer.Acknowledgement) { bytes += a.Bytes }}))
	}
	slices.Sort(without)
	slices.Sort(with)
	// Half an allocation is room for what the store's map and the runtime make now and then.
	if with[4] > without[4]+0.5 || bytes < 100*frame.HeaderSize {
		t.Errorf("an append makes %v allocations with a hook, %v without", with[4], without[4])
	}
}
