package cloud

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

// PageSize is how many keys one request lists.
const PageSize = 1000

// ErrPaging: the next page would be the first or the last one again, for ever.
var ErrPaging = errors.New("the store says that there is more and not where")

// Page lists one page: the first one, or that of a token. If there are more pages, next is
// the token of the next one.
type Page func(ctx context.Context, token string) (page []store.Info, more bool, next string, err error)

// List is Store.List over pages. It leaves out folder markers, keys up to
// ListOptions.StartAfter, and keys without the prefix, if a server ignores that.
func List(ctx context.Context, prefix string, opts *store.ListOptions, read Page) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := store.CheckPrefix("list", prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		after := cmp.Or(opts, &store.ListOptions{}).StartAfter
		for token := ""; ; {
			page, more, next, err := read(ctx, token)
			if err == nil && more && (next == "" || next == token) {
				err = &store.Error{Op: "list", Key: prefix, Err: ErrPaging}
			}
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, info := range page {
				ours := strings.HasPrefix(info.Key, prefix) && info.Key > after && store.CheckKey("list", info.Key) == nil
				if ours && !yield(info, nil) {
					return
				}
			}
			if !more {
				return
			}
			token = next
		}
	}
}

// deletesInFlight is how many requests a delete of many keys has in flight.
const deletesInFlight = 16

// Delete deletes keys in one request each, several at a time. A missing key is no error.
func Delete(ctx context.Context, keys []string, one func(ctx context.Context, key string) error) error {
	for _, key := range keys {
		if err := store.CheckKey("delete", key); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(deletesInFlight)
	for _, key := range keys {
		g.Go(func() error {
			if err := one(ctx, key); err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			return nil
		})
	}
	return g.Wait()
}
