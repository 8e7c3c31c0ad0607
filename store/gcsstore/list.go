package gcsstore

import (
	"cmp"
	"context"
	"iter"

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
	list := s.objects.List(s.name).Prefix(prefix).StartOffset(from).Projection("noAcl").MaxResults(int64(cloud.SizeOf(ctx))).
		Fields("items(name,generation,size,updated)", "nextPageToken")
	if token != "" {
		list.PageToken(token)
	}
	answer, err := list.Context(ctx).Do()
	if err != nil {
		return nil, "", s.fail(ctx, call{op: "list", key: prefix, missing: store.ErrNoBucket}, err)
	}
	page = make([]store.Info, 0, len(answer.Items))
	for _, o := range answer.Items {
		if o == nil { // the answer has a null
			continue
		}
		page = append(page, infoOf(o, answer.ServerResponse))
	}
	return page, answer.NextPageToken, nil
}
