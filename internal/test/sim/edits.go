package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/writer"
)

// editor is a client that changes the table through one writer.
type editor struct {
	*node
	wr    *writer.Writer
	waits *sync.WaitGroup

	began   bool
	live    []string // files that it believes to be in the table
	removed []string // files that it has removed
	own     []manifest.File
}

// idPrefix begins the property that each edit sets, so that a reader of the table sees
// which edits it contains.
const idPrefix = "id/"

// edit commits a random edit. It returns false when the writer can do no more.
func (e *editor) edit(ctx context.Context, id string) bool {
	if !e.began {
		e.began = true
		if e.rng.IntN(2) == 0 {
			e.learn(ctx)
		}
	}
	edit := manifest.Edit{Properties: map[string]string{idPrefix + id: "", "last": id}}
	for k := range e.rng.IntN(3) {
		if f, ok := e.file(ctx, fmt.Sprintf("%s.%d", id, k)); ok && e.rng.IntN(5) > 0 { // otherwise the file stays an orphan
			edit.Add = append(edit.Add, f)
		}
	}
	live := e.live
	for len(live) > 0 && e.rng.IntN(2) == 0 {
		i := e.rng.IntN(len(live))
		edit.Remove = append(edit.Remove, live[i])
		live = append(live[:i:i], live[i+1:]...)
	}
	switch name := fmt.Sprintf("p%d", e.rng.IntN(2)); e.rng.IntN(3) {
	case 0:
		edit.Properties[name] = id
	case 1:
		edit.Unset = append(edit.Unset, name)
	}
	// A wrong edit must be refused, and the writer must continue.
	wrong := e.rng.IntN(4) == 0
	switch {
	case wrong && len(e.removed) > 0 && e.rng.IntN(2) == 0:
		edit.Remove = append(edit.Remove, e.removed[e.rng.IntN(len(e.removed))])
	case wrong && len(e.own) > 0:
		edit.Add = append(edit.Add, e.own[e.rng.IntN(len(e.own))])
	default:
		wrong = false
	}
	return e.commit(ctx, id, edit, live, wrong)
}

func (e *editor) commit(ctx context.Context, id string, edit manifest.Edit, live []string, wrong bool) bool {
	h := e.history()
	at := h.begin(op{kind: opEdit, node: e.name, epoch: e.wr.Epoch(), values: []string{id}, edit: &edit, call: e.world.steps})
	f, err := e.wr.CommitFilesAsync(ctx, edit)
	conflict := errors.Is(err, writer.ErrConflict)
	// A writer with a successor may report a conflict that the successor's edits caused.
	if conflict != wrong && (err == nil || conflict && !h.overtaken(e.wr.Epoch())) {
		e.broken("conflict", "edit %s of %s: it fits the table: %v, but the answer was %v", id, e.name, !wrong, err)
	}
	if err != nil {
		h.refused(at)
		e.appended(at, 0, err)
		return conflict
	}
	e.live, e.removed = live, append(e.removed, edit.Remove...)
	for _, a := range edit.Add {
		e.live, e.own = append(e.live, a.Key), append(e.own, a)
	}
	e.waits.Go(func() {
		off, err := f.Wait(context.Background())
		e.appended(at, off, err)
	})
	return true
}

// file uploads a file.
func (e *editor) file(ctx context.Context, id string) (manifest.File, bool) {
	// Draw before CreateFile. If the term ends at this moment, the Go scheduler decides
	// which call notices it, and the random draws must not depend on that.
	body := "file " + id + strings.Repeat(".", e.rng.IntN(20))
	f, err := e.wr.CreateFile(ctx, ".f", 0)
	if err != nil {
		return manifest.File{}, false
	}
	_, werr := f.Write([]byte(body))
	if err := f.Close(); err != nil || werr != nil {
		e.expect(err, writer.ErrFenced, writer.ErrClosed, writer.ErrUnknown)
		return manifest.File{}, false
	}
	e.history().contents.Store(f.File().Key, body)
	return f.File(), true
}

// learn reads the files of earlier epochs from the table. No other node can remove them
// while this writer is not fenced.
func (e *editor) learn(ctx context.Context) {
	r, err := reader.Open(ctx, e.store(), e.readerOptions())
	if err != nil {
		e.expect(err)
		return
	}
	t := e.snapshot(ctx, r, &reader.SnapshotOptions{Unpinned: true}, momentEnd, nil)
	if t == nil {
		return
	}
	for f, err := range t.Files(ctx) {
		if err != nil {
			e.missing(err, t.hold, "the table")
			return
		}
		if epoch, _, _, ok := layout.ParseFileKey(f.Key); ok && epoch < e.wr.Epoch() {
			e.live = append(e.live, f.Key)
		}
	}
}
