package outside

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Budget bounds the requests of all that share it, to so many in any minute.
type Budget struct {
	clock clock.Clock
	turn  chan struct{} // holds a token while one caller waits for room; the others queue up

	mu    sync.Mutex
	spent uint64
	next  int             // of starts, the one that was longest ago
	start []clock.Instant // when the last requests were sent, or are to be sent
}

// NewBudget returns a budget of so many requests a minute.
func NewBudget(perMinute int, c clock.Clock) *Budget {
	b := &Budget{clock: clock.Or(c), turn: make(chan struct{}, 1), start: make([]clock.Instant, perMinute)}
	for i := range b.start {
		b.start[i] = b.clock.Now().Add(-time.Minute)
	}
	return b
}

// Spent is how many requests were made.
func (b *Budget) Spent() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

// take takes a request if there is room for one in this minute. Else it returns how long the
// caller must wait before it tries again.
func (b *Budget) take() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if left := b.start[b.next].Add(time.Minute).Sub(now); left > 0 {
		return left
	}
	b.spend(now)
	return 0
}

// owe takes a request that was sent already.
func (b *Budget) owe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spend(max(b.clock.Now(), b.start[b.next].Add(time.Minute)))
}

func (b *Budget) spend(at clock.Instant) {
	b.start[b.next] = at
	b.next = (b.next + 1) % len(b.start)
	b.spent++
}

// spare reports whether a request would leave a sixth of this minute's budget.
func (b *Budget) spare() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.start[(b.next+len(b.start)/6)%len(b.start)]
	return b.clock.Now().Sub(last) >= time.Minute
}

// wait waits for its turn. Callers get it in the order in which they came: if all of them woke at
// once, a busy log could keep a group waiting for ever. A caller that gives up has taken nothing.
func (b *Budget) wait(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}: // blocked senders are served in order
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		d := b.take()
		if d == 0 {
			return nil
		}
		if err := clock.Sleep(ctx, b.clock, d); err != nil {
			return err
		}
	}
}

// page is how many keys a listing returns in one request.
const page = 1000

// silence is how long a request may take until a failure is reported, although it may still be answered.
const silence = 30 * time.Second

// frugal is a store that reads within a budget. It writes nothing: a watcher has no right to.
type frugal struct {
	st       store.Store
	budget   *Budget
	answered func()      // is called after each answer
	failed   func(error) // is called when there was no answer; the request may be sent again
}

func (f *frugal) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := f.budget.wait(ctx); err != nil {
		return nil, err
	}
	heard := f.send(ctx, "get "+key)
	obj, err := f.st.Get(ctx, key, opts)
	if err != nil {
		heard(err)
		return obj, err
	}
	obj.Body = &body{ReadCloser: obj.Body, ended: heard}
	return obj, nil
}

// body is what a request is answered with. It may stall, so the request ends when it is closed. Its users
// close it once.
type body struct {
	io.ReadCloser
	err   error // of reading it
	ended func(error)
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

func (b *body) Close() error {
	b.ended(b.err)
	return b.ReadCloser.Close()
}

// send is called before a request, and what it returns after it.
func (f *frugal) send(ctx context.Context, request string) (heard func(error)) {
	late := f.budget.clock.AfterFunc(silence, func() {
		f.failed(fmt.Errorf("%s has not answered for %v: %s", f.st.Traits().Where(), silence, request))
	})
	return func(err error) {
		late.Stop()
		switch {
		case err == nil || answers(err):
			f.answered()
		case !errors.Is(context.Cause(ctx), context.Canceled): // else nobody wants the answer any more
			f.failed(err)
		}
	}
}

// List takes a request for each page. So a long listing is paid afterwards.
func (f *frugal) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := f.budget.wait(ctx); err != nil {
			yield(store.Info{}, err)
			return
		}
		heard, waits := f.send(ctx, "list "+prefix), true
		n := 0
		for info, err := range f.st.List(ctx, prefix, opts) {
			if waits || err != nil {
				heard(err)
				waits = false
			}
			if n++; n%page == 0 {
				f.budget.owe()
				heard, waits = f.send(ctx, "list "+prefix), true
			}
			if !yield(info, err) {
				if waits {
					heard(nil)
				}
				return
			}
		}
		if waits {
			heard(nil)
		}
	}
}

func (f *frugal) Put(context.Context, string, []byte, *store.PutOptions) (store.Info, error) {
	return store.Info{}, readOnly("put")
}

func (f *frugal) Upload(context.Context, string, io.Reader, *store.UploadOptions) (store.Info, error) {
	return store.Info{}, readOnly("upload")
}

func (f *frugal) Delete(context.Context, ...string) error { return readOnly("delete") }

func (f *frugal) Traits() store.Traits { return f.st.Traits() }

func readOnly(op string) error {
	return &store.Error{Op: op, Kind: store.ErrDenied, Err: fmt.Errorf("a watcher only reads")}
}
