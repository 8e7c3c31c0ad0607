package verify

import (
	"context"
	"errors"

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
	if v.table == nil {
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

// files checks that every live file is there with its size.
func (v *verifier) files(ctx context.Context) error {
	if v.table == nil || v.table.Live() == 0 {
		return nil
	}
	sizes, err := v.fileSizes(ctx)
	if err != nil {
		return err
	}
	bad := map[string]manifest.File{}
	for f, err := range v.log.Files(ctx, v.table) {
		if err != nil && unreadable(err) {
			return nil // a page that a newer manifest has replaced, or damage, which lists reports
		}
		if err != nil {
			return err
		}
		v.report.Files++
		if size, there := sizes[f.Key]; !there || size != f.Size {
			bad[f.Key] = f
		}
	}
	// An edit may have removed some of them meanwhile.
	for moved := len(bad) > 0; moved; {
		if moved, err = v.stillLive(ctx, bad); err != nil {
			return err
		}
	}
	for key, f := range bad {
		if size, there := sizes[key]; there {
			v.problem(key, restore, "the file has %d bytes, the table says %d", size, f.Size)
		} else {
			v.problem(key, restore, "the file is missing, and it is live in the table")
		}
	}
	return nil
}

// fileSizes lists the files of the log.
func (v *verifier) fileSizes(ctx context.Context) (map[string]int64, error) {
	sizes := map[string]int64{}
	for info, err := range store.ListAll(ctx, v.st, layout.FilePrefix, nil, v.opts.Settle) {
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
func (v *verifier) stillLive(ctx context.Context, files map[string]manifest.File) (moved bool, err error) {
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
