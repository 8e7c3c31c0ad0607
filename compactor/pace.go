package compactor

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/fencepost/fencepost/clock"
)

// pacer keeps a compactor's use of the store below its limits. It waits between requests,
// never within one, because the time of a request is bounded.
type pacer struct {
	clock           clock.Clock
	requests, bytes *rate.Limiter // nil: no limit
}

func newPacer(o *Options) *pacer {
	limiter := func(perSecond int64) *rate.Limiter {
		if perSecond == 0 {
			return nil
		}
		// The burst is what a tenth of a second allows.
		return rate.NewLimiter(rate.Limit(perSecond), int(max(perSecond/10, 1)))
	}
	return &pacer{clock: o.Clock, requests: limiter(int64(o.RequestsPerSecond)), bytes: limiter(o.BytesPerSecond)}
}

// pace waits until so many more requests and bytes may be sent.
func (p *pacer) pace(ctx context.Context, requests, bytes int64) error {
	now := time.Unix(0, int64(p.clock.Now()))
	wait := max(reserve(p.requests, now, requests), reserve(p.bytes, now, bytes))
	if wait == 0 {
		return ctx.Err()
	}
	return clock.Sleep(ctx, p.clock, wait)
}

// reserve takes n from a limiter and returns how long to wait for it.
func reserve(l *rate.Limiter, now time.Time, n int64) (wait time.Duration) {
	if l == nil {
		return 0
	}
	for n > 0 {
		some := min(n, int64(l.Burst()))
		wait = l.ReserveN(now, int(some)).DelayFrom(now)
		n -= some
	}
	return wait
}
