package state

import (
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
