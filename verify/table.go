package verify

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// edit checks an edit on the chain, and applies it to the table that the manifest
// tells.
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
		v.problem(key, restore, "the edit is none that a writer commits: %s; nothing is folded beyond it", about(key, err))
	}
}

// lists reads all that the newest manifest names, also in pages. It is false if
// some of it cannot be read; then nobody can tell what is named.
func (v *verifier) lists(ctx context.Context) (named map[string]bool, seals map[fence.Epoch]fence.Position, whole bool, err error) {
	named, seals = map[string]bool{}, map[fence.Epoch]fence.Position{}
	read := func() error {
		for s, err := range v.log.Segments(ctx, v.m, 0) {
			if err != nil {
				return err
			}
			named[s.Key] = true
		}
		for d, err := range v.log.Dropped(ctx, v.m) {
			if err != nil {
				return err
			}
			named[d.Key] = true
		}
		for s, err := range v.log.Seals(ctx, v.m) {
			if err != nil {
				return err
			}
			seals[s.Position.Epoch] = s.Position
		}
		for _, key := range v.log.Lists(v.m) {
			named[key] = true
		}
		return nil
	}
	for {
		was := v.m.Version
		err := read()
		if err == nil {
			v.report.Lists = len(v.log.Lists(v.m))
			return named, seals, true, nil
		}
		if !damage(err) && !errors.Is(err, state.ErrGone) {
			return nil, nil, false, err
		}
		// Another manifest may do without it.
		if rerr := v.refresh(ctx); errors.Is(rerr, errNoManifest) {
			return nil, nil, false, nil
		} else if rerr != nil {
			return nil, nil, false, rerr
		}
		if v.m.Version == was {
			v.problem(layout.ManifestKey(was), restore+"; "+keep, "a list that it names cannot be read: %s", about(layout.ManifestKey(was), err))
			return nil, nil, false, nil
		}
		clear(named)
		clear(seals)
	}
}

// fileSizes lists the files of the table.
func (v *verifier) fileSizes(ctx context.Context) (map[string]int64, error) {
	sizes := map[string]int64{}
	for info, err := range store.ListAll(ctx, v.st, KindFile+"/", nil, v.opts.Settle) {
		if err != nil {
			return nil, err
		}
		sizes[info.Key] = info.Size
	}
	return sizes, nil
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
		if errors.Is(err, state.ErrGone) || err != nil && damage(err) {
			// Pages of an older manifest than the newest by now, or damage, which lists
			// finds.
			return nil
		}
		if err != nil {
			return err
		}
		v.report.Files++
		if size, there := sizes[f.Key]; !there || size != f.Size {
			bad[f.Key] = f
		}
	}
	if len(bad) == 0 {
		return nil
	}
	// They may have been removed from the table meanwhile, and deleted.
	live, err := v.stillLive(ctx, bad)
	if err != nil {
		return err
	}
	for key, f := range live {
		if size, there := sizes[key]; there {
			v.problem(key, restore, "the file has %d bytes, the table says %d", size, f.Size)
		} else {
			v.problem(key, restore, "the file is missing, and it is live in the table")
		}
	}
	return nil
}

// stillLive returns those of some files that are in the table now.
func (v *verifier) stillLive(ctx context.Context, files map[string]manifest.File) (map[string]manifest.File, error) {
	for {
		m, err := v.log.Newest(ctx)
		if err != nil {
			return nil, err
		}
		live := map[string]manifest.File{}
		for f, err := range v.log.Files(ctx, m) {
			if err != nil {
				return nil, err
			}
			if _, ok := files[f.Key]; ok {
				live[f.Key] = f
			}
		}
		for step, err := range v.chain.Walk(ctx, m.Floor) {
			if err != nil {
				break // it was told
			}
			if doc := step.Frame.Edit(); doc != nil {
				e, err := state.DecodeEdit(doc)
				if err != nil {
					break
				}
				for _, f := range e.Add {
					if _, ok := files[f.Key]; ok {
						live[f.Key] = f
					}
				}
				for _, key := range e.Remove {
					delete(live, key)
				}
			}
		}
		// What was walked counts if it was not behind the floor.
		now, err := v.log.Newest(ctx)
		if err != nil {
			return nil, err
		}
		if now.Floor.Equal(m.Floor) {
			return live, nil
		}
	}
}
