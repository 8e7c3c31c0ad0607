package store

import (
	"cmp"
	"context"
	"errors"
	"io"
)

// UploadNew uploads an object under a name that nobody else uses, such as one with a
// fresh UUID in it, and asks the store to refuse it if the name is taken. Opts may be
// nil; its Create does not matter.
//
// If the store refuses the upload and the object has as many bytes as were sent, then
// the object is the caller's own, and the error is nil. [ErrPrecondition] means that the
// object has another size. The error is [ErrUnknown] if the object is gone or cannot be
// read.
func UploadNew(ctx context.Context, st Store, key string, body io.Reader, opts *UploadOptions, settle *SettleOptions) (Info, error) {
	o := *cmp.Or(opts, &UploadOptions{})
	// guard:file-create. An upload asks the store to refuse a name that is taken. Without this
	// condition: a snapshot of a running machine is started twice; leader A and its double are in the
	// same epoch, and draw the same UUID for a file; the double's upload replaces A's file; readers of
	// A's file get other bytes.
	//
	//mutant:replace o.Create = true =>
	o.Create = true
	sent := &countingReader{r: body}
	info, err := st.Upload(ctx, key, sent, &o)
	// guard:upload-echo. A refused upload is a success if the object has the right size, since nobody
	// else uses its name. Without this check: a proxy sends the end of A's upload twice; the first copy
	// stores the object; the second copy gets 412, and only this answer reaches A; A reports that its
	// file's name is taken, although the file is A's own.
	//
	//mutant:replace !errors.Is(err, ErrPrecondition) => true
	if !errors.Is(err, ErrPrecondition) {
		return info, err
	}
	// One byte tells the size. An empty object has none: ErrRange.
	_, found, readErr := Read(ctx, st, key, &ReadOptions{Length: 1, Settle: settle})
	switch {
	case readErr == nil || errors.Is(readErr, ErrRange):
		if found.Size == sent.n {
			return found, nil
		}
	case errors.Is(readErr, ErrNotFound):
		return Info{}, &Error{Op: "upload", Key: key, Kind: ErrUnknown, Hint: "the store refused the upload and shows no object: a copy of the upload was stored and has been deleted since"}
	default:
		return Info{}, &Error{Op: "upload", Key: key, Kind: ErrUnknown, Hint: "the store refused the upload, and the object there could not be read", Err: readErr}
	}
	return Info{}, err
}

// countingReader counts what was read.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
