package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
)

// Retry calls f, which makes one request that can be repeated, until f succeeds, was
// called SettleOptions.Reads times, or ctx ends. It returns at once what trying again
// cannot change: [ErrNotFound], [ErrNotModified], [ErrRange], [ErrTooLarge], and errors
// that are [Permanent].
//
// Never send a write with it: use [Create] or [Swap].
func Retry(ctx context.Context, opts *SettleOptions, f func(context.Context) error) error {
	return retryFor(ctx, opts, &patience{}, f)
}

func retryFor(ctx context.Context, opts *SettleOptions, p *patience, f func(context.Context) error) error {
	s, err := opts.settings()
	if err != nil {
		return err
	}
	return s.retry(ctx, func() error { return s.attempt(ctx, p, f) })
}

func (s *settings) retry(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err != nil && ctx.Err() != nil {
			return givenUp(ctx, err)
		}
		if err == nil || answered(err) || n+1 >= s.Reads {
			return err
		}
		if s.pause(ctx, n, err) != nil {
			return givenUp(ctx, err)
		}
	}
}

// givenUp is the error of a read that ended because ctx did.
//
// guard:callers-read. The reason why the caller gave up is never passed on as the store's answer to a
// read.
//
//mutant:replace answered(cause) || answered(err) => false
func givenUp(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if answered(cause) || answered(err) {
		return fmt.Errorf("%w: %s (gave up: %s)", ctx.Err(), err.Error(), cause.Error())
	}
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (gave up: %w)", err, cause)
}

// answered reports whether a read's error is the store's answer, not a failure.
func answered(err error) bool {
	return Permanent(err) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrNotModified) ||
		errors.Is(err, ErrRange) || errors.Is(err, ErrTooLarge)
}

// ReadOptions describe one [Read].
type ReadOptions struct {
	// Offset, Length and IfNoneMatch are those of [GetOptions].
	Offset, Length int64
	IfNoneMatch    Version
	// Limit is the most bytes that the caller takes; 0 means Length.
	Limit int64
	// Append holds bytes with which the result begins. If there is room after them for
	// what is read and one byte more, no other array is allocated.
	Append []byte
	// Settle tunes the retries.
	Settle *SettleOptions
}

// Read reads an object, or a part of it, into memory, with the retries of [Retry].
//
// The result has exactly as many bytes as the store announced, which may be none. More
// than the limit is [ErrTooLarge], whatever the store announces; without Limit and Length
// the limit is 0. Memory is allocated as bytes arrive, so a false size costs nothing.
func Read(ctx context.Context, st Store, key string, opts *ReadOptions) ([]byte, Info, error) {
	get := GetOptions{Offset: opts.Offset, Length: opts.Length, IfNoneMatch: opts.IfNoneMatch}
	dst, limit := opts.Append, cmp.Or(opts.Limit, opts.Length)
	var body []byte
	var info Info
	var p patience
	err := retryFor(ctx, opts.Settle, &p, func(ctx context.Context) error {
		obj, err := st.Get(ctx, key, &get)
		if err != nil {
			return err
		}
		defer obj.Body.Close()
		info = obj.Info
		want := obj.Size - get.Offset
		if get.Length > 0 {
			want = min(want, get.Length)
		}
		if want > limit {
			return &Error{Op: "get", Key: key, Kind: ErrTooLarge, Hint: fmt.Sprintf("it has %d bytes, the limit is %d", want, limit)}
		}
		want = max(want, 0)
		p.size = want // a store that has not answered yet is given no more time
		body, err = readClaimed(obj.Body, dst, want)
		n := int64(len(body) - len(dst))
		switch {
		case err != nil:
			return &Error{Op: "get", Key: key, Err: err}
		case n > want:
			return &Error{Op: "get", Key: key, Err: fmt.Errorf("got more than the %d bytes that were announced", want)}
		case n < want:
			return &Error{Op: "get", Key: key, Err: fmt.Errorf("%w: got %d of %d bytes", io.ErrUnexpectedEOF, n, want)}
		}
		return nil
	})
	if err != nil {
		return nil, info, err
	}
	return body, info, nil
}

const (
	// believed is how many bytes are allocated because the store announces them.
	believed = 8 << 20
	// growth is the factor by which the buffer grows. Doubling would hold a large object
	// one and a half times.
	growth = 16
)

// readClaimed appends a body to dst that is announced to have want bytes. Of a longer body
// it reads want+1 bytes. The buffer grows as bytes arrive, in few steps.
func readClaimed(r io.Reader, dst []byte, want int64) ([]byte, error) {
	all := int64(len(dst)) + want + 1 // one more, to see the end
	body := dst
	if int64(cap(dst)) < all {
		body = append(make([]byte, 0, min(all, max(believed, growth*int64(len(dst)))+1)), dst...)
	}
	for int64(len(body)) < all {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(all, growth*int64(cap(body)))), body...)
		}
		n, err := r.Read(body[len(body):min(int64(cap(body)), all)])
		body = body[:len(body)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return body, nil
}
