package survey

import (
	"context"
	"iter"

	"github.com/fencepost/fencepost/store"
)

// Listing lists like [store.ListAll], for a caller that counts and keeps no set of the keys. It calls begin
// whenever the listing begins, also if that is because it broke off: all keys come then, so the count is 0 again.
func Listing(ctx context.Context, st store.Store, prefix string, opts *store.ListOptions, begin func()) iter.Seq2[store.Info, error] {
	return store.ListAll(ctx, &beginning{st, begin}, prefix, opts, nil)
}

// beginning tells of each listing before it begins.
type beginning struct {
	store.Store
	begin func()
}

func (s *beginning) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		s.begin()
		s.Store.List(ctx, prefix, opts)(yield)
	}
}
