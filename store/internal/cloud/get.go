package cloud

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/store"
)

// Asked returns the options of a Get, or what is wrong with them or the key.
func Asked(key string, opts *store.GetOptions) (o store.GetOptions, err error) {
	if err := store.CheckKey("get", key); err != nil {
		return o, err
	}
	if opts != nil {
		o = *opts
	}
	if o.Offset < 0 || o.Length < 0 || o.Length > math.MaxInt64-o.Offset {
		return o, &store.Error{Op: "get", Key: key, Kind: store.ErrInvalid, Hint: fmt.Sprintf("not a range: offset %d, length %d", o.Offset, o.Length)}
	}
	return o, nil
}

// Answered returns what Get returns for an answer, where err is what the driver has found
// wrong with it. Version and condition are the service's names for them, such as "ETag"
// and "If-None-Match".
func Answered(obj *store.Object, o store.GetOptions, version, condition string, err error) (*store.Object, error) {
	switch {
	case err == nil && obj.Version == "":
		err = &store.Error{Kind: store.ErrUnsupported, Hint: "the store gives objects no " + version}
	case err == nil && o.IfNoneMatch == obj.Version:
		err = &store.Error{Kind: store.ErrNotModified, Hint: "the store ignores " + condition + " on GET"}
	}
	if err == nil {
		return obj, nil
	}
	_ = obj.Body.Close() // the answer is not used
	e := (*store.Error)(nil)
	if !errors.As(err, &e) {
		e = &store.Error{Err: err}
	}
	e.Op, e.Key = "get", obj.Key
	return nil, e
}

// VersionOf returns an ETag without its quotes. Some stores leave the quotes out in listings
// and others in answers to PUT, but the version of one state must be the same everywhere. A
// weak tag (W/"…") stays as it is. Nil is no version.
func VersionOf[T ~string](etag *T) store.Version {
	if etag == nil {
		return ""
	}
	v := strings.TrimSpace(string(*etag))
	if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	return store.Version(v)
}

// Cut cuts the answer to a Get to the range that was asked for, and sets the size of the
// whole object. Not every store answers ranges as S3 does. Some send the whole object;
// some answer a range past the end with an empty body.
func Cut(obj *store.Object, contentRange string, o store.GetOptions) error {
	skip := o.Offset
	if contentRange != "" {
		span, total, _ := strings.Cut(strings.TrimPrefix(contentRange, "bytes "), "/")
		first, _, found := strings.Cut(span, "-")
		size, err := strconv.ParseInt(total, 10, 64)
		if !found || err != nil || size < 0 || first != strconv.FormatInt(o.Offset, 10) {
			return fmt.Errorf("asked for bytes from %d on, the store answered %q", o.Offset, contentRange)
		}
		obj.Size, skip = size, 0
	}
	if o.Offset >= obj.Size {
		return &store.Error{Kind: store.ErrRange}
	}
	if _, err := io.CopyN(io.Discard, obj.Body, skip); err != nil {
		return fmt.Errorf("skipping to byte %d: %w", o.Offset, err)
	}
	if o.Length > 0 {
		obj.Body = Limited(obj.Body, o.Length)
	}
	return nil
}

// Limited cuts a body after so many bytes.
func Limited(body io.ReadCloser, most int64) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(body, most), body}
}
