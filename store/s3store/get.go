package s3store

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	o, err := cloud.Asked(key, opts)
	if err != nil {
		return nil, err
	}
	call := call{op: "get", key: key, missing: store.ErrNotFound}
	if err := s.ready(ctx, call); err != nil {
		return nil, err
	}
	in := &s3.GetObjectInput{Bucket: s.bucket, Key: &key}
	ranged := o.Offset > 0 || o.Length > 0
	switch {
	case o.Length > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", o.Offset, o.Offset+o.Length-1))
	case ranged:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", o.Offset))
	}
	if etag, sendable := etagOf(o.IfNoneMatch, false); sendable {
		in.IfNoneMatch = &etag
	}
	out, err := s.client.GetObject(ctx, in, s.once...)
	if err != nil {
		return nil, s.fail(ctx, call, err)
	}
	obj := &store.Object{Body: out.Body, Info: store.Info{
		Key: key, Version: cloud.VersionOf(out.ETag), Size: aws.ToInt64(out.ContentLength),
		LastModified: aws.ToTime(out.LastModified), Date: date(out.ResultMetadata),
	}}
	switch {
	case out.ContentLength == nil:
		err = errors.New("s3store: the answer has no length")
	case ranged:
		err = cloud.Cut(obj, aws.ToString(out.ContentRange), o)
	}
	return cloud.Answered(obj, o, "ETag", "If-None-Match", err)
}
