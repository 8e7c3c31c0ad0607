package gcsstore

import (
	"context"
	"hash/crc32"

	"cloud.google.com/go/storage"

	"github.com/fencepost/fencepost/store"
)

const contentType = "application/octet-stream" // not to be guessed from the body

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put implements [store.Store]. It does not copy the body: the SDK reads it through a
// pipe, and nothing reads it after Put has returned.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := store.CheckKey("put", key); err != nil {
		return store.Info{}, err
	}
	call := call{op: "put", key: key, missing: store.ErrNoBucket} // without IfMatch only the bucket can be missing
	h := s.bucket.Object(key)
	if opts.Condition() == store.IfAbsent() {
		h = h.If(storage.Conditions{DoesNotExist: true})
	}
	if version, match := opts.Condition().Match(); match {
		generation, ok := generationOf(version)
		if !ok {
			return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition, Hint: "no object of this store has such a version"}
		}
		h, call.missing = h.If(storage.Conditions{GenerationMatch: generation}), store.ErrPrecondition
	}
	var sent request
	attrs, err := write(sent.with(ctx), h, body, opts)
	if err != nil {
		return store.Info{}, s.fail(ctx, call, err)
	}
	return store.Info{Key: key, Version: versionOf(attrs.Generation), Size: int64(len(body)), LastModified: attrs.Updated, Date: sent.date}, nil
}

// write sends body in one request.
func write(ctx context.Context, h *storage.ObjectHandle, body []byte, opts *store.PutOptions) (*storage.ObjectAttrs, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := h.NewWriter(ctx)
	// guard:single-shot. A Put is one request, never an upload in chunks.
	//
	//mutant:replace w.ChunkSize = 0 =>
	w.ChunkSize = 0
	w.ContentType = contentType
	w.SendCRC32C = true
	if opts != nil && opts.CRC32C != nil {
		w.CRC32C = *opts.CRC32C
	} else {
		w.CRC32C = crc32.Checksum(body, castagnoli)
	}
	if len(body) > 0 {
		// Write fails only if the request has ended; then Close says why. Cancelling the
		// call here would hide the answer, perhaps a refusal.
		_, _ = w.Write(body)
	}
	// Close waits until the request has ended.
	if err := w.Close(); err != nil {
		return nil, err
	}
	attrs := w.Attrs()
	if attrs == nil || attrs.Generation <= 0 {
		return nil, errNoGeneration
	}
	return attrs, nil
}
