package azurestore

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Delete implements [store.Store], in one request for each key, 16 at a time. It deletes a
// blob's snapshots too.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	return cloud.Delete(ctx, keys, func(ctx context.Context, key string) error {
		snapshots := blob.DeleteSnapshotsOptionTypeInclude
		_, err := s.client.NewBlobClient(key).Delete(once(ctx), &blob.DeleteOptions{DeleteSnapshots: &snapshots})
		if err != nil {
			return s.fail(ctx, call{op: "delete", key: key, missing: store.ErrNotFound}, err)
		}
		return nil
	})
}
