package azurestore

import (
	"cmp"
	"context"
	"iter"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// List implements [store.Store], in one request for 1,000 keys.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return cloud.List(ctx, prefix, opts, func(ctx context.Context, marker string) ([]store.Info, bool, string, error) {
		page, next, err := s.page(ctx, prefix, marker)
		return page, next != "", next, err
	})
}

// page reads one page.
func (s *Store) page(ctx context.Context, prefix, marker string) (page []store.Info, next string, err error) {
	in := &container.ListBlobsFlatOptions{MaxResults: new(int32)}
	*in.MaxResults = int32(cloud.SizeOf(ctx)) //nolint:gosec // it is at most 1,000
	if prefix != "" {
		in.Prefix = &prefix
	}
	if marker != "" {
		in.Marker = &marker
	}
	out, err := s.client.NewListBlobsFlatPager(in).NextPage(once(ctx))
	if err != nil {
		return nil, "", s.fail(ctx, call{op: "list", key: prefix, missing: store.ErrNoBucket}, err)
	}
	if out.Segment != nil {
		for _, o := range out.Segment.BlobItems {
			if o == nil || o.Name == nil || o.Properties == nil {
				continue
			}
			p := o.Properties
			if p.ResourceType != nil && *p.ResourceType == "directory" {
				continue
			}
			page = append(page, store.Info{
				Key: *o.Name, Version: cloud.VersionOf(p.ETag), Size: *cmp.Or(p.ContentLength, new(int64)),
				LastModified: timeOf(p.LastModified), Date: timeOf(out.Date),
			})
		}
	}
	return page, *cmp.Or(out.NextMarker, new(string)), nil
}
