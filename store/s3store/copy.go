package s3store

import (
	"context"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

var _ store.Copier = (*Store)(nil)

// maxCopy is the largest object that S3 copies in one request.
const maxCopy = 5 << 30

// CopyFrom implements [store.Copier], from buckets of the same endpoint.
func (s *Store) CopyFrom(ctx context.Context, key string, from store.Store, found store.Info) (store.Info, error) {
	if err := store.CheckKey("copy", key); err != nil {
		return store.Info{}, err
	}
	other, ok := from.(*Store)
	etag, sendable := etagOf(found.Version, s.opts.UnquotedMatch)
	if !ok || !sendable || other.service.Endpoint != s.service.Endpoint || found.Size > maxCopy {
		return store.Info{}, &store.Error{Op: "copy", Key: key, Kind: store.ErrUnsupported}
	}
	call := call{op: "copy", key: key, missing: store.ErrNotFound}
	if err := s.ready(ctx, call); err != nil {
		return store.Info{}, err
	}
	in := &s3.CopyObjectInput{
		Bucket: s.bucket, Key: &key, IfNoneMatch: aws.String("*"),
		CopySource: aws.String(*other.bucket + "/" + escaped(found.Key)), CopySourceIfMatch: &etag,
	}
	in.ServerSideEncryption, in.SSEKMSKeyId = s.opts.sse()
	out, err := s.client.CopyObject(ctx, in, s.once...)
	if err != nil {
		return store.Info{}, s.fail(ctx, call, err)
	}
	info := store.Info{Key: key, Size: found.Size, Date: date(out.ResultMetadata)}
	if out.CopyObjectResult != nil {
		info.Version = cloud.VersionOf(out.CopyObjectResult.ETag)
	}
	return info, nil
}

// escaped writes a key as a part of a URL. The SDK does not.
func escaped(key string) string {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
