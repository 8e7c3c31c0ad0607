package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/store"
)

// PageSize is how many keys one request lists.
const PageSize = 1000

// ErrPaging: the store gives the pages of a listing in a way that has no end, or none that can be found.
var ErrPaging = errors.New("the store pages a listing wrongly")

var (
	errNowhere = &ShortError{Text: "the store says that there is more and not where", Err: ErrPaging} // the first or the last page again, for ever
	errPages   = &ShortError{Text: "the store gives a page of the listing for the second time; the listing would never end", Err: ErrPaging}
	errEmpty   = &ShortError{Text: fmt.Sprintf("the store has given %d empty pages one after the other, and says that there is more", maxEmpty), Err: ErrPaging}
)

// maxEmpty is how many empty pages may follow each other. S3 gives some where a million versions were deleted.
const maxEmpty = 1000

// Pages sees that a listing goes on. Stores need not list in order, so it remembers where each page has begun: 8 bytes for 1,000 keys.
type Pages struct {
	seed   maphash.Seed
	firsts map[uint64]struct{}
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
	if p.firsts == nil {
		p.seed, p.firsts = maphash.MakeSeed(), map[uint64]struct{}{}
	}
	at := maphash.String(p.seed, first)
	if _, seen := p.firsts[at]; seen {
		return errPages
	}
	p.empty, p.firsts[at] = 0, struct{}{}
	return nil
}

// small is how a listing with small pages is asked for.
type small struct {
	size  int
	pages atomic.Int64
}

type smallKey struct{}

// Small returns a context in which listings ask for pages of so many keys, and a function that counts the pages that came.
func Small(ctx context.Context, size int) (context.Context, func() int64) {
	s := &small{size: size}
	return context.WithValue(ctx, smallKey{}, s), s.pages.Load
}

// SizeOf returns how many keys a page is to have.
func SizeOf(ctx context.Context) int {
	if s, ok := ctx.Value(smallKey{}).(*small); ok {
		return s.size
	}
	return PageSize
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
			if s, ok := ctx.Value(smallKey{}).(*small); ok {
				s.pages.Add(1)
			}
			if err == nil {
				first := ""
				if len(page) > 0 {
					first = page[0].Key
				}
				if bad := pages.Next(first); bad != nil {
					err = &store.Error{Op: "list", Key: prefix, Err: bad}
				} else if more && (next == "" || next == token) {
					err = &store.Error{Op: "list", Key: prefix, Err: errNowhere}
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
