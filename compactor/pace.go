package compactor

import (
	"context"
	"io"
	"iter"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Budget bounds what several compactors of one process do together: each gets the same one as
// [Options.Budget]. Set its fields before the first use. It is safe for concurrent use.
type Budget struct {
	// RequestsPerSecond and BytesPerSecond are for all compactors together, on average over a
	// few seconds. Retries of requests and heartbeats of elections are not counted. 0 or less
	// is no bound.
	RequestsPerSecond int
	BytesPerSecond    int64
	// Concurrency is how many compactors work at a time; the others wait for their turn. 0 or less
	// is no bound.
	Concurrency int

	once            sync.Once
	requests, bytes *rate.Limiter
	turns           chan struct{}
}

// begin makes what the compactors share.
func (b *Budget) begin() {
	b.once.Do(func() {
		b.requests, b.bytes = limiter(int64(b.RequestsPerSecond)), limiter(b.BytesPerSecond)
		if b.Concurrency > 0 {
			b.turns = make(chan struct{}, b.Concurrency)
		}
	})
}

// turn waits until one more compactor may work. The caller calls done at the end.
func (b *Budget) turn(ctx context.Context) (done func(), err error) {
	if b == nil || b.turns == nil {
		return func() {}, ctx.Err()
	}
	select {
	case b.turns <- struct{}{}:
		return func() { <-b.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// limiter returns nil if there is no limit.
func limiter(perSecond int64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	// The burst is what a tenth of a second allows.
	return rate.NewLimiter(rate.Limit(perSecond), int(max(perSecond/10, 1)))
}

// pacer keeps a compactor's use of the store below its limits. It waits between requests,
// never within one, because the time of a request is bounded. So requests are counted when
// they are sent, and whoever calls pace waits until they are paid for.
type pacer struct {
	clock           clock.Clock
	requests, bytes [2]*rate.Limiter // the compactor's own, and the budget's
}

func newPacer(o *Options) *pacer {
	b := o.Budget
	if b == nil {
		b = &Budget{}
	}
	b.begin()
	return &pacer{
		clock:    o.Clock,
		requests: [2]*rate.Limiter{limiter(int64(o.RequestsPerSecond)), b.requests},
		bytes:    [2]*rate.Limiter{limiter(o.BytesPerSecond), b.bytes},
	}
}

// pace waits until what was sent so far, and so many bytes more, are within the limits.
func (p *pacer) pace(ctx context.Context, bytes int64) error {
	p.spend(p.bytes, bytes)
	now, wait := p.now(), time.Duration(0)
	for _, l := range append(p.requests[:], p.bytes[:]...) {
		if l == nil {
			continue
		}
		if owed := -l.TokensAt(now); owed > 0 {
			wait = max(wait, time.Duration(owed/float64(l.Limit())*float64(time.Second)))
		}
	}
	if wait == 0 {
		return ctx.Err()
	}
	return clock.Sleep(ctx, p.clock, wait)
}

func (p *pacer) now() time.Time { return time.Unix(0, int64(p.clock.Now())) }

// sent notes requests.
func (p *pacer) sent(requests int64) { p.spend(p.requests, requests) }

// spend takes n from limiters.
func (p *pacer) spend(limiters [2]*rate.Limiter, n int64) {
	now := p.now()
	for _, l := range limiters {
		for rest := n; l != nil && rest > 0; {
			some := min(rest, int64(l.Burst()))
			l.ReserveN(now, int(some))
			rest -= some
		}
	}
}

// counted tells a pacer of all requests.
type counted struct {
	store.Store
	pacer *pacer
}

// Unwrap implements [store.Wrapper].
func (c *counted) Unwrap() store.Store { return c.Store }

var _ store.Wrapper = (*counted)(nil)

func (c *counted) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	c.pacer.sent(1)
	return c.Store.Get(ctx, key, opts)
}

func (c *counted) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	c.pacer.sent(1)
	return c.Store.Put(ctx, key, body, opts)
}

// Upload counts one request. The parts of a large upload are counted as they fill.
func (c *counted) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	c.pacer.sent(1)
	return c.Store.Upload(ctx, key, body, opts)
}

// listedAtOnce is how many objects one request lists, on S3.
const listedAtOnce = 1000

func (c *counted) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		c.pacer.sent(1)
		n := 0
		for info, err := range c.Store.List(ctx, prefix, opts) {
			if n++; n%listedAtOnce == 0 {
				c.pacer.sent(1)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

func (c *counted) Delete(ctx context.Context, keys ...string) error {
	c.pacer.sent(1)
	return c.Store.Delete(ctx, keys...)
}

// AbortUploads implements [store.UploadAborter], as far as the store does.
func (c *counted) AbortUploads(ctx context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	st, ok := store.As[store.UploadAborter](c.Store)
	if !ok {
		return 0, nil
	}
	c.pacer.sent(1)
	return st.AbortUploads(ctx, prefix, doomed)
}
