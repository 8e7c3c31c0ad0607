package gcsstore

import (
	"cmp"
	"context"
	"errors"

	"cloud.google.com/go/storage"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	o, err := cloud.Asked(key, opts)
	if err != nil {
		return nil, err
	}
	h := s.bucket.Object(key)
	if known, ok := generationOf(o.IfNoneMatch); ok {
		h = h.If(storage.Conditions{GenerationNotMatch: known})
	}
	length := cmp.Or(o.Length, -1) // to the end
	var sent request
	r, err := h.NewRangeReader(sent.with(ctx), o.Offset, length)
	if err != nil {
		return nil, s.fail(ctx, call{op: "get", key: key, missing: store.ErrNotFound}, err)
	}
	obj := &store.Object{Body: r, Info: store.Info{
		Key: key, Version: versionOf(r.Attrs.Generation), Size: r.Attrs.Size,
		LastModified: r.Attrs.LastModified, Date: sent.date,
	}}
	switch {
	case obj.Size < 0:
		err = errors.New("gcsstore: the answer has no length")
	case (o.Offset > 0 || o.Length > 0) && o.Offset >= obj.Size:
		err = &store.Error{Kind: store.ErrRange}
	case o.Length > 0:
		obj.Body = cloud.Limited(r, o.Length)
	}
	return cloud.Answered(obj, o, "generation", "ifGenerationNotMatch", err)
}
