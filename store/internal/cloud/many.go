package cloud

import (
	"context"
	"errors"
	"iter"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

// PageSize is how many keys one request lists.
const PageSize = 1000

// ErrPaging: going on would begin again, for ever.
var ErrPaging = errors.New("the store says that there is more and not where")

// Page lists one page, that at a token or the first one. If there is more, next is
// another token.
type Page func(ctx context.Context, token string) (page []store.Info, more bool, next string, err error)

// List goes through the pages of a listing, and leaves out what is none of ours:
// folder markers, keys that are not greater than the one to start after, and, from a
// server that ignores the prefix, keys beside it.
func List(ctx context.Context, prefix string, opts *store.ListOptions, read Page) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := store.CheckPrefix("list", prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		after := ""
		if opts != nil {
			after = opts.StartAfter
		}
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

// deletesInFlight is how many requests a delete of many keys makes at once.
const deletesInFlight = 16

// Delete deletes keys one by one, several at a time. That one is missing is no error.
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
