package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"cloud.google.com/go/storage"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud"
)

var errNoGeneration = errors.New("gcsstore: the answer has no generation")

// Upload implements [store.Store]. A body of less than Options.ChunkSize is one request; a
// longer one is a resumable upload. It holds one chunk in memory, and the SDK sends a
// chunk again that was lost.
//
// If the upload fails after the whole body was read, Upload reads the object. The right
// size and CRC-32C mean success, since nobody else writes the key. So does a refusal: it
// may be the echo of a last chunk that was sent twice.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	if err := store.CheckKey("upload", key); err != nil {
		return store.Info{}, err
	}
	h := s.bucket.Object(key)
	if opts != nil && opts.Create {
		h = h.If(storage.Conditions{DoesNotExist: true})
	}
	sent := request{many: true}
	src := &source{ended: ctx.Err, r: body}
	attrs, err := s.stream(sent.with(ctx), h, src)
	if err == nil {
		return store.Info{Key: key, Version: versionOf(attrs.Generation), Size: src.n, LastModified: attrs.Updated, Date: sent.date}, nil
	}
	if src.err != nil {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Err: fmt.Errorf("gcsstore: reading the body: %w", src.err)}
	}
	failed := s.fail(ctx, call{op: "upload", key: key, missing: store.ErrNoBucket}, err)
	if src.whole && store.OutcomeOf(failed) != store.Rejected {
		if info, found := s.find(ctx, key, src); found {
			return info, nil
		}
	}
	return store.Info{}, failed
}

func (s *Store) stream(ctx context.Context, h *storage.ObjectHandle, src *source) (*storage.ObjectAttrs, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := h.NewWriter(ctx)
	w.ChunkSize = int(s.opts.ChunkSize)
	w.ContentType = contentType
	if _, err := io.Copy(w, src); err != nil && src.err != nil {
		cancel() // see guard:cancelled-upload; Close returns the error of a request
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	attrs := w.Attrs()
	switch {
	case attrs == nil || attrs.Generation <= 0:
		return nil, errNoGeneration
	case attrs.Size != src.n || attrs.CRC32C != src.crc:
		return nil, fmt.Errorf("gcsstore: %d bytes with CRC-32C %08x were sent, the store has %d with %08x", src.n, src.crc, attrs.Size, attrs.CRC32C)
	}
	return attrs, nil
}

// find returns the object, if it is there and is what was sent.
func (s *Store) find(ctx context.Context, key string, src *source) (store.Info, bool) {
	ctx, cancel := cloud.CleanUp(ctx)
	defer cancel()
	var sent request
	attrs, err := s.bucket.Object(key).Attrs(sent.with(ctx))
	// guard:own-upload. An upload that was not answered with success counts as uploaded only if the
	// object has the size and checksum of what was sent.
	//
	//mutant:replace attrs.Size != src.n || attrs.CRC32C != src.crc => false
	if err != nil || attrs.Size != src.n || attrs.CRC32C != src.crc || attrs.Generation <= 0 {
		return store.Info{}, false
	}
	return store.Info{Key: key, Version: versionOf(attrs.Generation), Size: src.n, LastModified: attrs.Updated, Date: sent.date}, true
}

// source is the caller's body. It counts and sums the bytes, and keeps the error of a
// Read.
type source struct {
	ended func() error // the Err of the upload's context
	r     io.Reader
	n     int64
	crc   uint32
	whole bool // read to its end
	err   error
}

func (b *source) Read(p []byte) (int, error) {
	if err := b.ended(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	b.n += int64(n)
	b.crc = crc32.Update(b.crc, castagnoli, p[:n])
	switch {
	case err == io.EOF:
		b.whole = true
	case err != nil:
		b.err = err
	}
	return n, err
}
