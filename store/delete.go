package store

import (
	"context"
	"slices"
)

// deleteBatch is how many keys go into one call of Delete: as many as one request of S3
// takes.
const deleteBatch = 1000

// DeleteAll deletes keys, without condition, with the retries of [Retry]. After an error
// some may be deleted; the call can be repeated. It costs one Delete for 1,000 keys.
func DeleteAll(ctx context.Context, st Store, keys []string, opts *SettleOptions) error {
	for batch := range slices.Chunk(keys, deleteBatch) {
		if err := Retry(ctx, opts, func(ctx context.Context) error { return st.Delete(ctx, batch...) }); err != nil {
			return err
		}
	}
	return nil
}
