package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/storage/v1"

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
	insert := s.objects.Insert(s.name, &storage.Object{}).Name(key).Projection("noAcl")
	if opts != nil && opts.Create {
		insert.IfGenerationMatch(0)
	}
	src := &source{ended: ctx.Err, r: body}
	written, err := s.stream(ctx, insert, src)
	if err == nil {
		info := infoOf(written, written.ServerResponse)
		info.Key = key
		return info, nil
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

func (s *Store) stream(ctx context.Context, insert *storage.ObjectsInsertCall, src *source) (*storage.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	src.failed = cancel // no further request
	// Media reads the first chunk.
	written, err := insert.Media(src, googleapi.ChunkSize(int(s.opts.ChunkSize)), mediaType).Context(ctx).Do()
	switch {
	case err != nil:
		return nil, err
	case written.Generation <= 0:
		return nil, errNoGeneration
	case !src.same(written):
		return nil, fmt.Errorf("gcsstore: %d bytes with CRC-32C %s were sent, the store has %d with %s", src.n, encoded(src.crc), written.Size, written.Crc32c)
	}
	return written, nil
}

// find returns the object, if it is there and is what was sent.
func (s *Store) find(ctx context.Context, key string, src *source) (store.Info, bool) {
	ctx, cancel := cloud.CleanUp(ctx)
	defer cancel()
	there, err := s.objects.Get(s.name, key).Projection("noAcl").Context(ctx).Do()
	// guard:own-upload. An upload that was not answered with success counts as uploaded only if the
	// object has the size and checksum of what was sent.
	//
	//mutant:replace !src.same(there) => false
	if err != nil || !src.same(there) || there.Generation <= 0 {
		return store.Info{}, false
	}
	info := infoOf(there, there.ServerResponse)
	info.Key = key
	return info, true
}

// source is the caller's body. It counts and sums the bytes, and keeps the error of a
// Read.
type source struct {
	ended  func() error // the Err of the upload's context
	r      io.Reader
	n      int64
	crc    uint32
	whole  bool // read to its end
	err    error
	failed func() // called with the first error
}

// same reports whether an object is what was read.
func (b *source) same(o *storage.Object) bool {
	return o.Size == uint64(b.n) && o.Crc32c == encoded(b.crc)
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
		b.failed()
	}
	return n, err
}
