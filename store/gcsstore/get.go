package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	o, err := cloud.Asked(key, opts)
	if err != nil {
		return nil, err
	}
	get := s.objects.Get(s.name, key)
	if known, ok := generationOf(o.IfNoneMatch); ok {
		get.IfGenerationNotMatch(known)
	}
	if ranged := o.Offset > 0 || o.Length > 0; ranged {
		to := ""
		if o.Length > 0 {
			to = strconv.FormatInt(o.Offset+o.Length-1, 10)
		}
		get.Header().Set("Range", fmt.Sprintf("bytes=%d-%s", o.Offset, to))
	}
	answer, err := get.Context(ctx).Download()
	if err != nil {
		return nil, s.fail(ctx, call{op: "get", key: key, missing: store.ErrNotFound}, err)
	}
	obj := &store.Object{Body: answer.Body, Info: store.Info{Key: key, Date: date(answer.Header)}}
	generation, _ := strconv.ParseInt(answer.Header.Get("X-Goog-Generation"), 10, 64)
	obj.Version = versionOf(generation)
	obj.LastModified, _ = http.ParseTime(answer.Header.Get("Last-Modified"))
	obj.Size, err = size(answer)
	switch {
	case err != nil:
	case (o.Offset > 0 || o.Length > 0) && o.Offset >= obj.Size:
		err = &store.Error{Kind: store.ErrRange}
	case o.Offset > 0 && answer.StatusCode != http.StatusPartialContent:
		err = &store.Error{Kind: store.ErrUnsupported, Hint: "the store ignores Range on GET"}
	case o.Length > 0:
		obj.Body = cloud.Limited(answer.Body, o.Length)
	default:
		obj.Body = checked(answer)
	}
	return cloud.Answered(obj, o, "generation", "ifGenerationNotMatch", err)
}

// size returns the size of the whole object.
func size(answer *http.Response) (int64, error) {
	n := answer.ContentLength
	if answer.StatusCode == http.StatusPartialContent {
		said := answer.Header.Get("Content-Range")
		_, total, _ := strings.Cut(said, "/")
		var err error
		if n, err = strconv.ParseInt(total, 10, 64); err != nil {
			return 0, fmt.Errorf("gcsstore: the answer has Content-Range %q", said)
		}
	}
	if n < 0 {
		return 0, errors.New("gcsstore: the answer has no length")
	}
	return n, nil
}

// checked is the body of an answer. If it is a whole object, and its CRC-32C was sent with it, the end of the body is an error
// unless the sum is right.
func checked(answer *http.Response) io.ReadCloser {
	for _, sum := range answer.Header.Values("X-Goog-Hash") {
		_, crc, found := strings.Cut(sum, "crc32c=")
		if found && answer.StatusCode == http.StatusOK && !answer.Uncompressed && answer.Header.Get("X-Goog-Stored-Content-Encoding") != "gzip" {
			crc, _, _ = strings.Cut(crc, ",")
			return &summed{ReadCloser: answer.Body, hash: crc32.New(castagnoli), want: crc}
		}
	}
	return answer.Body
}

// summed is a body that ends in an error if its CRC-32C is another.
type summed struct {
	io.ReadCloser
	hash hash.Hash32
	want string
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	_, _ = s.hash.Write(p[:n]) // it never fails
	if got := encoded(s.hash.Sum32()); err == io.EOF && got != s.want {
		return n, fmt.Errorf("gcsstore: the object has CRC-32C %s, and %s arrived", s.want, got)
	}
	return n, err
}
