package gcsstore

import (
	"cmp"
	"context"
	"iter"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// List implements [store.Store], in one request for 1,000 keys.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	from := cmp.Or(opts, &store.ListOptions{}).StartAfter
	return cloud.List(ctx, prefix, opts, func(ctx context.Context, token string) ([]store.Info, bool, string, error) {
		page, next, err := s.page(ctx, prefix, from, token)
		return page, next != "", next, err
	})
}

// page reads one page of the keys from a key on.
func (s *Store) page(ctx context.Context, prefix, from, token string) (page []store.Info, next string, err error) {
	q := &storage.Query{Prefix: prefix, StartOffset: from, Projection: storage.ProjectionNoACL}
	if err := q.SetAttrSelection([]string{"Name", "Generation", "Size", "Updated"}); err != nil {
		return nil, "", &store.Error{Op: "list", Key: prefix, Err: err}
	}
	// If the store cuts a page short, the SDK fills it up with more requests.
	sent := request{many: true}
	var found []*storage.ObjectAttrs
	next, err = iterator.NewPager(s.bucket.Objects(sent.with(ctx), q), cloud.PageSize, token).NextPage(&found)
	if err != nil {
		return nil, "", s.fail(ctx, call{op: "list", key: prefix, missing: store.ErrNoBucket}, err)
	}
	page = make([]store.Info, 0, len(found))
	for _, o := range found {
		if o == nil { // the answer has a null
			continue
		}
		page = append(page, store.Info{Key: o.Name, Version: versionOf(o.Generation), Size: o.Size, LastModified: o.Updated, Date: sent.date})
	}
	return page, next, nil
}
