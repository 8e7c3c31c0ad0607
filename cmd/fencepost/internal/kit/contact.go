package kit

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"sync"
	"time"

	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
)

// reach waits until the store answers, for as long as --timeout says.
func (k *Kit) reach(ctx context.Context, st store.Store) error {
	err := contact.Reach(ctx, st, inspect.Format.Prefix(), &contact.Options{
		Timeout: k.Timeout, Every: max(k.Patience, time.Second),
		Waiting: func(w contact.Waiting) { k.Console.Note("%v", w) },
	})
	if errors.Is(err, store.ErrUnreachable) {
		return err
	}
	return nil // what else is wrong, the verb finds with better words
}

// watched is a store that says when it has not answered for a while, whatever a verb asks of
// it. The library retries for minutes, which would look like a hang.
type watched struct {
	store.Store
	patience time.Duration
	note     func(format string, args ...any)

	mu      sync.Mutex
	busy    int         // requests that wait for an answer
	silent  time.Time   // since when there is no answer to those that wait, or that failed; zero: there is
	timer   *time.Timer // nil: not set
	last    error       // of a request since then
	waiting string      // the request that began last
	told    bool
}

func newWatched(st store.Store, c *Console) store.Store {
	return &watched{Store: st, patience: max(c.pause, time.Second), note: c.Note}
}

// Unwatched is the store itself, for a verb that logs the failures that are retried.
func Unwatched(st store.Store) store.Store {
	if w, ok := st.(*watched); ok {
		return w.Store
	}
	return st
}

func (w *watched) begin(op, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	w.waiting = op + " " + key
	if w.silent.IsZero() {
		w.silent = time.Now()
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.patience, w.check)
	}
}

func (w *watched) end(ctx context.Context, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		// Whoever sent it does not wait any more: it says nothing about the store.
		if w.busy == 0 && w.last == nil && !w.told {
			w.silent = time.Time{}
		}
	case ctx.Err() != nil: // it got no answer in time
	case answered(err):
		if w.told {
			w.note("%s answers again", w.Traits().Where())
		}
		w.told, w.last, w.silent = false, nil, time.Time{}
		if w.busy > 0 {
			w.silent = time.Now()
		}
	default:
		w.last = err
	}
}

// check says that there is no answer, if so, and checks again later.
func (w *watched) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = nil
	if w.silent.IsZero() {
		return
	}
	wait := w.patience
	if since := time.Since(w.silent); since < w.patience {
		wait -= since
	} else {
		w.told = true
		s := contact.Waiting{Store: w.Traits().Where(), For: since, Err: w.last}.String()
		if w.last == nil {
			s += ": " + w.waiting
		}
		w.note("%s; trying again", s)
	}
	w.timer = time.AfterFunc(wait, w.check)
}

// answered reports whether the store has answered, whatever it said.
func answered(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return err == nil || ok && (e.Kind != nil || e.Status == http.StatusConflict)
}

func (w *watched) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	w.begin("get", key)
	obj, err := w.Store.Get(ctx, key, opts)
	w.end(ctx, err)
	if err == nil {
		obj.Body = &watchedBody{ReadCloser: obj.Body, ctx: ctx, w: w, key: key}
	}
	return obj, err
}

func (w *watched) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	w.begin("put", key)
	info, err := w.Store.Put(ctx, key, body, opts)
	w.end(ctx, err)
	return info, err
}

func (w *watched) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		w.begin("list", prefix)
		waits := true
		for info, err := range w.Store.List(ctx, prefix, opts) {
			w.end(ctx, err)
			if waits = yield(info, err) && err == nil; !waits {
				return
			}
			w.begin("list", prefix)
		}
		if waits {
			w.end(ctx, nil)
		}
	}
}

func (w *watched) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	w.begin("delete", keys[0])
	err := w.Store.Delete(ctx, keys...)
	w.end(ctx, err)
	return err
}

func (w *watched) AbortUploads(ctx context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	if st, ok := store.As[store.UploadAborter](w.Store); ok {
		w.begin("list uploads", prefix)
		n, err := st.AbortUploads(ctx, prefix, func(info store.Info) bool {
			w.end(ctx, nil) // each upload is an answer
			defer w.begin("list uploads", prefix)
			return doomed(info)
		})
		w.end(ctx, err)
		return n, err
	}
	return 0, nil
}

func (w *watched) Expiries(ctx context.Context, prefix string) ([]store.Expiry, error) {
	if st, ok := store.As[store.ExpiryTeller](w.Store); ok {
		w.begin("read rules", prefix)
		rules, err := st.Expiries(ctx, prefix)
		w.end(ctx, err)
		return rules, err
	}
	return nil, errors.ErrUnsupported
}

// watchedBody is the body of an object. Only the reads of it wait for the store.
type watchedBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // that of the Get
	w   *watched
	key string
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.w.begin("get", b.key)
	n, err := b.ReadCloser.Read(p)
	if n > 0 || err == io.EOF {
		b.w.end(b.ctx, nil)
	} else {
		b.w.end(b.ctx, err)
	}
	return n, err
}
