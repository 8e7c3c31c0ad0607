package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/state"
)

// renewer renews a pin in a goroutine of its own, until the pin is lost or released.
type renewer struct {
	pin   *state.Pin
	ttl   time.Duration
	clock clock.Clock

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	lost   chan struct{} // closed when the pin is lost

	mu       sync.Mutex
	released bool
	failed   error // the last attempt to renew the pin; nil if it was confirmed
	err      error // why the pin is lost
}

var errUnanswered = errors.New("no renewal was answered")

// renew begins at once: a search may take longer than the pin's TTL.
func (r *Reader) renew(ctx context.Context, pin *state.Pin, ttl time.Duration) *renewer {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &renewer{pin: pin, ttl: ttl, clock: r.opts.Clock, cancel: cancel, done: make(chan struct{}), lost: make(chan struct{})}
	go func() {
		defer close(n.done)
		n.run(ctx)
	}()
	return n
}

// run returns when ctx ends, or when the pin is lost.
func (n *renewer) run(ctx context.Context) {
	for ctx.Err() == nil {
		// guard:pin-late. A pin that was not renewed for its time to live counts as lost for its
		// holder, even if nobody has said so.
		//
		//mutant:replace n.pin.Held().Add(n.ttl).Sub(n.clock.Now()) => 24*time.Hour
		late := n.clock.AfterFunc(n.pin.Held().Add(n.ttl).Sub(n.clock.Now()), func() {
			n.lose(nil)
		})
		n.renewOnce(ctx)
		late.Stop()
	}
}

// renewOnce tries until a renewal is confirmed.
func (n *renewer) renewOnce(ctx context.Context) {
	for pause := n.ttl / 3; clock.Sleep(ctx, n.clock, pause) == nil; pause = n.ttl / 12 {
		attempt, cancel := clock.WithTimeout(ctx, n.clock, n.ttl/3, context.DeadlineExceeded)
		err := n.pin.Renew(attempt)
		cancel()
		if errors.Is(err, ErrPinLost) {
			n.lose(err)
		}
		n.mu.Lock()
		n.failed = err
		n.mu.Unlock()
		if err == nil {
			return
		}
	}
}

// lose notes that the pin is lost, unless it was released or that was noted before. An
// err of nil means that its TTL has passed.
func (n *renewer) lose(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.released || n.err != nil {
		return
	}
	if err == nil {
		err = fmt.Errorf("%w: it could not be renewed for %v: %w", ErrPinLost, n.ttl, cmp.Or(n.failed, errUnanswered))
	}
	n.err = fmt.Errorf("reader: the snapshot of version %d: %w", n.pin.Version(), err)
	close(n.lost)
	n.cancel()
}

// Err returns why the pin is lost, or nil.
func (n *renewer) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// over reports whether the pin was released.
func (n *renewer) over() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.released
}

// release deletes the pin, also one that is lost: perhaps only the answers were.
func (n *renewer) release(ctx context.Context) error {
	n.mu.Lock()
	n.released = true
	n.mu.Unlock()
	n.cancel()
	<-n.done
	return n.pin.Release(ctx)
}
