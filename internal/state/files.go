package state

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/files"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// FitFiles returns [manifest.ErrFiles] if a log in st needs a second store for files and none is
// given, if one is given and the log has none, or if one of the two lies within the other. It sends no
// request.
func FitFiles(f *manifest.Format, st, given store.Store) error {
	home := ""
	if f.Files != nil {
		home = f.Files.Store
	}
	return files.Fit(st, given, f.Files != nil, home)
}

// MoveFiles records that given has the files of the log in st from now on: after the log, its
// files or both were moved, or if the mark that says so was deleted. Nothing else may use the
// log meanwhile. It probes a store that no log has used before. It copies no files; package
// verify tells whether all are there. If another call has changed the mark since this one began,
// the error is [manifest.ErrFiles], and the mark stays as it is.
func MoveFiles(ctx context.Context, st, given store.Store, settle *store.SettleOptions) error {
	f, err := manifest.ReadFormat(ctx, st, settle)
	if err == nil {
		err = FitFiles(&f, st, given)
	}
	if err != nil {
		return err
	}
	if f.Files == nil {
		return fmt.Errorf("%w: MoveFiles needs the store for files", manifest.ErrOptions)
	}
	seen, err := files.See(ctx, given, f.Log, settle) // now: a probe takes seconds, or as long as the process sleeps
	if err != nil {
		return err
	}
	report, err := files.Probe(ctx, given, nil, clock.Or(nil).Wall(), settle)
	if err != nil {
		return err
	}
	return files.Replace(ctx, given, f.Log, st.Traits(), report, seen, settle)
}
