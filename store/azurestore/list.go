package azurestore

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/fencepost/fencepost/store"
)

const pageSize = 1000

var errPaging = errors.New("azurestore: the store says that there is more and not where")

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
		for marker := ""; ; {
			page, next, err := s.page(ctx, prefix, marker)
			if err == nil && next != "" && next == marker {
				err = &store.Error{Op: "list", Key: prefix, Err: errPaging}
			}
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, info := range page {
				if info.Key > after && !yield(info, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			marker = next
		}
	}
}

// page reads one page.
func (s *Store) page(ctx context.Context, prefix, marker string) (page []store.Info, next string, err error) {
	in := &container.ListBlobsFlatOptions{MaxResults: new(int32), ResponseFormat: container.StorageResponseFormatXML}
	*in.MaxResults = pageSize
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
			directory := p.ResourceType != nil && *p.ResourceType == "directory"
			// Nothing of ours: directories, folder markers, a server that ignores the
			// prefix.
			if directory || !strings.HasPrefix(*o.Name, prefix) || store.CheckKey("list", *o.Name) != nil {
				continue
			}
			info := store.Info{Key: *o.Name, Version: versionOf(p.ETag), LastModified: timeOf(p.LastModified), Date: timeOf(out.Date)}
			if p.ContentLength != nil {
				info.Size = *p.ContentLength
			}
			page = append(page, info)
		}
	}
	if out.NextMarker != nil {
		next = *out.NextMarker
	}
	return page, next, nil
}
