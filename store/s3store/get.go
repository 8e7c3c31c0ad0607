package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/store"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := store.CheckKey("get", key); err != nil {
		return nil, err
	}
	var o store.GetOptions
	if opts != nil {
		o = *opts
	}
	if o.Offset < 0 || o.Length < 0 || o.Length > math.MaxInt64-o.Offset {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrInvalid, Hint: fmt.Sprintf("not a range: offset %d, length %d", o.Offset, o.Length)}
	}
	call := call{op: "get", key: key, missing: store.ErrNotFound}
	if err := s.ready(ctx, call); err != nil {
		return nil, err
	}
	in := &s3.GetObjectInput{Bucket: s.bucket, Key: &key, RequestPayer: s.opts.payer(), ExpectedBucketOwner: s.opts.owner()}
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
		Key: key, Version: versionOf(out.ETag), Size: aws.ToInt64(out.ContentLength),
		LastModified: aws.ToTime(out.LastModified), Date: date(out.ResultMetadata),
	}}
	switch {
	case out.ContentLength == nil:
		err = errors.New("s3store: the answer has no length")
	case ranged:
		err = cut(obj, aws.ToString(out.ContentRange), o)
	}
	switch {
	case err == nil && obj.Version == "":
		err = &store.Error{Kind: store.ErrUnsupported, Hint: "the store gives objects no ETag"}
	case err == nil && o.IfNoneMatch == obj.Version:
		err = &store.Error{Kind: store.ErrNotModified, Hint: "the store ignores If-None-Match on GET"}
	}
	if err != nil {
		out.Body.Close()
		e := (*store.Error)(nil)
		if !errors.As(err, &e) {
			e = &store.Error{Err: err}
		}
		e.Op, e.Key = "get", key
		return nil, e
	}
	return obj, nil
}

// cut makes an answer to a ranged GET what was asked for, and finds the size of
// the whole object. Not every store answers ranges as S3 does: some send the
// whole object, some answer a range past the end with nothing.
func cut(obj *store.Object, contentRange string, o store.GetOptions) error {
	skip := int64(0)
	if contentRange == "" {
		skip = o.Offset
	} else {
		span, total, found := strings.Cut(strings.TrimPrefix(contentRange, "bytes "), "/")
		first, _, found2 := strings.Cut(span, "-")
		size, err := strconv.ParseInt(total, 10, 64)
		if !found || !found2 || err != nil || size < 0 || first != strconv.FormatInt(o.Offset, 10) {
			return fmt.Errorf("s3store: asked for bytes from %d on, the store answered %q", o.Offset, contentRange)
		}
		obj.Size = size
	}
	if o.Offset >= obj.Size {
		return &store.Error{Kind: store.ErrRange}
	}
	if _, err := io.CopyN(io.Discard, obj.Body, skip); err != nil {
		return fmt.Errorf("s3store: skipping to byte %d: %w", o.Offset, err)
	}
	if o.Length > 0 {
		obj.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(obj.Body, o.Length), obj.Body}
	}
	return nil
}
