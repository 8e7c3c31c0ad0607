package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

const deleteBatch = 1000

// Delete implements [store.Store], in one request for 1,000 keys. If some keys fail, the
// error wraps a [store.Error] for each of them.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := store.CheckKey("delete", key); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := s.ready(ctx, call{op: "delete", key: keys[0]}); err != nil {
		return err
	}
	var failed []error
	for batch := range slices.Chunk(keys, deleteBatch) {
		if len(batch) > 1 && !s.singleDeletes.Load() {
			some, err := s.deleteMany(ctx, batch)
			if err == nil {
				failed = append(failed, some...)
				continue
			}
			if !errors.Is(err, store.ErrUnsupported) {
				return err
			}
			// This store deletes one key at a time: do so from now on.
			s.singleDeletes.Store(true)
		}
		if err := cloud.Delete(ctx, batch, s.deleteOne); err != nil {
			return err
		}
	}
	if len(failed) < 2 {
		return errors.Join(failed...)
	}
	return &cloud.ShortError{Text: fmt.Sprintf("%v, and %d more keys", failed[0], len(failed)-1), Err: errors.Join(failed...)}
}

func (s *Store) deleteOne(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: s.bucket, Key: &key,
	}, s.once...)
	if err != nil {
		return s.fail(ctx, call{op: "delete", key: key, missing: store.ErrNotFound}, err)
	}
	return nil
}

func (s *Store) deleteMany(ctx context.Context, keys []string) ([]error, error) {
	objects := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		objects[i] = types.ObjectIdentifier{Key: &keys[i]}
	}
	// The SDK sends a CRC-32; older servers demand an MD5.
	withMD5 := func(o *s3.Options) { o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware) }
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: s.bucket, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)},
	}, append(slices.Clip(s.once), withMD5)...)
	if err != nil {
		return nil, s.fail(ctx, call{op: "delete", key: keys[0], missing: store.ErrNoBucket}, err)
	}
	var failed []error
	for _, e := range out.Errors {
		code := aws.ToString(e.Code)
		if code == "NoSuchKey" {
			continue
		}
		c := call{op: "delete", key: aws.ToString(e.Key), missing: store.ErrNoBucket}
		status := keyStatus[code]
		failed = append(failed, &store.Error{
			Op: c.op, Key: c.key, Kind: kindOf(c, status, code), Code: code, Hint: hintOf(status, code),
			Err: &cloud.ShortError{Text: aws.ToString(e.Message)},
		})
	}
	return failed, nil
}

// keyStatus is the HTTP status that belongs to a code in a list of errors. A code that is
// not here may be temporary.
var keyStatus = map[string]int{
	"AccessDenied":     http.StatusForbidden,
	"MethodNotAllowed": http.StatusMethodNotAllowed,
	"NotImplemented":   http.StatusNotImplemented,
	"NoSuchBucket":     http.StatusNotFound,
}
