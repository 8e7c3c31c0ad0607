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

// deleteError has an error for each of several keys that could not be deleted.
type deleteError []*store.Error

func (e deleteError) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v, and %d more keys", e[0], len(e)-1)
}

// Unwrap returns the errors of the keys.
func (e deleteError) Unwrap() []error {
	errs := make([]error, len(e))
	for i, k := range e {
		errs[i] = k
	}
	return errs
}

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
	if len(keys) == 1 {
		return cloud.Delete(ctx, keys, s.deleteOne)
	}
	var failed []*store.Error
	for batch := range slices.Chunk(keys, deleteBatch) {
		if s.singleDeletes.Load() {
			if err := cloud.Delete(ctx, batch, s.deleteOne); err != nil {
				return err
			}
			continue
		}
		some, err := s.deleteMany(ctx, batch)
		if errors.Is(err, store.ErrUnsupported) {
			// This store deletes one key at a time: do so from now on.
			s.singleDeletes.Store(true)
			err = cloud.Delete(ctx, batch, s.deleteOne)
		}
		if err != nil {
			return err
		}
		failed = append(failed, some...)
	}
	if len(failed) > 0 {
		return deleteError(failed)
	}
	return nil
}

func (s *Store) deleteOne(ctx context.Context, key string) error {
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: s.bucket, Key: &key, RequestPayer: s.opts.payer(), ExpectedBucketOwner: s.opts.owner(),
	}, s.once...)
	if err != nil {
		return s.fail(ctx, call{op: "delete", key: key, missing: store.ErrNotFound}, err)
	}
	return nil
}

func (s *Store) deleteMany(ctx context.Context, keys []string) ([]*store.Error, error) {
	objects := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		objects[i] = types.ObjectIdentifier{Key: &keys[i]}
	}
	// The SDK sends a CRC-32; older servers demand an MD5.
	withMD5 := func(o *s3.Options) { o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware) }
	out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{
		Bucket: s.bucket, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)},
		RequestPayer: s.opts.payer(), ExpectedBucketOwner: s.opts.owner(),
	}, append(slices.Clip(s.once), withMD5)...)
	if err != nil {
		return nil, s.fail(ctx, call{op: "delete", key: keys[0], missing: store.ErrNoBucket}, err)
	}
	var failed []*store.Error
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
