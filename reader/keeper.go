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

// keeper renews a pin until it is lost or released.
type keeper struct {
	pin   *state.Pin
	ttl   time.Duration
	clock clock.Clock

	cancel context.CancelFunc
	done   chan struct{} // closed when the renewing goroutine has ended
	lost   chan struct{}

	mu       sync.Mutex
	released bool
	failed   error // the last attempt to renew it
	err      error // why it is lost
}

var errUnanswered = errors.New("no renewal was answered")

// keep begins at once: what the pin holds may take longer to be read than its TTL.
func (r *Reader) keep(ctx context.Context, pin *state.Pin, ttl time.Duration) *keeper {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &keeper{pin: pin, ttl: ttl, clock: r.opts.Clock, cancel: cancel, done: make(chan struct{}), lost: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.renew(ctx)
	}()
	return k
}

// renew returns when ctx ends, or the pin is lost.
func (k *keeper) renew(ctx context.Context) {
	for ctx.Err() == nil {
		// guard:pin-late. Nobody has told us, but a compactor may take it away from then
		// on. A timer of its own says so, whatever a renewal waits for at that moment.
		//
		//mutant:replace k.pin.Held().Add(k.ttl).Sub(k.clock.Now()) => 24*time.Hour
		late := k.clock.AfterFunc(k.pin.Held().Add(k.ttl).Sub(k.clock.Now()), func() {
			k.lose(nil)
		})
		k.renewOnce(ctx)
		late.Stop()
	}
}

// renewOnce tries until a renewal is confirmed.
func (k *keeper) renewOnce(ctx context.Context) {
	for pause := k.ttl / 3; clock.Sleep(ctx, k.clock, pause) == nil; pause = k.ttl / 12 {
		attempt, cancel := clock.WithTimeout(ctx, k.clock, k.ttl/3, context.DeadlineExceeded)
		err := k.pin.Renew(attempt)
		cancel()
		if errors.Is(err, ErrPinLost) {
			k.lose(err)
		}
		k.mu.Lock()
		k.failed = err
		k.mu.Unlock()
		if err == nil {
			return
		}
	}
}

// lose says that the pin is lost, unless it was given up or that was said before. Nil:
// its time has passed.
func (k *keeper) lose(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.released || k.err != nil {
		return
	}
	if err == nil {
		err = fmt.Errorf("%w: it could not be renewed for %v: %w", ErrPinLost, k.ttl, cmp.Or(k.failed, errUnanswered))
	}
	k.err = fmt.Errorf("reader: the snapshot of version %d: %w", k.pin.Version(), err)
	close(k.lost)
	k.cancel()
}

func (k *keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// release gives the pin up, also one that is lost: perhaps only nobody answered.
func (k *keeper) release(ctx context.Context) error {
	k.mu.Lock()
	k.released = true
	k.mu.Unlock()
	k.cancel()
	<-k.done
	return k.pin.Release(ctx)
}
