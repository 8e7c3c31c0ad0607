package store

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// Hooks are called when something happens, for metrics and traces. Each may be nil. They are
// called outside of all locks by the goroutine that made the request, many at once. They must
// return soon and send no request to the same store.
type Hooks struct {
	// Answered: a request has ended, with an answer or without one.
	Answered func(Answer)
}

// Answer is the event of [Hooks].Answered.
type Answer struct {
	// Op is that of an [Error]: "get", "put", "upload", "list", "delete", "abort" or "expiries".
	Op string
	// Key is the key, the first one of a Delete, or the prefix.
	Key string
	// Err is what the call returned. For a Get it may be the error of reading the body.
	Err error
	// Took is the time of the call. The time of a Get ends when the caller closes the body, that of a
	// List when the caller's loop ends.
	Took time.Duration
	// Sent and Received are bytes of bodies.
	Sent, Received int64
	// Objects is how many were listed, or were to be deleted. It is 1 for other calls.
	Objects int
}

// Hooked returns st with hooks that are told of each of its requests. The clock is the
// machine's if c is nil. It can do what [Sub] can: it is an [UploadAborter] and an
// [ExpiryTeller], as [Sub] is if st is none.
func Hooked(st Store, hooks Hooks, c clock.Clock) Store {
	if hooks.Answered == nil {
		return st
	}
	return &hooked{st: st, answered: hooks.Answered, clock: clock.Or(c)}
}

type hooked struct {
	st       Store
	answered func(Answer)
	clock    clock.Clock
}

func (h *hooked) tell(began clock.Instant, a Answer) {
	a.Took = h.clock.Now().Sub(began)
	h.answered(a)
}

func (h *hooked) Get(ctx context.Context, key string, opts *GetOptions) (*Object, error) {
	began := h.clock.Now()
	obj, err := h.st.Get(ctx, key, opts)
	if err != nil {
		h.tell(began, Answer{Op: "get", Key: key, Err: err, Objects: 1})
		return nil, err
	}
	obj.Body = &hookedBody{ReadCloser: obj.Body, hooked: h, began: began, key: key}
	return obj, nil
}

// hookedBody counts what is read of an object.
type hookedBody struct {
	io.ReadCloser
	*hooked
	began  clock.Instant
	key    string
	n      int64
	err    error
	closed bool
}

func (b *hookedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

func (b *hookedBody) Close() error {
	err := b.ReadCloser.Close()
	if !b.closed {
		b.closed = true
		b.tell(b.began, Answer{Op: "get", Key: b.key, Err: b.err, Received: b.n, Objects: 1})
	}
	return err
}

func (h *hooked) Put(ctx context.Context, key string, body []byte, opts *PutOptions) (Info, error) {
	began := h.clock.Now()
	info, err := h.st.Put(ctx, key, body, opts)
	h.tell(began, Answer{Op: "put", Key: key, Err: err, Sent: int64(len(body)), Objects: 1})
	return info, err
}

func (h *hooked) Upload(ctx context.Context, key string, body io.Reader, opts *UploadOptions) (Info, error) {
	began := h.clock.Now()
	counted := &countedReader{r: body}
	info, err := h.st.Upload(ctx, key, counted, opts)
	h.tell(began, Answer{Op: "upload", Key: key, Err: err, Sent: counted.n, Objects: 1})
	return info, err
}

type countedReader struct {
	r io.Reader
	n int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (h *hooked) List(ctx context.Context, prefix string, opts *ListOptions) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		a := Answer{Op: "list", Key: prefix}
		began := h.clock.Now()
		defer func() { h.tell(began, a) }()
		for info, err := range h.st.List(ctx, prefix, opts) {
			if a.Err = err; err == nil {
				a.Objects++
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func (h *hooked) Delete(ctx context.Context, keys ...string) error {
	began := h.clock.Now()
	err := h.st.Delete(ctx, keys...)
	a := Answer{Op: "delete", Err: err, Objects: len(keys)}
	if len(keys) > 0 {
		a.Key = keys[0]
	}
	h.tell(began, a)
	return err
}

func (h *hooked) Traits() Traits { return h.st.Traits() }

func (h *hooked) AbortUploads(ctx context.Context, prefix string, doomed func(Info) bool) (int, error) {
	st, ok := As[UploadAborter](h.st)
	if !ok {
		return 0, CheckPrefix("abort", prefix)
	}
	began := h.clock.Now()
	n, err := st.AbortUploads(ctx, prefix, doomed)
	h.tell(began, Answer{Op: "abort", Key: prefix, Err: err, Objects: n})
	return n, err
}

func (h *hooked) Expiries(ctx context.Context, prefix string) ([]Expiry, error) {
	st, ok := As[ExpiryTeller](h.st)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	began := h.clock.Now()
	rules, err := st.Expiries(ctx, prefix)
	h.tell(began, Answer{Op: "expiries", Key: prefix, Err: err, Objects: 1})
	return rules, err
}
