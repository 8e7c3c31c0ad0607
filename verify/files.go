package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// edit checks an edit on the chain, and applies it to the table.
func (v *verifier) edit(f *frame.Frame) {
	doc := f.Edit()
	if doc == nil {
		return
	}
	v.report.Edits++
	if v.table == nil || v.opts.Outline {
		return // what came before is not known
	}
	e, err := state.DecodeEdit(doc)
	if err == nil {
		v.table, err = v.table.Apply([]state.AppliedEdit{{Position: f.Position, Offset: f.Offset, Edit: e}})
	}
	if err != nil {
		v.table = nil
		key := layout.DataKey(f.Position)
		v.problem(key, restore, "no writer commits such an edit: %s; nothing is folded past it", about(key, err))
	}
}

// second reports whether the files are in a store of their own.
func (v *verifier) second() bool { return v.files != nil && v.log.Format().Files != nil }

// mark checks that a second store for files says that it is this log's.
func (v *verifier) mark(ctx context.Context) error {
	if v.files == nil {
		return nil
	}
	_, err := v.log.CheckFiles(ctx, !v.opts.Copy)
	if !errors.Is(err, manifest.ErrFiles) && !errors.Is(err, fence.ErrCorrupt) {
		return err
	}
	v.problem("", "give the store that has the log's files; after a move, or if its mark was deleted, run fencepost init --files URL --files-moved",
		"no writer creates files, and no compactor deletes any: %v", err)
	return nil
}

// liveFiles checks that every live file is there, with its size and its content.
func (v *verifier) liveFiles(ctx context.Context) error {
	if v.files == nil || v.table == nil || v.table.Live() == 0 {
		return nil
	}
	live, err := v.liveOnce(ctx)
	if err != nil || live == nil {
		return err
	}
	v.report.Files = len(live)
	bad, err := v.badFiles(ctx, live, "files")
	if err != nil {
		return err
	}
	// An edit may have removed some of them meanwhile.
	for moved := len(bad) > 0; moved; {
		if moved, err = v.stillLive(ctx, bad); err != nil {
			return err
		}
	}
	for key, why := range bad {
		v.problem(key, restore, "%s, and it is live in the table", about(key, why))
	}
	return nil
}

// The remedies for a table that no correct writer has made. No edit can put it right.
const (
	addedTwice = "stop that writer, and let no edit remove the file: a compactor would delete it, and the table would still name it. " + otherLog
	addedDead  = "stop the compactors and that writer, and copy the file before the grace period ends. " + otherLog
	otherLog   = "Go on with a backup of before, by fencepost restore, or with a new log"
)

// liveOnce returns each live file once, in order. It reports those that the table names twice, and those
// that a compactor will delete nevertheless. It returns none if a page cannot be read.
func (v *verifier) liveOnce(ctx context.Context) (live []manifest.File, err error) {
	for f, err := range v.log.Files(ctx, v.table) {
		if err != nil && unreadable(err) {
			return nil, nil // a page that a newer manifest has replaced, or damage, which pages reports
		}
		if err != nil {
			return nil, err
		}
		if n := len(live); n > 0 && live[n-1].Key == f.Key {
			v.problem(f.Key, addedTwice, "the table names it twice, because a faulty writer has added it again; readers of the table get it twice, and the compactor will stop when it rewrites that page of the table")
			continue
		}
		f.Meta = nil // not needed, and it may be long
		live = append(live, f)
	}
	for d, err := range v.log.Dropped(ctx, v.table) {
		if err != nil && unreadable(err) {
			break // the same
		}
		if err != nil {
			return nil, err
		}
		_, found := slices.BinarySearchFunc(live, d.Key, func(f manifest.File, key string) int { return cmp.Compare(f.Key, key) })
		if found {
			v.problem(d.Key, addedDead, "it is live in the table, and also on the list of what a compactor deletes: a faulty writer has added it again, and an edit has removed it; when it is deleted, nobody can read the table whole")
		}
	}
	return live, nil
}

// badFiles returns what is wrong with files, by key. It lists them all, and reads each whose
// content has not been read yet.
func (v *verifier) badFiles(ctx context.Context, files []manifest.File, stage string) (bad map[string]error, err error) {
	bad = map[string]error{}
	if v.files == nil {
		return bad, nil
	}
	sizes, err := v.fileSizes(ctx)
	if err != nil {
		return nil, err
	}
	var read []manifest.File
	for _, f := range files {
		switch size, there := sizes[f.Key]; {
		case !there:
			bad[f.Key] = errNoFile
		case size != f.Size:
			bad[f.Key] = fmt.Errorf("%w: the file has %d bytes, the table says %d", fence.ErrCorrupt, size, f.Size)
		case !v.opts.NoContent && !v.sound[f.Key] && v.opts.due(f.Key):
			read = append(read, f)
		}
	}
	errs, err := each(ctx, len(read), func(ctx context.Context, i int) error {
		err := v.content(ctx, &read[i])
		if err != nil && unreadable(err) {
			err = v.content(ctx, &read[i]) // perhaps only the transfer was
		}
		return err
	}, func(n int) {
		v.opts.Hooks.Progress(Progress{Stage: stage, Done: int64(n), Total: int64(len(read))})
	})
	if err != nil {
		return nil, err
	}
	for i, f := range read {
		if errs[i] != nil {
			bad[f.Key] = errs[i]
			continue
		}
		v.sound[f.Key] = true
		v.report.Bytes += f.Size
	}
	return bad, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// content reads a file in parts and compares its checksum.
func (v *verifier) content(ctx context.Context, f *manifest.File) error {
	const part = 2 << 20
	sum := uint32(0)
	for at := int64(0); at < f.Size; {
		b, _, err := store.Read(ctx, v.files, f.Key, &store.ReadOptions{Offset: at, Length: min(part, f.Size-at), Settle: v.opts.Settle})
		switch {
		case errors.Is(err, store.ErrNotFound):
			return errNoFile
		case err != nil:
			return err
		case len(b) == 0:
			return fmt.Errorf("%w: the file ends at byte %d, the table says %d", fence.ErrCorrupt, at, f.Size)
		}
		at += int64(len(b))
		sum = crc32.Update(sum, castagnoli, b)
	}
	if sum != f.CRC32C {
		return fmt.Errorf("%w: the checksum of the file is %08x, the table says %08x", fence.ErrCorrupt, sum, f.CRC32C)
	}
	return nil
}

// fileSizes lists the files of the log.
func (v *verifier) fileSizes(ctx context.Context) (map[string]int64, error) {
	sizes := map[string]int64{}
	for info, err := range store.ListAll(ctx, v.files, layout.FilePrefix, nil, v.opts.Settle) {
		if err != nil {
			return nil, err
		}
		sizes[info.Key] = info.Size
	}
	return sizes, nil
}

// stillLive deletes from files those that are not in the table any more. No file is added
// twice, so one that was removed stays so. It reports whether the floor has moved
// meanwhile: then it has to be called again.
func (v *verifier) stillLive(ctx context.Context, files map[string]error) (moved bool, err error) {
	if err := v.refresh(ctx); err != nil {
		return false, err
	}
	removed := map[string]bool{}
	for key := range files {
		removed[key] = true
	}
	for f, err := range v.log.Files(ctx, v.m) {
		if err != nil {
			return false, err
		}
		delete(removed, f.Key)
	}
	f, at := v.follower(false), v.m.Floor
	for step, werr := range f.Walk(ctx, at) {
		if err = werr; err != nil {
			break
		}
		at = step.To
		doc := step.Frame.Edit()
		if doc == nil {
			continue
		}
		e, err := state.DecodeEdit(doc)
		if err != nil {
			break // damage that was reported
		}
		for _, f := range e.Add {
			delete(removed, f.Key)
		}
		for _, key := range e.Remove {
			if _, ok := files[key]; ok {
				removed[key] = true
			}
		}
	}
	if err == nil {
		err = f.Tail(ctx, at.Position)
	}
	switch {
	case errors.Is(err, errMoved):
		return true, nil
	case err != nil && !errors.Is(err, chain.ErrDamaged): // that was reported
		return false, err
	}
	for key := range removed {
		delete(files, key)
	}
	return false, nil
}
