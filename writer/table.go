package writer

import (
	"context"
	"errors"
	"fmt"
	"unique"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
)

// table is what commits need to know of the log's table: the keys of the live files and the
// properties, with all edits that this writer has sent.
//
// An edit counts from the moment when it takes its place in the pipeline. If it is not
// committed after all, nothing after it is, and the writer is over.
type table struct {
	begin frame.Point // of this epoch
	// turn is held by the commit that is being checked and queued, so that the next one is
	// checked against its result. It is no mutex, because requests are made meanwhile. It
	// guards everything below.
	turn chan struct{}

	loaded     bool
	live       map[fileID]unique.Handle[string] // the extensions
	properties map[string]string
}

// fileID is a file's key without its extension, in a third of the memory.
type fileID struct {
	epoch fence.Epoch
	id    uuid.UUID
}

func newTable(begin frame.Point) table { return table{begin: begin, turn: make(chan struct{}, 1)} }

// parse reads a key that has passed Validate, or that comes from a manifest.
func parse(key string) (fileID, string) {
	epoch, id, ext, _ := layout.ParseFileKey(key)
	u, _ := uuid.Parse(id)
	return fileID{epoch, u}, ext
}

// loadTries bounds how often reading the table begins again. Each time a compactor has
// moved the floor past what was being read.
const loadTries = 100

// load reads the table as it is at the beginning of this epoch, unless that was done. No
// edit of this epoch has been sent before, so a manifest whose floor is in this epoch says
// the same.
func (w *Writer) load(ctx context.Context) error {
	for try := 0; !w.table.loaded; try++ {
		err := w.loadOnce(ctx)
		switch {
		case errors.Is(err, chain.ErrMoved) && try < loadTries:
		case errors.Is(err, chain.ErrMoved):
			return fmt.Errorf("writer: the floor moved %d times while the table was read; is the log compacted without pause?", loadTries)
		case err != nil:
			return err
		}
	}
	return nil
}

func (w *Writer) loadOnce(ctx context.Context) error {
	m, err := w.log.Newest(ctx)
	if err != nil {
		return err
	}
	if m.Floor.Before(w.table.begin) {
		edits, err := w.editsFrom(ctx, m.Floor)
		if err != nil {
			return fmt.Errorf("writer: reading the table: %w", err)
		}
		if m, err = m.Apply(edits); err != nil {
			return err
		}
	}
	live := map[fileID]unique.Handle[string]{}
	for f, err := range w.log.Files(ctx, m) {
		if errors.Is(err, state.ErrPruned) {
			return chain.ErrMoved // the manifest was pruned meanwhile, and pages that only it named
		}
		if err != nil {
			return err
		}
		id, ext := parse(f.Key)
		live[id] = unique.Make(ext)
	}
	w.table.loaded, w.table.live, w.table.properties = true, live, m.Properties
	return nil
}

// editsFrom collects the edits on the chain from a floor to the beginning of this epoch. The
// error is [chain.ErrMoved] if the floor has moved meanwhile.
func (w *Writer) editsFrom(ctx context.Context, floor frame.Point) (edits []state.AppliedEdit, err error) {
	follow := &chain.Follower{
		Source: &chain.Source{
			Store: w.st, Log: w.format.Log, Limits: w.format.Limits, Settle: w.opts.Settle,
			Keep: func(*frame.Header) bool { return true }, // no records are needed here
		},
		Floor: w.log.Floor,
	}
	at := floor
	for step, err := range follow.Walk(ctx, floor) {
		if err != nil {
			return nil, err
		}
		if step.Frame.Kind == frame.Edit {
			edit, err := state.DecodeEdit(step.Frame.Edit())
			if err != nil {
				return nil, follow.Classify(ctx, step.From.Position, fmt.Errorf("%s: %w", layout.DataKey(step.From.Position), err))
			}
			edits = append(edits, state.AppliedEdit{Position: step.From.Position, Offset: step.From.Offset, Edit: edit})
		}
		if at = step.To; !at.Before(w.table.begin) {
			break
		}
	}
	if !at.Equal(w.table.begin) {
		return nil, follow.Classify(ctx, at.Position, fmt.Errorf("%w: %s is missing, before the beginning of epoch %d", fence.ErrCorrupt, layout.DataKey(at.Position), w.token.Epoch()))
	}
	// guard:table-moved. A writer reads the floor again after it has read the edits, and begins again
	// if the floor has passed the first seal on the way.
	//
	//mutant:replace follow.Confirm(ctx) => error(nil)
	return edits, follow.Confirm(ctx)
}
