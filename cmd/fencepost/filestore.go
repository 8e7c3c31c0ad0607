package main

import (
	"context"

	"github.com/spf13/cobra"

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
