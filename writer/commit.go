package writer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unique"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
)

// CommitFiles changes the log's table in one atom, with a cursor if one is given: it adds
// and removes files and sets properties. The edit is an object of the log like an append:
// it comes after everything that was appended before it. Nobody sees any of it before it is
// durable.
//
// Errors: those of [Writer.Append], and [ErrConflict]. A file to add must have been created
// and closed by this writer, and not been added before. A file to remove must be live. A
// conflict is found before anything is written, and the writer goes on.
//
// Commits that wait at the same time may share an object. Each is still all or nothing, and
// readers then see them in the same moment.
//
// The first commit reads which files are live: the lists of the newest manifest, and every
// object of the log that is not folded yet, since edits may be among them. Other commits
// wait for it. If ctx ends, the next commit begins again, so allow it time where the
// compactor is late. The writer then keeps the keys in memory, some 60 bytes each.
func (w *Writer) CommitFiles(ctx context.Context, edit manifest.Edit, opts ...AppendOption) error {
	f, err := w.CommitFilesAsync(ctx, edit, opts...)
	if err != nil {
		return err
	}
	_, err = f.Wait(ctx)
	return err
}

// CommitFilesAsync is CommitFiles that waits only for room, like [Writer.AppendAsync]. The
// Future tells the offset of the edit: the edit comes after all records below that offset.
func (w *Writer) CommitFilesAsync(ctx context.Context, edit manifest.Edit, opts ...AppendOption) (Future, error) {
	f, err := w.commit(ctx, &edit, opts)
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, ErrNotCommitted) {
		err = notCommitted(err)
	}
	return failedFuture(err), err
}

func (w *Writer) commit(ctx context.Context, edit *manifest.Edit, opts []AppendOption) (Future, error) {
	e, err := w.measureEdit(edit, opts)
	if err != nil {
		return Future{}, err
	}
	t := &w.table
	// guard:edit-order. A writer checks and queues one edit at a time.
	//
	//mutant:replace defer func() { <-t.turn }() => <-t.turn
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-w.closed:
		return Future{}, w.Err()
	case <-ctx.Done():
		return Future{}, w.outage.Cause(ctx)
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
		return Future{}, err // it was not sent
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

// maxTogether is how large a document may be, in bytes, in which several edits wait. It is
// encoded again for each of them.
const maxTogether = 32 << 10

// together returns the document that does what the waiting edit and then e do, or nil if they
// cannot share an object. Called with mu held.
func (w *Writer) together(e *entry) []byte {
	b := w.waiting
	if !b.IsEdit() || len(b.edit)+len(e.edit) > maxTogether {
		return nil
	}
	first, err := state.DecodeEdit(b.edit)
	if err != nil {
		return nil
	}
	then, err := state.DecodeEdit(e.edit)
	if err != nil {
		return nil
	}
	both := &manifest.Edit{Add: slices.Concat(first.Add, then.Add), Remove: slices.Concat(first.Remove, then.Remove), Properties: map[string]string{}, Unset: slices.Concat(first.Unset, then.Unset)}
	maps.Copy(both.Properties, first.Properties)
	maps.Copy(both.Properties, then.Properties)
	// It is no valid edit if one commit needs the other: if it removes a file that the other
	// adds, or unsets a property that the other sets.
	doc, err := state.EncodeEdit(both)
	if err != nil || int64(len(doc)) > w.format.Limits.Object {
		return nil
	}
	return doc
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
	if int64(len(doc)) > limits.Object {
		return entry{}, fmt.Errorf("%w: the edit has %d bytes; this log allows objects of %d; commit less at a time", ErrTooLarge, len(doc), limits.Object)
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

// check checks that an edit fits the table, and returns the properties after it.
func (w *Writer) check(edit *manifest.Edit) (properties map[string]string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range edit.Add {
		done, complete := w.completed[f.Key]
		switch epoch, _, _, _ := layout.ParseFileKey(f.Key); {
		case epoch != w.token.Epoch():
			// guard:edit-epoch. A writer adds only files of its own epoch, because a compactor may
			// delete older ones that no edit has added.
			return nil, conflict(f.Key, fmt.Sprintf("is of epoch %d; the writer of epoch %d adds only files that it has created", epoch, w.token.Epoch()))
		case !complete:
			// guard:edit-complete. A writer adds only files that it has created and closed, and each of
			// them once.
			return nil, conflict(f.Key, "was not created and closed by this writer, or was added before")
		case done.Size != f.Size || done.CRC32C != f.CRC32C:
			// guard:edit-content. A file is added with the size and checksum of what was uploaded.
			return nil, conflict(f.Key, fmt.Sprintf("has %d bytes and the CRC-32C %08x; the edit says %d and %08x; add what FileWriter.File returns", done.Size, done.CRC32C, f.Size, f.CRC32C))
		}
	}
	for _, key := range edit.Remove {
		// guard:edit-live. A commit removes only live files.
		//
		//mutant:replace !ok || live.Value() != ext => ok && live.Value() == "?"+ext
		id, ext := parse(key)
		if live, ok := w.table.live[id]; !ok || live.Value() != ext {
			return nil, conflict(key, "is not live, so it cannot be removed")
		}
	}
	properties, err = state.SetProperties(edit, w.table.properties)
	if err != nil {
		return nil, tooLarge(err)
	}
	return properties, nil
}
