package gcsstore

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/storage/v1"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

var mediaType = googleapi.ContentType("application/octet-stream") // not to be guessed from the body

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoded returns a CRC-32C as the service writes it.
func encoded(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// Put implements [store.Store]. Nothing reads the body after Put has returned.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := store.CheckKey("put", key); err != nil {
		return store.Info{}, err
	}
	call := call{op: "put", key: key, missing: store.ErrNoBucket} // without IfMatch only the bucket can be missing
	object := &storage.Object{}
	if opts != nil && opts.CRC32C != nil {
		object.Crc32c = encoded(*opts.CRC32C)
	} else {
		object.Crc32c = encoded(crc32.Checksum(body, castagnoli))
	}
	insert := s.objects.Insert(s.name, object).Name(key)
	if opts.Condition() == store.IfAbsent() {
		insert.IfGenerationMatch(0)
	}
	if version, match := opts.Condition().Match(); match {
		generation, ok := generationOf(version)
		if !ok {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Hint: "no object of this store has such a version"}
		}
		insert.IfGenerationMatch(generation)
		call.missing = store.ErrPrecondition
	}
	lent := cloud.Lend(body)
	defer lent.TakeBack()
	// guard:single-shot. A Put is one request, never an upload in chunks.
	//
	//mutant:replace googleapi.ChunkSize(0) => googleapi.ChunkSize(16<<20)
	insert.Media(lent, googleapi.ChunkSize(0), mediaType)
	written, err := insert.Projection("noAcl").Context(ctx).Do()
	if err == nil && written.Generation <= 0 {
		err = errNoGeneration
	}
	if err != nil {
		return store.Info{}, s.fail(ctx, call, err)
	}
	info := infoOf(written, written.ServerResponse)
	info.Key, info.Size = key, int64(len(body))
	return info, nil
}
