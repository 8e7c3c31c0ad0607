package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"cloud.google.com/go/storage"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

var (
	errNoGeneration = errors.New("gcsstore: the answer has no generation")
	errCleanup      = errors.New("gcsstore: no time left to look at what became of an upload")
)

// Upload implements [store.Store]. A body of less than Options.ChunkSize is one
// request; a longer one is a resumable upload, of which one chunk is in memory
// at a time, and which the SDK goes on with when a chunk is lost.
//
// When it ends with anything but success after the whole body was read, the
// upload looks at the object: one of its size and CRC-32C means that it
// succeeded, since nobody else writes the key. That holds for a refusal too,
// which may be the echo of a last chunk that was sent twice.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	if err := store.CheckKey("upload", key); err != nil {
		return store.Info{}, err
	}
	h := s.object(key)
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
		if info, found := s.look(ctx, key, src); found {
			return info, nil
		}
	}
	return store.Info{}, failed
}

func (s *Store) stream(ctx context.Context, h *storage.ObjectHandle, src *source) (*storage.ObjectAttrs, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := h.NewWriter(ctx)
	w.ChunkSize = s.opts.ChunkSize
	w.ContentType = contentType
	if _, err := io.Copy(w, src); err != nil && src.err != nil {
		cancel() // see guard:cancelled-upload; any other error is that of a request, and Close says it
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

// look tells whether the object is there. Its key is this upload's alone.
func (s *Store) look(ctx context.Context, key string, src *source) (store.Info, bool) {
	// The caller's context may be what ended the upload.
	ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), clock.System(), s.opts.Cleanup, errCleanup)
	defer cancel()
	var sent request
	attrs, err := s.object(key).Attrs(sent.with(ctx))
	// guard:own-upload. Anybody's object under this key would look like success.
	if err != nil || attrs.Size != src.n || attrs.CRC32C != src.crc || attrs.Generation <= 0 {
		return store.Info{}, false
	}
	return store.Info{Key: key, Version: versionOf(attrs.Generation), Size: src.n, LastModified: attrs.Updated, Date: sent.date}, true
}

// source is the caller's body: it counts, sums, and keeps the error of a Read.
type source struct {
	ended func() error // whether the upload's context has
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
