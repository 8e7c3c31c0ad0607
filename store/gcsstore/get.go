package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"cloud.google.com/go/storage"

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
	h := s.object(key)
	if known, ok := generationOf(o.IfNoneMatch); ok {
		h = h.If(storage.Conditions{GenerationNotMatch: known})
	}
	length := o.Length
	if length == 0 {
		length = -1 // to the end
	}
	var sent request
	r, err := h.NewRangeReader(sent.with(ctx), o.Offset, length)
	if err != nil {
		return nil, s.fail(ctx, call{op: "get", key: key, missing: store.ErrNotFound}, err)
	}
	obj := &store.Object{Body: r, Info: store.Info{
		Key: key, Version: versionOf(r.Attrs.Generation), Size: r.Attrs.Size,
		LastModified: r.Attrs.LastModified, Date: sent.date,
	}}
	var wrong *store.Error
	switch {
	case obj.Version == "":
		wrong = &store.Error{Kind: store.ErrUnsupported, Hint: "the store gives objects no generation"}
	case o.IfNoneMatch == obj.Version:
		wrong = &store.Error{Kind: store.ErrNotModified, Hint: "the store ignores ifGenerationNotMatch on GET"}
	case obj.Size < 0:
		wrong = &store.Error{Err: errors.New("gcsstore: the answer has no length")}
	case o.Offset > 0 && o.Offset >= obj.Size:
		wrong = &store.Error{Kind: store.ErrRange}
	}
	if wrong != nil {
		obj.Body.Close()
		wrong.Op, wrong.Key = "get", key
		return nil, wrong
	}
	if o.Length > 0 {
		obj.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(r, o.Length), r}
	}
	return obj, nil
}
