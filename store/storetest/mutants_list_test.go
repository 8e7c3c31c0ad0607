package storetest

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/store"
)

// listMutants: listings and deletes.
var listMutants = []mutant{
	{name: "list is one write behind", fails: []string{"ReadAfterWrite", "ListBasics", "T37_ListNewest"}, apply: func(b *broken) {
		var mu sync.Mutex
		last := ""
		b.put = func(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
			info, err := b.Store.Put(ctx, key, body, &store.PutOptions{If: cond})
			mu.Lock()
			defer mu.Unlock()
			last = key
			return info, err
		}
		b.list = listed(b, func(all []store.Info) []store.Info {
			mu.Lock()
			defer mu.Unlock()
			return slices.DeleteFunc(all, func(i store.Info) bool { return i.Key == last })
		})
	}},
	{name: "list still shows the deleted", fails: []string{"ReadAfterWrite", "Delete"}, apply: func(b *broken) {
		var mu sync.Mutex
		ghosts := map[string]store.Info{}
		b.del = func(ctx context.Context, keys ...string) error {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				if v, ok := current(b, key); ok {
					ghosts[key] = store.Info{Key: key, Version: v}
				}
			}
			return b.Store.Delete(ctx, keys...)
		}
		b.list = listed(b, func(all []store.Info) []store.Info {
			mu.Lock()
			defer mu.Unlock()
			return append(all, slices.Collect(maps.Values(ghosts))...)
		})
	}},
	{name: "list drops the last key", fails: []string{"ListAndDeleteMany", "ListBasics", "ReadAfterWrite", "OddKeys"}, apply: func(b *broken) {
		b.list = listed(b, func(all []store.Info) []store.Info { return all[:max(len(all)-1, 0)] })
	}},
	{name: "list ends after a page", fails: []string{"ListAndDeleteMany"}, apply: func(b *broken) {
		b.list = listed(b, func(all []store.Info) []store.Info { return all[:min(len(all), 1000)] })
	}},
	{name: "list repeats a key between pages", fails: []string{"ListAndDeleteMany"}, apply: func(b *broken) {
		b.list = listed(b, func(all []store.Info) []store.Info {
			if len(all) > 1000 {
				all = slices.Insert(all, 1000, all[999])
			}
			return all
		})
	}},
	{name: "list takes prefixes for the beginnings of names", fails: []string{"ListAndDeleteMany", "ListBasics"}, apply: func(b *broken) {
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			parent := prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')+1]
			return func(yield func(store.Info, error) bool) {
				for info, err := range b.Store.List(ctx, parent, o) {
					if strings.HasPrefix(info.Key, strings.TrimSuffix(prefix, "/")) && !yield(info, err) {
						return
					}
				}
			}
		}
	}},
	{name: "list is not recursive", fails: []string{"ListBasics", "ListAndDeleteMany"}, apply: func(b *broken) {
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			return listed(b, func(all []store.Info) []store.Info {
				return slices.DeleteFunc(all, func(i store.Info) bool { return strings.Contains(i.Key[len(prefix):], "/") })
			})(ctx, prefix, o)
		}
	}},
	{name: "list takes any prefix", fails: []string{"ListBasics"}, apply: func(b *broken) {
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			if store.CheckPrefix("list", prefix) != nil {
				prefix = ""
			}
			return b.Store.List(ctx, prefix, o)
		}
	}},
	{name: "StartAfter skips one too many", fails: []string{"ListAndDeleteMany"}, apply: func(b *broken) {
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			return listed(b, func(all []store.Info) []store.Info {
				if o != nil && len(all) > 0 {
					all = all[1:]
				}
				return all
			})(ctx, prefix, o)
		}
	}},
	{name: "StartAfter leaves the prefix", fails: []string{"ListAndDeleteMany"}, apply: func(b *broken) {
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			if o != nil && prefix != "" {
				prefix = prefix[:strings.LastIndexByte(strings.TrimSuffix(prefix, "/"), '/')+1]
			}
			return b.Store.List(ctx, prefix, o)
		}
	}},
	{name: "list is loose", fails: []string{"T37_ListNewest"}, apply: func(b *broken) {
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			return func(yield func(store.Info, error) bool) {
				// The numbers are read first, and those that are gone by then left out.
				var all []store.Info
				for info, err := range b.Store.List(ctx, prefix, o) {
					if err != nil {
						yield(info, err)
						return
					}
					all = append(all, info)
				}
				dawdle()
				for _, info := range all {
					if _, ok := current(b, info.Key); ok && !yield(info, nil) {
						return
					}
				}
			}
		}
	}},

	{name: "list walks in no order", fails: []string{"T37_ListNewest"}, apply: func(b *broken) {
		turned := func(key string) string { // the order of a hash, say
			runes := []rune(key)
			slices.Reverse(runes)
			return string(runes)
		}
		b.list = func(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
			return func(yield func(store.Info, error) bool) {
				for last, more := "", true; more; { // one page of what there is by then
					var page []store.Info
					for info, err := range b.Store.List(ctx, prefix, o) {
						if err != nil {
							yield(info, err)
							return
						}
						if turned(info.Key) > last {
							page = append(page, info)
						}
					}
					slices.SortFunc(page, func(x, y store.Info) int { return strings.Compare(turned(x.Key), turned(y.Key)) })
					more = len(page) > 50
					for _, info := range page[:min(len(page), 50)] {
						if !yield(info, nil) {
							return
						}
						last = turned(info.Key)
					}
				}
			}
		}
	}},

	{name: "delete of a missing key fails", fails: []string{"Delete", "ListAndDeleteMany"}, apply: func(b *broken) {
		b.del = func(ctx context.Context, keys ...string) error {
			for _, key := range keys {
				if _, ok := current(b, key); !ok {
					return &store.Error{Op: "delete", Key: key, Kind: store.ErrNotFound}
				}
			}
			return b.Store.Delete(ctx, keys...)
		}
	}},
	{name: "delete stops after a page", fails: []string{"ListAndDeleteMany"}, apply: func(b *broken) {
		b.del = func(ctx context.Context, keys ...string) error {
			return b.Store.Delete(ctx, keys[:min(len(keys), 1000)]...)
		}
	}},
	{name: "delete takes what is below with it", fails: []string{"Delete"}, apply: func(b *broken) {
		b.del = func(ctx context.Context, keys ...string) error {
			for _, key := range keys {
				dir := key[:strings.LastIndexByte(key, '/')+1]
				for info := range b.Store.List(ctx, dir, nil) {
					keys = append(keys, info.Key)
				}
			}
			return b.Store.Delete(ctx, keys...)
		}
	}},
}
