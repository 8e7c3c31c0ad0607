package reader

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// File is a file of a snapshot's table, open for reading. It is an io.ReaderAt with a size,
// as readers of Parquet want it, and an io.Reader. Calls of ReadAt may run at the same time;
// Read is for one goroutine. It need not be closed.
type File struct {
	file  manifest.File
	fetch func(dst []byte, off int64, n int) ([]byte, error)

	// of Read
	at   int64 // the offset after ahead
	rest []byte
	buf  []byte
	sum  uint32
}

// partBytes is how much one request fetches at most.
const partBytes = 4 << 20

// Open returns a file that [Snapshot.Files] has yielded. It sends no request. ctx bounds all
// reading, since an io.ReaderAt takes none.
//
// Reading holds at most 4 MiB besides the caller's buffers. Errors name the file, and are
// [ErrPinLost] if the file is gone and so is the pin; [ErrGone] if the snapshot has no pin;
// [ErrCorrupt] if the file is gone or damaged otherwise; the store's or ctx's. Open fails
// with manifest.ErrFiles if the log keeps its files in a second store, and Options.Files is
// not given.
func (s *Snapshot) Open(ctx context.Context, f manifest.File) (*File, error) {
	st, err := s.r.log.FileStore()
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return nil, err
	}
	fetch := func(dst []byte, off int64, n int) ([]byte, error) {
		body, info, err := store.Read(ctx, st, f.Key, &store.ReadOptions{Offset: off, Length: int64(n), Append: dst[:0], Settle: s.r.opts.Settle})
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, s.gone(f.Key, st.Traits().Name)
		case errors.Is(err, store.ErrRange):
			return nil, fmt.Errorf("%w: file %s ends before byte %d in %s, the table says that it has %d", fence.ErrCorrupt, f.Key, off, st.Traits().Name, f.Size)
		case err == nil && info.Size != f.Size:
			return nil, fmt.Errorf("%w: file %s has %d bytes in %s, the table says %d", fence.ErrCorrupt, f.Key, info.Size, st.Traits().Name, f.Size)
		case err != nil:
			return nil, fmt.Errorf("reader: file %s: %w", f.Key, err)
		}
		return body, nil
	}
	return &File{file: f, fetch: fetch}, nil
}

// gone is the error of a file that is not there.
func (s *Snapshot) gone(key, where string) error {
	if s.pin != nil && s.Err() == nil && !s.pin.over() {
		return fmt.Errorf("%w: file %s is live in the snapshot of version %d, which is pinned, and it is not in %s; run `fencepost verify`", fence.ErrCorrupt, key, s.m.Version, where)
	}
	return s.explain(fmt.Errorf("%w: file %s is not in %s", ErrGone, key, where))
}

// Size is how many bytes the file has.
func (f *File) Size() int64 { return f.file.Size }

// ReadAt implements [io.ReaderAt]. It costs one request, and one more for each 4 MiB: a
// reader of many small pieces should have a buffer of its own. It checks no checksum.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("reader: file %s: offset %d is negative", f.file.Key, off)
	}
	n := 0
	for n < len(p) && off+int64(n) < f.file.Size {
		at := off + int64(n)
		want := int(min(partBytes, int64(len(p)-n), f.file.Size-at))
		body, err := f.fetch(p[n:n:len(p)], at, want)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], body)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Read implements [io.Reader]: the file from its beginning, in requests of 4 MiB. At the end
// it compares the checksum. If that is wrong, the error is [ErrCorrupt] in place of io.EOF.
func (f *File) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.at >= f.file.Size {
			return 0, f.end()
		}
		body, err := f.fetch(f.buf, f.at, int(min(partBytes, f.file.Size-f.at)))
		if err != nil {
			return 0, err
		}
		f.at += int64(len(body))
		f.sum = crc32.Update(f.sum, castagnoli, body)
		f.rest, f.buf = body, body
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// end is the error after the last byte.
func (f *File) end() error {
	// guard:file-sum. A file that is read from its beginning to its end must have the checksum that its
	// writer computed.
	//
	//mutant:replace f.sum != f.file.CRC32C => false
	if f.sum != f.file.CRC32C {
		return fmt.Errorf("%w: the checksum of file %s is %08x, the table says %08x", fence.ErrCorrupt, f.file.Key, f.sum, f.file.CRC32C)
	}
	return io.EOF
}
