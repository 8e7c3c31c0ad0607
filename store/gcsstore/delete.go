package gcsstore

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

const deletesInFlight = 16

// Delete implements [store.Store]: one request for each key, 16 at a time.
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
			var sent request
			err := s.object(key).Delete(sent.with(ctx))
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
