package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Locker acquires locks below one prefix. It is safe for concurrent use.
type Locker struct {
	st     store.Store
	prefix string
	opts   Options
	settle *store.SettleOptions

	ctx    context.Context //nolint:containedctx // of what goes on in the background; it ends when Close gives up
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // has one more until Close, so that nobody adds to none

	mu      sync.Mutex // never held across a request
	session *session   // the one for new locks, or nil
	closed  bool
	sweeps  bool
	swept   clock.Instant
}

// New returns a Locker for the names below a prefix of a store, such as "locks". It sends no request and starts no
// goroutine; opts may be nil. All who are to exclude each other use the same store and prefix.
//
// Errors: [ErrOptions] with all faults, also for a prefix among the names of logs, such as lock or data, and for a store
// that takes writes of one object too seldom for heartbeats.
func New(st store.Store, prefix string, opts *Options) (*Locker, error) {
	err := opts.Validate()
	l := &Locker{st: st, prefix: prefix, opts: *cmp.Or(opts, &Options{})}
	l.opts.Clock, l.opts.Validity = clock.Or(l.opts.Clock), cmp.Or(l.opts.Validity, DefaultValidity)
	if l.opts.Identity == "" {
		host, _ := os.Hostname()
		l.opts.Identity = fmt.Sprintf("%.255s/%d/%s", strings.ToValidUTF8(host, "?"), os.Getpid(), uuid.NewString())
	}
	l.settle = &store.SettleOptions{Attempt: l.opts.request(), Clock: l.opts.Clock, Random: l.opts.Random}
	switch key := l.bucketKey(""); {
	case store.IsNil(st):
		err = errors.Join(err, fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions))
	case store.CheckKey("lock", key) != nil:
		err = errors.Join(err, fmt.Errorf("%w: the prefix %q: %w", ErrOptions, prefix, store.CheckKey("lock", key)))
	default:
		if taken := register.Free(st, key); taken != nil {
			err = errors.Join(err, fmt.Errorf("%w: the prefix %q: %w", ErrOptions, prefix, taken))
		}
		if least := st.Traits().MinRewrite; least > l.opts.renew() {
			err = errors.Join(err, fmt.Errorf("%w: heartbeats come each %v (2/5 of Validity), and the store takes one write of an object in %v: raise Validity", ErrOptions, l.opts.renew(), least))
		}
	}
	if err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.work.Add(1)
	return l, nil
}

// spawn runs f in the background, unless the Locker is closed. Close waits for it.
func (l *Locker) spawn(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.work.Go(func() { f(l.ctx) })
	}
	return !l.closed
}

// Close ends the session of this process: locks that are still held are lost ([ErrClosed]), and lapse after the
// validity. It waits until released locks are free, and until ctx ends at most; then the error is ctx's cause. It may be
// called twice.
func (l *Locker) Close(ctx context.Context) error {
	l.mu.Lock()
	s, first := l.session, !l.closed
	l.closed = true
	l.mu.Unlock()
	if s != nil && !s.idle() {
		s.end(ErrClosed, nil)
	}
	if first {
		l.work.Done()
	}
	stop := context.AfterFunc(ctx, func() { l.cancel(ErrClosed) })
	l.work.Wait()
	if !stop() {
		return context.Cause(ctx)
	}
	return nil
}

// read reads a bucket. Without an object it is empty, and has no version.
func (l *Locker) read(ctx context.Context, key string) (*bucket, error) {
	body, info, err := store.Read(ctx, l.st, key, &store.ReadOptions{Limit: maxBucket, Settle: l.settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &bucket{}, nil
	case errors.Is(err, store.ErrTooLarge):
		return nil, document.Corrupt(key, "%v", err)
	case err != nil:
		return nil, err
	}
	b, err := decodeBucket(key, body)
	if err != nil {
		return nil, err
	}
	b.version = info.Version
	return b, nil
}

// write replaces the bucket old by next, and gives next its version.
func (l *Locker) write(ctx context.Context, key string, old, next *bucket) error {
	next.Format, next.Nonce = document.Format, fence.ID(uuid.New())
	if next.Held == nil {
		next.Held = []entry{}
	}
	body, err := document.Encode(key, next)
	if err == nil && len(body) > maxBucket {
		err = fmt.Errorf("%w: %s would have %d bytes: too many names with one hash are held", fence.ErrLimit, key, len(body))
	}
	if err != nil {
		return err
	}
	info, err := l.put(ctx, key, body, old.version)
	next.version = info.Version
	return err
}

// put creates an object, or swaps a version of it.
func (l *Locker) put(ctx context.Context, key string, body []byte, old store.Version) (store.Info, error) {
	opts := &store.WriteOptions{Settle: l.settle}
	if old == "" {
		return store.Create(ctx, l.st, key, body, opts)
	}
	return store.Swap(ctx, l.st, key, body, old, opts)
}

// pause sleeps between half of d and d.
func (l *Locker) pause(ctx context.Context, d time.Duration) error {
	return clock.Sleep(ctx, l.opts.Clock, d/2+time.Duration(l.opts.random()*float64(d)/2))
}
