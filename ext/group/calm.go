package group

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// calm is a store that many logs of one process share. When the store answers that it is
// overloaded, all of them wait, and not only the one that got the answer. Each log has its own
// retries, and thousands of them would keep the store overloaded.
type calm struct {
	store.Store
	clock clock.Clock

	mu    sync.Mutex
	until clock.Instant // nobody sends a request before then, if rests
	rests bool
	pause time.Duration // the last pause that was added
}

// Unwrap implements [store.Wrapper].
func (c *calm) Unwrap() store.Store { return c.Store }

var _ store.Wrapper = (*calm)(nil)

const (
	minCalm = 50 * time.Millisecond
	maxCalm = 5 * time.Second
)

// wait waits until requests may be sent.
func (c *calm) wait(ctx context.Context) error {
	for {
		c.mu.Lock()
		left := c.until.Sub(c.clock.Now())
		c.rests = c.rests && left > 0
		rests := c.rests
		c.mu.Unlock()
		if !rests {
			return nil
		}
		if err := clock.Sleep(ctx, c.clock, left); err != nil {
			// The request was not sent, so its outcome is that of any that gets no answer.
			return err
		}
	}
}

// heard learns from an answer. The pause doubles while the store is overloaded, and halves
// with each answer that it is not.
func (c *calm) heard(err error) {
	var e *store.Error
	busy := errors.As(err, &e) && (e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests)
	if err != nil && !busy {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	switch {
	case !busy:
		c.pause /= 2
	case !c.rests || now >= c.until: // else others heard it in the same moment
		c.rests = true
		c.pause = min(max(2*c.pause, minCalm, e.RetryAfter), maxCalm)
		c.until = now.Add(c.pause)
	}
}

func (c *calm) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := c.wait(ctx); err != nil {
		return nil, &store.Error{Op: "get", Key: key, Err: err}
	}
	o, err := c.Store.Get(ctx, key, opts)
	c.heard(err)
	return o, err
}

func (c *calm) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := c.wait(ctx); err != nil {
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: err}
	}
	info, err := c.Store.Put(ctx, key, body, opts)
	c.heard(err)
	return info, err
}

func (c *calm) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	if err := c.wait(ctx); err != nil {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Err: err}
	}
	info, err := c.Store.Upload(ctx, key, body, opts)
	c.heard(err)
	return info, err
}

func (c *calm) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := c.wait(ctx); err != nil {
			yield(store.Info{}, &store.Error{Op: "list", Key: prefix, Err: err})
			return
		}
		for info, err := range c.Store.List(ctx, prefix, opts) {
			c.heard(err)
			if !yield(info, err) {
				return
			}
		}
	}
}

// AbortUploads is for compactors.
func (c *calm) AbortUploads(ctx context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	st, ok := store.As[store.UploadAborter](c.Store)
	if !ok {
		return 0, nil
	}
	if err := c.wait(ctx); err != nil {
		return 0, &store.Error{Op: "abort", Key: prefix, Err: err}
	}
	n, err := st.AbortUploads(ctx, prefix, doomed)
	c.heard(err)
	return n, err
}

func (c *calm) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	if err := c.wait(ctx); err != nil {
		return &store.Error{Op: "delete", Key: keys[0], Err: err}
	}
	err := c.Store.Delete(ctx, keys...)
	c.heard(err)
	return err
}
