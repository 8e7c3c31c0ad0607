package gcsstore

import (
	"context"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Delete implements [store.Store], in one request for each key, 16 at a time.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	return cloud.Delete(ctx, keys, func(ctx context.Context, key string) error {
		if err := s.objects.Delete(s.name, key).Context(ctx).Do(); err != nil {
			return s.fail(ctx, call{op: "delete", key: key, missing: store.ErrNotFound}, err)
		}
		return nil
	})
}
