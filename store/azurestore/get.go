package azurestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

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
	in := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: o.Offset, Count: o.Length}}
	if etag, sendable := etagOf(o.IfNoneMatch); sendable {
		in.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &etag}}
	}
	out, err := s.client.NewBlobClient(key).DownloadStream(once(ctx), in)
	if err != nil {
		return nil, s.fail(ctx, call{op: "get", key: key, missing: store.ErrNotFound}, err)
	}
	if out.Body == nil {
		// The SDK's way to say 304.
		e := &store.Error{Op: "get", Key: key, Status: http.StatusNotModified}
		if o.IfNoneMatch != "" {
			e.Kind = store.ErrNotModified
		}
		return nil, e
	}
	obj := &store.Object{Body: out.Body, Info: store.Info{
		Key: key, Version: versionOf(out.ETag), LastModified: timeOf(out.LastModified), Date: timeOf(out.Date),
	}}
	if out.ContentLength != nil {
		obj.Size = *out.ContentLength
	}
	switch {
	case out.ContentLength == nil:
		err = &store.Error{Err: errors.New("azurestore: the answer has no length")}
	case o.Offset > 0 || o.Length > 0:
		err = cut(obj, out.ContentRange, o)
	}
	switch {
	case err == nil && obj.Version == "":
		err = &store.Error{Kind: store.ErrUnsupported, Hint: "the store gives blobs no ETag"}
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
// the whole blob. A server that ignores the range sends all of it.
func cut(obj *store.Object, contentRange *string, o store.GetOptions) error {
	skip := o.Offset
	if contentRange != nil {
		span, total, _ := strings.Cut(strings.TrimPrefix(*contentRange, "bytes "), "/")
		first, _, found := strings.Cut(span, "-")
		size, err := strconv.ParseInt(total, 10, 64)
		if !found || err != nil || size < 0 || first != strconv.FormatInt(o.Offset, 10) {
			return fmt.Errorf("azurestore: asked for bytes from %d on, the store answered %q", o.Offset, *contentRange)
		}
		obj.Size, skip = size, 0
	}
	if o.Offset >= obj.Size {
		return &store.Error{Kind: store.ErrRange}
	}
	if _, err := io.CopyN(io.Discard, obj.Body, skip); err != nil {
		return fmt.Errorf("azurestore: skipping to byte %d: %w", o.Offset, err)
	}
	if o.Length > 0 {
		obj.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(obj.Body, o.Length), obj.Body}
	}
	return nil
}
