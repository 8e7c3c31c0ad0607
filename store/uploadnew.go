package store

import (
	"context"
	"errors"
	"io"
)

// UploadNew uploads an object under a name that nobody else uses, such as one with a
// fresh UUID in it, and asks the store to refuse it if the name is taken. Opts may be
// nil; its Create does not matter.
//
// guard:upload-echo. If it is refused all the same, the object is our own: something
// on the way has sent the request twice (T5), and the answer is that to the second
// copy. The object is there if it has as many bytes as were sent; otherwise the
// refusal is returned. The error is [ErrUnknown] if that cannot be read, for one
// because ctx has ended, and if the object is no longer there: then a copy was
// stored, and whoever sweeps away what nobody refers to came before the answer.
//
//mutant:replace !errors.Is(err, ErrPrecondition) => true
func UploadNew(ctx context.Context, st Store, key string, body io.Reader, opts *UploadOptions, settle *SettleOptions) (Info, error) {
	var o UploadOptions
	if opts != nil {
		o = *opts
	}
	// guard:file-create. The name is new, and the store is asked to insist on it.
	//
	//mutant:replace o.Create = true =>
	o.Create = true
	sent := &countingReader{r: body}
	info, err := st.Upload(ctx, key, sent, &o)
	if !errors.Is(err, ErrPrecondition) {
		return info, err
	}
	// One byte tells the size. Of an empty object there is none.
	_, found, rerr := Read(ctx, st, key, &ReadOptions{Length: 1, Settle: settle})
	switch {
	case rerr == nil || errors.Is(rerr, ErrRange):
		if found.Size == sent.n {
			return found, nil
		}
	case errors.Is(rerr, ErrNotFound):
		return Info{}, &Error{Op: "upload", Key: key, Kind: ErrUnknown, Hint: "it was refused, and there is nothing: a copy of it was stored and has been removed since"}
	default:
		return Info{}, &Error{Op: "upload", Key: key, Kind: ErrUnknown, Hint: "it was refused, and whether by an object of our own could not be read", Err: rerr}
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
