package faultstore

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"iter"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/store"
)

// Traits implements [store.Store], with those of the inner store.
func (s *Store) Traits() store.Traits { return s.inner.Traits() }

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	var obj *store.Object
	var fault Fault
	op := Op{Kind: Get, Key: key}
	if opts != nil {
		op.Offset = opts.Offset
	}
	err := s.do(ctx, op, func(r *request) {
		fault = r.fault
		r.apply = func(ctx context.Context) (err error) {
			obj, err = s.inner.Get(ctx, key, opts)
			return err
		}
	})
	if err != nil {
		if obj != nil {
			_ = obj.Body.Close()
		}
		return nil, err
	}
	if fault.Cut {
		obj.Body = cutBody(obj.Body, fault, op)
	}
	s.open.Add(1)
	obj.Body = &countedBody{ReadCloser: obj.Body, closed: func() { s.open.Add(-1) }}
	return obj, nil
}

type countedBody struct {
	io.ReadCloser
	once   sync.Once
	closed func()
}

func (b *countedBody) Close() error {
	b.once.Do(b.closed)
	return b.ReadCloser.Close()
}

// cutReader returns err after so many bytes. A shorter body is not cut.
type cutReader struct {
	r    io.Reader
	left int
	err  error
}

func (c *cutReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func cutBody(body io.ReadCloser, f Fault, op Op) io.ReadCloser {
	cut := &cutReader{r: body, left: f.Keep, err: io.EOF}
	if f.Err != nil {
		cut.err = addressed(f.Err, op)
	}
	return struct {
		io.Reader
		io.Closer
	}{cut, body}
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	var info store.Info
	err := s.do(ctx, Op{Kind: Put, Key: key, Cond: opts.Condition(), Size: len(body)}, func(r *request) {
		r.apply = func(ctx context.Context) (err error) {
			info, err = s.inner.Put(ctx, key, body, opts)
			return err
		}
		if r.fault.Late != nil {
			// The caller may reuse what it has passed in.
			kept, opts := bytes.Clone(body), &store.PutOptions{If: opts.Condition()}
			r.again = func(ctx context.Context) error {
				_, err := s.inner.Put(ctx, key, kept, opts)
				return err
			}
		}
	})
	if err != nil {
		return store.Info{}, err
	}
	return info, nil
}

// Upload implements [store.Store]. A late copy of it holds the whole body.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	op := Op{Kind: Upload, Key: key}
	if opts != nil && opts.Create {
		op.Cond = store.IfAbsent()
	}
	var info store.Info
	err := s.do(ctx, op, func(r *request) {
		if r.fault.Cut {
			broken := addressed(cmp.Or[error](r.fault.Err, ErrReset), op)
			body = &cutReader{r: body, left: r.fault.Keep, err: broken}
		}
		r.apply = func(ctx context.Context) (err error) {
			info, err = s.inner.Upload(ctx, key, body, opts)
			return err
		}
		if r.fault.Late == nil {
			return
		}
		whole, err := io.ReadAll(body)
		if err != nil {
			// The body cannot be read: nothing of it is sent.
			r.fault.Drop, r.fault.Late, r.fault.Err = true, nil, &store.Error{Op: "upload", Key: key, Err: err}
			return
		}
		body = bytes.NewReader(whole)
		r.again = func(ctx context.Context) error {
			_, err := s.inner.Upload(ctx, key, bytes.NewReader(whole), opts)
			return err
		}
	})
	if err != nil {
		return store.Info{}, err
	}
	return info, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	kept := slices.Clone(keys)
	return s.do(ctx, Op{Kind: Delete, Key: keys[0], Keys: kept}, func(r *request) {
		r.apply = func(ctx context.Context) error { return s.inner.Delete(ctx, kept...) }
		r.again = r.apply
	})
}

// List implements [store.Store]. It reads the whole inner listing before it yields the
// first entry.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		var found []store.Info
		var broken error // after the entries of found
		err := s.do(ctx, Op{Kind: List, Key: prefix}, func(r *request) {
			r.apply = func(ctx context.Context) error {
				for info, err := range s.inner.List(ctx, prefix, opts) {
					if err != nil {
						return err
					}
					found = append(found, info)
				}
				if r.fault.Cut && r.fault.Keep < len(found) {
					found, broken = found[:max(r.fault.Keep, 0)], addressed(cmp.Or[error](r.fault.Err, ErrReset), r.op)
				}
				return nil
			}
		})
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		for _, info := range found {
			if err := s.alive(ctx, Op{Kind: List, Key: prefix}); err != nil {
				yield(store.Info{}, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
		if broken != nil {
			yield(store.Info{}, broken)
		}
	}
}
