package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// UploadNew uploads an object under a name that nobody else uses, such as one with a
// fresh UUID in it, and asks the store to refuse it if the name is taken. Opts may be
// nil; its Create does not matter.
//
// If the store refuses the upload, UploadNew reads the object. If it has the bytes that were
// sent, it is the caller's own, and the error is nil. [ErrPrecondition] means that the
// object has other bytes. The error is [ErrUnknown] if the object is gone or cannot be
// read.
func UploadNew(ctx context.Context, st Store, key string, body io.Reader, opts *UploadOptions, settle *SettleOptions) (Info, error) {
	o := *cmp.Or(opts, &UploadOptions{})
	// guard:file-create. An upload asks the store to refuse a name that is taken.
	//
	//mutant:replace o.Create = true =>
	o.Create = true
	sent := &summed{r: body}
	info, err := st.Upload(ctx, key, sent, &o)
	// guard:upload-echo. A refused upload is a success if the object has the bytes that were sent.
	//
	//mutant:replace !errors.Is(err, ErrPrecondition) => true
	if !errors.Is(err, ErrPrecondition) {
		return info, err
	}
	// A store that refuses at once has read nothing.
	if _, err := io.Copy(io.Discard, sent); err != nil {
		return Info{}, &Error{Op: "upload", Key: key, Err: fmt.Errorf("reading the body: %w", err)}
	}
	found, sum, readErr := sumOf(ctx, st, key, sent.n, settle)
	switch {
	case errors.Is(readErr, ErrNotFound):
		return Info{}, &Error{Op: "upload", Key: key, Kind: ErrUnknown, Hint: "the store refused the upload and shows no object: a copy of the upload was stored and has been deleted since"}
	case readErr != nil:
		return Info{}, &Error{Op: "upload", Key: key, Kind: ErrUnknown, Hint: "the store refused the upload, and the object there could not be read", Err: readErr}
	}
	// guard:upload-bytes. The object that is there counts as the caller's own only if it has the same
	// bytes, and not only the same size.
	//
	//mutant:replace sum != sent.sum => sum != sent.sum && false
	if found.Size != sent.n || sum != sent.sum {
		return Info{}, err
	}
	return found, nil
}

// sumOf returns the CRC-32C of an object, which it reads whole if it has the right size.
func sumOf(ctx context.Context, st Store, key string, size int64, settle *SettleOptions) (info Info, sum uint32, err error) {
	const piece = 4 << 20
	var buf []byte
	for at := int64(0); ; at += piece {
		buf, info, err = Read(ctx, st, key, &ReadOptions{Offset: at, Length: piece, Append: buf[:0], Settle: settle})
		if at == 0 && errors.Is(err, ErrRange) { // it is empty
			return Info{Key: key, Version: info.Version}, 0, nil
		}
		if err != nil {
			return Info{}, 0, err
		}
		sum = crc32.Update(sum, castagnoli, buf)
		if at+piece >= info.Size || info.Size != size {
			return info, sum, nil
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summed counts what was read, and has its CRC-32C.
type summed struct {
	r   io.Reader
	n   int64
	sum uint32
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	s.sum = crc32.Update(s.sum, castagnoli, p[:n])
	return n, err
}
