package s3store

import (
	"context"
	"iter"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// List implements [store.Store]: one request for each 1,000 keys.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	in := &s3.ListObjectsV2Input{
		Bucket: s.bucket, Prefix: optional(prefix), EncodingType: types.EncodingTypeUrl,
	}
	if opts != nil && !directoryBucket(*s.bucket) {
		in.StartAfter = optional(opts.StartAfter)
	}
	return cloud.List(ctx, prefix, opts, func(ctx context.Context, token string) ([]store.Info, bool, string, error) {
		page := *in
		page.ContinuationToken = optional(token)
		if size := cloud.SizeOf(ctx); size < cloud.PageSize {
			page.MaxKeys = aws.Int32(int32(size)) //nolint:gosec // it is small
		}
		return s.page(ctx, prefix, &page)
	})
}

// page reads one page.
func (s *Store) page(ctx context.Context, prefix string, in *s3.ListObjectsV2Input) (page []store.Info, more bool, next string, err error) {
	call := call{op: "list", key: prefix, missing: store.ErrNoBucket}
	if err := s.ready(ctx, call); err != nil {
		return nil, false, "", err
	}
	out, err := s.client.ListObjectsV2(ctx, in, s.once...)
	if err != nil {
		return nil, false, "", s.fail(ctx, call, err)
	}
	now := date(out.ResultMetadata)
	for _, o := range out.Contents {
		page = append(page, store.Info{
			Key: decoded(out.EncodingType, o.Key), Version: cloud.VersionOf(o.ETag), Size: aws.ToInt64(o.Size),
			LastModified: aws.ToTime(o.LastModified), Date: now,
		})
	}
	next = aws.ToString(out.NextContinuationToken)
	more = next != ""
	if out.IsTruncated != nil {
		more = *out.IsTruncated
	}
	return page, more, next, nil
}

// decoded returns a key as it is, of a listing that may have it encoded.
func decoded(how types.EncodingType, key *string) string {
	if how == types.EncodingTypeUrl {
		if plain, err := url.QueryUnescape(aws.ToString(key)); err == nil {
			return plain
		}
	}
	return aws.ToString(key)
}
