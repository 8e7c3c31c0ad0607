package azurestore

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	o, err := cloud.Asked(key, opts)
	if err != nil {
		return nil, err
	}
	in := &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: o.Offset, Count: o.Length}}
	if etag, sendable := etagOf(o.IfNoneMatch); sendable {
		in.AccessConditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &etag}}
	}
	var raw *http.Response
	out, err := s.client.NewBlobClient(key).DownloadStream(policy.WithCaptureResponse(once(ctx), &raw), in)
	if err != nil {
		return nil, s.fail(ctx, call{op: "get", key: key, missing: store.ErrNotFound}, err)
	}
	if raw != nil && raw.StatusCode == http.StatusNotModified { // for the SDK it is a success
		if out.Body != nil {
			_ = out.Body.Close()
		}
		e := &store.Error{Op: "get", Key: key, Status: http.StatusNotModified}
		if o.IfNoneMatch != "" {
			e.Kind = store.ErrNotModified
		}
		return nil, e
	}
	obj := &store.Object{Body: out.Body, Info: store.Info{
		Key: key, Version: cloud.VersionOf(out.ETag), Size: *cmp.Or(out.ContentLength, new(int64)),
		LastModified: timeOf(out.LastModified), Date: timeOf(out.Date),
	}}
	switch {
	case out.ContentLength == nil:
		err = errors.New("azurestore: the answer has no length")
	case o.Offset > 0 || o.Length > 0:
		err = cloud.Cut(obj, *cmp.Or(out.ContentRange, new(string)), o)
	}
	return cloud.Answered(obj, o, "ETag", "If-None-Match", err)
}
