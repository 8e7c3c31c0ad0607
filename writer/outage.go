package writer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

const (
	// quiet is how long a failure may last before the log tells of it, and loud how often it
	// does so while it lasts.
	quiet = 5 * time.Second
	loud  = time.Minute
)

// outage is why the store does not do what the writer asks for, while the requests are
// retried. Nobody would hear of it otherwise: a caller whose context ends learns only that.
type outage struct {
	what   string // is not done meanwhile
	clock  clock.Clock
	logger *zap.Logger

	mu            sync.Mutex
	err           error // the last answer; nil if there is no outage
	since, warned clock.Instant
	told          bool
}

// settle returns options that tell the outage of each failure.
func (o *outage) settle(opts *store.SettleOptions) *store.SettleOptions {
	s := *opts
	s.Retrying = func(err error) {
		if opts.Retrying != nil {
			opts.Retrying(err)
		}
		o.failed(err)
	}
	return &s
}

// failed notes a failure that is retried.
func (o *outage) failed(err error) {
	now := o.clock.Now()
	o.mu.Lock()
	if o.err == nil {
		o.since = now
	}
	o.err = err
	lasts := now.Sub(o.since)
	tell := lasts >= quiet && (!o.told || now.Sub(o.warned) >= loud)
	if tell {
		o.told, o.warned = true, now
	}
	o.mu.Unlock()
	if tell {
		o.logger.Warn("the store fails, and "+o.what+"; retrying", zap.Duration("for", lasts), zap.Error(err))
	}
}

// over notes that the store has done what it was asked for.
func (o *outage) over() {
	o.mu.Lock()
	told, lasted := o.told, o.clock.Now().Sub(o.since)
	o.err, o.told = nil, false
	o.mu.Unlock()
	if told {
		o.logger.Info("the store works again", zap.Duration("after", lasted))
	}
}

// explain adds to the reason why a wait has ended what the store has answered meanwhile, if
// that is known.
func (o *outage) explain(err error) (known bool, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		return false, err
	}
	return true, fmt.Errorf("%w (for %v the store has failed: %w)", err, o.clock.Now().Sub(o.since).Round(time.Millisecond), o.err)
}

// cause is why ctx has ended, and what the store has answered meanwhile.
func (o *outage) cause(ctx context.Context) error {
	_, err := o.explain(context.Cause(ctx))
	return err
}
