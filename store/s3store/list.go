package s3store

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencepost/fencepost/store"
)

// List implements [store.Store]: one request for each 1,000 keys.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := store.CheckPrefix("list", prefix); err != nil {
			yield(store.Info{}, err)
			return
		}
		in := &s3.ListObjectsV2Input{
			Bucket: s.bucket, Prefix: optional(prefix), EncodingType: types.EncodingTypeUrl,
			RequestPayer: s.opts.payer(), ExpectedBucketOwner: s.opts.owner(),
		}
		if opts != nil && !directoryBucket(*s.bucket) {
			in.StartAfter = optional(opts.StartAfter)
		}
		for {
			page, err := s.page(ctx, prefix, in)
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if in.ContinuationToken == nil {
				return
			}
		}
	}
}

var errPaging = errors.New("s3store: the store says that there is more and not where")

// page reads one page and leaves in in what asks for the next.
func (s *Store) page(ctx context.Context, prefix string, in *s3.ListObjectsV2Input) ([]store.Info, error) {
	call := call{op: "list", key: prefix, missing: store.ErrNoBucket}
	if err := s.ready(ctx, call); err != nil {
		return nil, err
	}
	out, err := s.client.ListObjectsV2(ctx, in, s.once...)
	if err != nil {
		return nil, s.fail(ctx, call, err)
	}
	now := date(out.ResultMetadata)
	page := make([]store.Info, 0, len(out.Contents))
	for _, o := range out.Contents {
		key := aws.ToString(o.Key)
		if out.EncodingType == types.EncodingTypeUrl {
			if plain, err := url.QueryUnescape(key); err == nil {
				key = plain
			}
		}
		// Nothing of ours: folder markers, or a server that ignores the prefix.
		if !strings.HasPrefix(key, prefix) || store.CheckKey("list", key) != nil {
			continue
		}
		page = append(page, store.Info{
			Key: key, Version: versionOf(o.ETag), Size: aws.ToInt64(o.Size),
			LastModified: aws.ToTime(o.LastModified), Date: now,
		})
	}
	next := optional(aws.ToString(out.NextContinuationToken))
	switch {
	case !aws.ToBool(out.IsTruncated):
		next = nil
	case next == nil || in.ContinuationToken != nil && *next == *in.ContinuationToken:
		return nil, &store.Error{Op: "list", Key: prefix, Err: errPaging}
	}
	in.ContinuationToken = next
	return page, nil
}
