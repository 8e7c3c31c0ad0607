package azurestore

import (
	"context"
	"errors"
	"hash/crc64"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

var errNoETag = errors.New("azurestore: the answer has no ETag")

// ifAbsent returns the condition of a create.
func ifAbsent() *blob.AccessConditions {
	anything := azcore.ETagAny
	return &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &anything}}
}

// Put implements [store.Store]. It does not copy the body, and nothing reads the body
// after Put has returned.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := store.CheckKey("put", key); err != nil {
		return store.Info{}, err
	}
	call := call{op: "put", key: key, missing: store.ErrNoBucket, create: opts.Condition() == store.IfAbsent()} // without IfMatch only the container can be missing
	var conditions *blob.AccessConditions
	if opts.Condition() == store.IfAbsent() {
		conditions = ifAbsent()
	}
	if version, match := opts.Condition().Match(); match {
		etag, sendable := etagOf(version)
		if !sendable {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Hint: "no blob has such a version"}
		}
		call.missing = store.ErrPrecondition
		conditions = &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}}
	}
	info, err := s.put(ctx, key, body, conditions, nil)
	if err != nil {
		return store.Info{}, s.fail(ctx, call, err)
	}
	return info, nil
}

// put sends body in one request.
func (s *Store) put(ctx context.Context, key string, body []byte, conditions *blob.AccessConditions, metadata map[string]*string) (store.Info, error) {
	lent := cloud.Lend(body)
	defer lent.TakeBack()
	out, err := s.client.NewBlockBlobClient(key).Upload(once(ctx), lent, &blockblob.UploadOptions{
		AccessConditions: conditions, Metadata: metadata, TransactionalValidation: checksum(body),
	})
	if err != nil {
		return store.Info{}, err
	}
	if cloud.VersionOf(out.ETag) == "" {
		return store.Info{}, errNoETag
	}
	return store.Info{Key: key, Version: cloud.VersionOf(out.ETag), Size: int64(len(body)), LastModified: timeOf(out.LastModified), Date: timeOf(out.Date)}, nil
}

var crcTable = crc64.MakeTable(0x9A6C9329AC4BC9B5)

// checksum returns the checksum with which the store compares a body. The SDK's own
// function copies the body.
func checksum(body []byte) blob.TransferValidationType {
	return blob.TransferValidationTypeCRC64(crc64.Checksum(body, crcTable))
}
