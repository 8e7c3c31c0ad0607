package gcsstore

import (
	"context"
	"errors"
	"iter"
	"strings"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/fencepost/fencepost/store"
)

const pageSize = 1000

var errPaging = errors.New("gcsstore: the store says that there is more and not where")

// List implements [store.Store]: one request for each 1,000 keys.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
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
			page, next, err := s.page(ctx, prefix, after, token)
			if err == nil && next != "" && next == token {
				err = &store.Error{Op: "list", Key: prefix, Err: errPaging}
			}
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			token = next
		}
	}
}

// page reads one page of what lies after a key.
func (s *Store) page(ctx context.Context, prefix, after, token string) (page []store.Info, next string, err error) {
	q := &storage.Query{Prefix: prefix, StartOffset: after, Projection: storage.ProjectionNoACL}
	if err := q.SetAttrSelection([]string{"Name", "Generation", "Size", "Updated"}); err != nil {
		return nil, "", &store.Error{Op: "list", Key: prefix, Err: err}
	}
	// A page that the store cuts short is filled up by more requests.
	sent := request{many: true}
	var found []*storage.ObjectAttrs
	next, err = iterator.NewPager(s.bucket.Objects(sent.with(ctx), q), pageSize, token).NextPage(&found)
	if err != nil {
		return nil, "", s.fail(ctx, call{op: "list", key: prefix, missing: store.ErrNoBucket}, err)
	}
	page = make([]store.Info, 0, len(found))
	for _, o := range found {
		// The store begins at the key, not after it. And nothing that is none of
		// ours: folder markers, or a server that ignores the prefix.
		if after != "" && o.Name <= after || !strings.HasPrefix(o.Name, prefix) || store.CheckKey("list", o.Name) != nil {
			continue
		}
		page = append(page, store.Info{Key: o.Name, Version: versionOf(o.Generation), Size: o.Size, LastModified: o.Updated, Date: sent.date})
	}
	return page, next, nil
}
