package azurestore

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

const deletesInFlight = 16

// Delete implements [store.Store]: one request for each key, 16 at a time. It
// takes the snapshots of a blob along.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := store.CheckKey("delete", key); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(deletesInFlight)
	for _, key := range keys {
		g.Go(func() error {
			snapshots := blob.DeleteSnapshotsOptionTypeInclude
			_, err := s.client.NewBlobClient(key).Delete(once(ctx), &blob.DeleteOptions{DeleteSnapshots: &snapshots})
			if err == nil {
				return nil
			}
			failed := s.fail(ctx, call{op: "delete", key: key, missing: store.ErrNotFound}, err)
			if errors.Is(failed, store.ErrNotFound) {
				return nil
			}
			return failed
		})
	}
	return g.Wait()
}
