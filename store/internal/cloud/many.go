package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

// PageSize is how many keys one request lists.
const PageSize = 1000

var (
	// ErrPaging: the next page would be the first or the last one again, for ever.
	ErrPaging = errors.New("the store says that there is more and not where")
	errPages  = errors.New("the store gives a page of the listing for the second time; the listing would never end")
	errEmpty  = fmt.Errorf("the store has given %d empty pages one after the other, and says that there is more", maxEmpty)
)

// maxEmpty is how many empty pages may follow each other. S3 gives some where a million versions were deleted.
const maxEmpty = 1000

// Pages sees that a listing goes on. Stores need not list in order.
type Pages struct {
	firsts map[string]struct{}
	empty  int
}

// Next notes a page by the name of its first entry, "" if it has none.
func (p *Pages) Next(first string) error {
	if first == "" {
		if p.empty++; p.empty > maxEmpty {
			return errEmpty
		}
		return nil
	}
	if _, seen := p.firsts[first]; seen {
		return errPages
	}
	if p.firsts == nil {
		p.firsts = map[string]struct{}{}
	}
	p.empty, p.firsts[first] = 0, struct{}{}
	return nil
}

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
		var pages Pages
		for token := ""; ; {
			page, more, next, err := read(ctx, token)
			if err == nil {
				first := ""
				if len(page) > 0 {
					first = page[0].Key
				}
				if bad := pages.Next(first); bad != nil {
					err = &store.Error{Op: "list", Key: prefix, Err: bad}
				} else if more && (next == "" || next == token) {
					err = &store.Error{Op: "list", Key: prefix, Err: ErrPaging}
				}
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
