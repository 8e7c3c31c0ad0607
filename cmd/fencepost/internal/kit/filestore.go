package kit

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// FilesFlag adds --files to a verb.
func (k *Kit) FilesFlag(c *cobra.Command) {
	c.Flags().StringVar(&k.files, "files", "", "`URL` of the store for the files of the table, if the log keeps them apart")
}

// Files opens the second store, which has the files of the log's table. It returns nil if none was given.
func (k *Kit) Files(ctx context.Context, create bool) (store.Store, error) {
	if k.files == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	return k.Store(ctx, k.files, create)
}

// Fits returns [manifest.ErrFiles] if the log in st needs a second store for its files and none is given, or if given is not
// one that it can have. It asks the second store nothing.
func Fits(ctx context.Context, st store.Store, f *manifest.Format, given store.Store) error {
	if f.Files != nil && given == nil {
		return fmt.Errorf("%w: the log in %s keeps its files in another store, %s; give that with --files URL", manifest.ErrFiles, st.Traits().Name, f.Files.Store)
	}
	_, err := reader.Open(ctx, st, &reader.Options{Files: given})
	return err
}
