package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// fileStore is the flag that names a second store, which has the files of the log's table.
type fileStore struct {
	app *app
	url string
}

func (a *app) fileStoreFlag(c *cobra.Command) *fileStore {
	f := &fileStore{app: a}
	c.Flags().StringVar(&f.url, "files", "", "`URL` of the store for the files of the table, if the log keeps them apart")
	return f
}

// open returns nil if no store was given.
func (f *fileStore) open(ctx context.Context, create bool) (store.Store, error) {
	if f.url == "" {
		return nil, nil
	}
	return f.app.store(ctx, f.url, create)
}

// fits returns [manifest.ErrFiles] if the log in st needs a second store for its files and none is given, or if given is not
// one that it can have. It asks the second store nothing.
func fits(ctx context.Context, st store.Store, f *manifest.Format, given store.Store) error {
	if f.Files != nil && given == nil {
		return fmt.Errorf("%w: the log in %s keeps its files in another store, %s; give that with --files URL", manifest.ErrFiles, st.Traits().Name, f.Files.Store)
	}
	_, err := reader.Open(ctx, st, &reader.Options{Files: given})
	return err
}
