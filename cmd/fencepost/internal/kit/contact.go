package kit

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
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

// vigil says what this process waits for when a store does not answer, whatever a verb asks of it: what, for how long,
// and why. The library retries for minutes, which would look like a hang. Requests are told apart by what they do below
// which folder: a store may list and not write, and what works says nothing of what fails.
type vigil struct {
	patience time.Duration
	note     func(format string, args ...any)

	mu    sync.Mutex
	waits map[ask]*wait
	timer *time.Timer // nil: not set
	next  time.Time   // the next line
	told  bool        // there was a line about this outage
}

type ask struct{ where, op, folder string }

// wait is for the answers to requests of a kind.
type wait struct {
	busy   int       // requests that wait for an answer
	silent time.Time // since when there is no answer to those that wait, or that failed; zero: there is
	key    string    // of the request that failed last, or that waits
	last   error     // of that; nil if none has failed
	begun  time.Time // the last request for that key
	other  time.Time // the last request for any
}

// forgotten is after how long nobody asks any more for what has failed.
const forgotten = time.Minute

func newVigil(c *Console) *vigil {
	return &vigil{patience: max(c.pause, time.Second), note: c.Note, waits: map[ask]*wait{}}
}

func (v *vigil) begin(a ask, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w, now := v.waits[a], time.Now()
	if w == nil {
		w = &wait{}
		v.waits[a] = w
	}
	w.busy++
	if w.silent.IsZero() {
		w.silent = now
	}
	if w.last == nil {
		w.key = key
	}
	if w.key == key {
		w.begun = now
	}
	if w.other = now; v.timer == nil {
		v.timer = time.AfterFunc(v.patience, v.check)
	}
}

func (v *vigil) end(ctx context.Context, a ask, key string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	w, now := v.waits[a], time.Now()
	w.busy--
	switch {
	case gaveUp(context.Cause(ctx)):
		// Whoever sent it does not wait any more: it says nothing about the store.
		if w.busy == 0 && w.last == nil && !v.told {
			delete(v.waits, a)
		}
	case ctx.Err() != nil: // it got no answer in time
		w.last, w.key, w.begun = context.Cause(ctx), key, now
	case !answered(err):
		w.last, w.key, w.begun = err, key, now
	case w.last != nil && w.key != key && now.Sub(w.begun) < forgotten/2:
		// Another key works, and this one is asked for again and again.
	default:
		failed := w.last != nil || now.Sub(w.silent) >= v.patience
		if w.silent, w.last = now, nil; w.busy == 0 {
			delete(v.waits, a)
		}
		if failed && v.told && !v.failing(now) {
			v.told, v.next = false, time.Time{}
			v.note("%s answers again: %s %s", a.where, a.op, key)
		}
	}
}

// gaveUp reports whether a context has ended for a reason that is not about the store: its caller is done, was told to end, or
// leads no more.
func gaveUp(cause error) bool {
	return errors.Is(cause, context.Canceled) || errors.Is(cause, leader.ErrLost) || errors.Is(cause, fence.ErrFenced) || errors.As(cause, new(*InterruptedError))
}

// stop ends the lines.
func (v *vigil) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.timer != nil {
		v.timer.Stop()
	}
	v.note = func(string, ...any) {}
}

// failing tells whether anything is waited for too long, after it has forgotten what nobody wants any more.
func (v *vigil) failing(now time.Time) bool {
	for a, w := range v.waits {
		if w.busy == 0 && now.Sub(w.other) > forgotten {
			delete(v.waits, a)
		} else if now.Sub(w.silent) >= v.patience {
			return true
		}
	}
	return false
}

// check says for what this process waits longest, if too long, and checks again later.
func (v *vigil) check() {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	v.timer = nil
	if !v.failing(now) {
		v.told, v.next = false, time.Time{}
		if len(v.waits) > 0 {
			v.timer = time.AfterFunc(v.patience/2, v.check)
		}
		return
	}
	var of ask
	var longest *wait
	for a, w := range v.waits {
		if longest == nil || w.silent.Before(longest.silent) {
			of, longest = a, w
		}
	}
	if !now.Before(v.next) {
		lasts := now.Sub(longest.silent)
		s := contact.Waiting{Store: of.where, For: lasts, Err: longest.last}
		v.note("%v: %s %s; trying again", s, of.op, longest.key)
		v.told, v.next = true, now.Add(Rarely(lasts, v.patience))
	}
	v.timer = time.AfterFunc(min(max(v.next.Sub(now), time.Millisecond), forgotten), v.check)
}

// Rarely is how long after a line about something that lasts already the next one comes: soon at first, then less and less often.
func Rarely(lasts, patience time.Duration) time.Duration {
	return min(max(lasts/4, patience), max(patience, 10*time.Minute))
}

// watched is a store that a vigil watches.
type watched struct {
	store.Store
	*vigil
}

// Unwatched is the store itself, for a verb that tells of failures itself.
func Unwatched(st store.Store) store.Store {
	if w, ok := st.(*watched); ok {
		return w.Store
	}
	return st
}

// ask is told of a request, and returns what is to be told of its end.
func (w *watched) ask(ctx context.Context, op, key string) (begin func(), end func(error)) {
	folder, _, _ := strings.Cut(key, "/")
	a := ask{w.Traits().Where(), op, folder}
	return func() { w.begin(a, key) }, func(err error) { w.end(ctx, a, key, err) }
}

// answered reports whether the store has answered, whatever it said.
func answered(err error) bool {
	e, ok := errors.AsType[*store.Error](err)
	return err == nil || ok && (e.Kind != nil || e.Status == http.StatusConflict)
}

func (w *watched) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	begin, end := w.ask(ctx, "get", key)
	begin()
	obj, err := w.Store.Get(ctx, key, opts)
	end(err)
	if err == nil {
		obj.Body = &watchedBody{obj.Body, begin, end}
	}
	return obj, err
}

func (w *watched) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	begin, end := w.ask(ctx, "put", key)
	begin()
	info, err := w.Store.Put(ctx, key, body, opts)
	end(err)
	return info, err
}

func (w *watched) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	begin, end := w.ask(ctx, "upload", key)
	begin()
	info, err := w.Store.Upload(ctx, key, &watchedReader{body, begin, end}, opts)
	end(err)
	return info, err
}

func (w *watched) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		begin, end := w.ask(ctx, "list", prefix)
		begin()
		for info, err := range w.Store.List(ctx, prefix, opts) {
			if end(err); !yield(info, err) || err != nil {
				return
			}
			begin()
		}
		end(nil)
	}
}

func (w *watched) Delete(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	begin, end := w.ask(ctx, "delete", keys[0])
	begin()
	err := w.Store.Delete(ctx, keys...)
	end(err)
	return err
}

func (w *watched) AbortUploads(ctx context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	if st, ok := store.As[store.UploadAborter](w.Store); ok {
		begin, end := w.ask(ctx, "list uploads", prefix)
		begin()
		n, err := st.AbortUploads(ctx, prefix, func(info store.Info) bool {
			end(nil) // each upload is an answer
			defer begin()
			return doomed(info)
		})
		end(err)
		return n, err
	}
	return 0, nil
}

func (w *watched) Expiries(ctx context.Context, prefix string) ([]store.Expiry, error) {
	if st, ok := store.As[store.ExpiryTeller](w.Store); ok {
		begin, end := w.ask(ctx, "read rules", prefix)
		begin()
		rules, err := st.Expiries(ctx, prefix)
		end(err)
		return rules, err
	}
	return nil, errors.ErrUnsupported
}

// watchedBody is the body of an object. Only the reads of it wait for the store.
type watchedBody struct {
	io.ReadCloser
	begin func()
	end   func(error)
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.begin()
	n, err := b.ReadCloser.Read(p)
	if n > 0 || err == io.EOF {
		b.end(nil)
	} else {
		b.end(err)
	}
	return n, err
}

// watchedReader is what is uploaded. While it is read the store waits, and each part that it has taken is an answer.
type watchedReader struct {
	io.Reader
	begin func()
	end   func(error)
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.end(nil)
	defer r.begin()
	return r.Reader.Read(p)
}
