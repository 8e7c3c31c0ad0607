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
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// table is what commits need to know of the log's table: the keys of the live files
// and the properties, with all edits that this writer has sent.
//
// An edit counts from the moment at which it takes its place in the pipeline: if it
// is not committed after all, nothing behind it is, and the writer is over.
type table struct {
	begin frame.Point // of this epoch
	// turn is held by the commit that is being checked and put in line, so that the
	// next is checked against its result. It is no mutex: requests are made meanwhile.
	turn chan struct{}

	loaded     bool
	live       map[fileID]unique.Handle[string] // the extensions
	properties map[string]string
}

// fileID is a file's key but for its extension, in a third of the memory.
type fileID struct {
	epoch fence.Epoch
	id    uuid.UUID
}

func newTable(begin frame.Point) table { return table{begin: begin, turn: make(chan struct{}, 1)} }

// parse reads a key that has passed Validate, or comes from a manifest.
func parse(key string) (fileID, string) {
	epoch, id, ext, _ := layout.ParseFileKey(key)
	u, _ := uuid.Parse(id)
	return fileID{epoch, u}, ext
}

// CommitFiles changes the log's table in one atom, with a cursor if one is given:
// adds and removes files, sets properties. The edit is a log entry like an append:
// it lies behind everything that was appended before it, and nothing of it can be
// seen before it is durable.
//
// Its errors are those of [Writer.Append], and [ErrConflict]: a file to be added is
// not one that this writer has created and closed, or was added before; a file to be
// removed is not live. They are found before anything is written, and the writer
// goes on.
//
// The first commit reads which files are live: the newest manifest's lists, and every
// object of the log that is not compacted yet, where there may be edits. It takes as
// long as reading those takes, other commits wait for it, and if ctx ends the next
// begins anew; so give it time where the compactor may be behind. The writer then
// keeps the keys in memory, some 60 bytes each.
func (w *Writer) CommitFiles(ctx context.Context, edit manifest.Edit, opts ...AppendOption) error {
	f, err := w.CommitFilesAsync(ctx, edit, opts...)
	if err != nil {
		return err
	}
	_, err = f.Wait(ctx)
	return err
}

// CommitFilesAsync is CommitFiles that waits only for room, like
// [Writer.AppendAsync]. The Future tells the offset at which the edit lies: it
// counts for who has read all records before it.
func (w *Writer) CommitFilesAsync(ctx context.Context, edit manifest.Edit, opts ...AppendOption) (Future, error) {
	f, err := w.commit(ctx, &edit, opts)
	var failed *AppendError
	if err != nil && !errors.As(err, &failed) {
		err = notCommitted(err)
	}
	if err != nil {
		return refused(err), err
	}
	return f, nil
}

func (w *Writer) commit(ctx context.Context, edit *manifest.Edit, opts []AppendOption) (Future, error) {
	e, err := w.measureEdit(edit, opts)
	if err != nil {
		return Future{}, err
	}
	t := &w.table
	// guard:edit-order. One at a time: the next one is checked against this one's
	// result, and lies behind it.
	//
	//mutant:replace defer func() { <-t.turn }() => <-t.turn
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-w.closed:
		return Future{}, w.Err()
	case <-ctx.Done():
		return Future{}, context.Cause(ctx)
	}
	if err := w.Err(); err != nil {
		return Future{}, err // sooner than a conflict
	}
	if err := w.load(ctx); err != nil {
		return Future{}, err
	}
	properties, err := w.check(edit)
	if err != nil {
		return Future{}, err
	}
	f, err := w.enqueue(ctx, e)
	if err != nil {
		return Future{}, err // nothing of it counts
	}
	t.properties = properties
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range edit.Add {
		delete(w.completed, a.Key)
		id, ext := parse(a.Key)
		t.live[id] = unique.Make(ext)
	}
	for _, key := range edit.Remove {
		id, _ := parse(key)
		delete(t.live, id)
	}
	return f, nil
}

func (w *Writer) measureEdit(edit *manifest.Edit, opts []AppendOption) (entry, error) {
	if err := edit.Validate(); err != nil {
		return entry{}, tooLarge(err)
	}
	doc, err := state.EncodeEdit(edit)
	if err != nil {
		return entry{}, tooLarge(err)
	}
	limits := w.format.Limits
	if len(doc) > limits.Object {
		return entry{}, fmt.Errorf("%w: an edit of %d bytes; the log allows objects of %d; commit less at a time", ErrTooLarge, len(doc), limits.Object)
	}
	e := entry{edit: doc, size: len(doc)}
	return e, e.apply(opts, limits)
}

func tooLarge(err error) error {
	if errors.Is(err, fence.ErrLimit) {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return fmt.Errorf("writer: %w", err)
}

// check tells whether an edit fits the table, and what properties it makes.
func (w *Writer) check(edit *manifest.Edit) (properties map[string]string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range edit.Add {
		size, complete := w.completed[f.Key]
		switch epoch, _, _, _ := layout.ParseFileKey(f.Key); {
		case epoch != w.token.Epoch():
			// guard:edit-epoch. An old epoch's file may be swept as an orphan at any time.
			return nil, &ConflictError{f.Key, fmt.Sprintf("is of epoch %d; this writer, of epoch %d, adds only files that it has created", epoch, w.token.Epoch())}
		case !complete:
			// guard:edit-complete. A file that is not there, or was added before: then it
			// may have been removed since, and deleted.
			return nil, &ConflictError{f.Key, "was not created and closed by this writer, or was added before"}
		case size != f.Size:
			return nil, &ConflictError{f.Key, fmt.Sprintf("has %d bytes, the edit says %d", size, f.Size)}
		}
	}
	for _, key := range edit.Remove {
		// guard:edit-live. Who removes what is not there builds on a table that has
		// changed.
		//
		//mutant:replace !ok || live.Value() != ext => ok && live.Value() == "?"+ext
		id, ext := parse(key)
		if live, ok := w.table.live[id]; !ok || live.Value() != ext {
			return nil, &ConflictError{key, "is not live, so it cannot be removed"}
		}
	}
	properties, err = state.SetProperties(edit, w.table.properties)
	if err != nil {
		return nil, tooLarge(err)
	}
	return properties, nil
}

// loadTries bounds how often reading the table starts over. Each time a compactor
// has moved the floor past what was being read.
const loadTries = 100

// load reads the table as it is at the beginning of this epoch, if that has not
// been done. No edit of this epoch has been sent before, so a manifest whose floor
// is in this epoch says the same.
func (w *Writer) load(ctx context.Context) error {
	t := &w.table
	if t.loaded {
		return nil
	}
	for range loadTries {
		m, err := w.log.Newest(ctx)
		if err != nil {
			return err
		}
		if m.Floor.Before(t.begin) {
			edits, err := w.editsFrom(ctx, m.Floor)
			if err == nil {
				m, err = m.Apply(edits)
			}
			if errors.Is(err, errRestart) {
				continue
			}
			if err != nil {
				return err
			}
		}
		live := map[fileID]unique.Handle[string]{}
		for f, failed := range w.log.Files(ctx, m) {
			if err = failed; err != nil {
				break
			}
			id, ext := parse(f.Key)
			live[id] = unique.Make(ext)
		}
		switch {
		case errors.Is(err, state.ErrPruned):
			// It was replaced long ago, and what only it named has been pruned.
		case err != nil:
			return err
		default:
			t.loaded, t.live, t.properties = true, live, m.Properties
			return nil
		}
	}
	return fmt.Errorf("writer: the floor moved %d times while the table was read; is the log compacted without pause?", loadTries)
}

// editsFrom collects the edits on the chain from a floor to the beginning of this
// epoch. The error is errRestart if the floor has moved meanwhile.
//
// guard:table-moved. Slots behind the floor may be absent, or hold junk: a seal in a
// hole may lead around edits to where this epoch begins. So what was read counts
// only if the floor has not passed the first seal followed.
//
//mutant:replace m.Floor.Position != floor.Position => false
func (w *Writer) editsFrom(ctx context.Context, floor frame.Point) ([]state.AppliedEdit, error) {
	src := &chain.Source{
		Store: w.st, Log: w.format.Log, Limits: w.format.Limits.Limits, Settle: w.opts.Settle, Ahead: ahead(w.opts.InFlight),
		Keep: func(*frame.Header) bool { return true }, // records are of no interest here
	}
	var edits []state.AppliedEdit
	var followed *fence.Position
	at, broken := floor, error(nil)
	for step, err := range src.Walk(ctx, floor) {
		if broken = err; err != nil {
			break
		}
		at = step.To
		switch step.Frame.Kind {
		case frame.Edit:
			edit, err := state.DecodeEdit(step.Frame.Edit())
			if err != nil {
				return nil, fmt.Errorf("writer: %s: %w", layout.DataKey(step.From.Position), err)
			}
			edits = append(edits, state.AppliedEdit{Position: step.From.Position, Offset: step.From.Offset, Edit: edit})
		case frame.Seal:
			followed = first(followed, step.From.Position)
		}
		if !at.Before(w.table.begin) {
			break
		}
	}
	if broken != nil && !errors.Is(broken, fence.ErrCorrupt) && !errors.Is(broken, fence.ErrLimit) {
		return nil, broken
	}
	m, err := w.log.Newest(ctx)
	switch {
	case err != nil:
		return nil, err
	case m.Floor.Position != floor.Position && (followed == nil || m.Past(*followed) || !at.Equal(w.table.begin)):
		return nil, errRestart
	case broken != nil:
		return nil, broken
	case !at.Equal(w.table.begin):
		return nil, &store.Error{Op: "get", Key: layout.DataKey(at.Position), Kind: store.ErrNotFound, Hint: "it is before the beginning of this epoch; run `fencepost verify` to see the extent"}
	}
	return edits, nil
}
