package leader

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/store"
)

// Elector is one candidate in one election, or only an observer of it. It is safe
// for concurrent use, but campaigns for and holds one term at a time.
type Elector struct {
	files
	opts   Options
	config lease.Config
	busy   atomic.Bool

	campaigned atomic.Bool

	randMu sync.Mutex
	rand   *rand.Rand
}

// New returns an elector for the election whose locks are the objects
// <prefix>/<epoch>.json in st, as "lock/00000000000000000007.json" for the prefix
// "lock". It sends no request and starts no goroutine, so an elector that only
// reads costs nothing more; opts may be nil.
//
// Errors: [ErrOptions] with all faults, also for a prefix among the other names of logs and groups, such
// as data; store.ErrInvalid for a prefix that cannot
// be part of a key.
func New(st store.Store, prefix string, opts *Options) (*Elector, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	if err := store.CheckPrefix("elect", prefix); err != nil {
		return nil, err
	}
	traits := st.Traits()
	if what := layout.OwnedElection(prefix); what != "" {
		return nil, fmt.Errorf("%w: the prefix %s: the name %q belongs to logs, backups and groups, and locks there could destroy one; give the election another prefix, such as lock", ErrOptions, prefix, what)
	}
	o, err := opts.withDefaults(traits)
	if err != nil {
		return nil, err
	}
	e := &Elector{
		files: files{st: st, prefix: prefix, clock: o.Clock, timeout: o.RequestTimeout, logger: o.Logger, outage: outage.New(o.Logger, st, o.Clock)},
		opts:  o,
		rand:  rand.New(rand.NewPCG(seed(o.Identity))),
	}
	e.jitter = e.random
	e.config = o.machine(traits, e.random)
	return e, nil
}

// seed makes the jitter repeatable in a test that names its candidates. Each has another identity,
// so each has another jitter.
func seed(identity string) (uint64, uint64) {
	h := sha256.Sum256([]byte(identity))
	return binary.LittleEndian.Uint64(h[:]), binary.LittleEndian.Uint64(h[8:])
}

func (e *Elector) random() float64 {
	e.randMu.Lock()
	defer e.randMu.Unlock()
	return e.rand.Float64()
}

// candidacy configures one campaign.
func (e *Elector) candidacy() lease.Config {
	cfg := e.config
	// guard:reclaim-first. Only the first campaign of an elector deposes a lock of its own name at
	// once.
	//
	//mutant:replace && e.campaigned.CompareAndSwap(false, true) =>
	cfg.Reclaim = e.opts.Reclaim && e.campaigned.CompareAndSwap(false, true)
	return cfg
}

// Campaign waits until this elector leads. The term lasts until it is lost or
// [Term.Resign] ends it. If you drop a term without Resign, it goes on for as long
// as the process lives. ctx bounds only the wait; the term's context keeps its
// values.
//
// Campaign retries transient failures of the store. Errors: ctx's cause, with the last such
// failure while the store does not work; [ErrBusy];
// [ErrCorrupt] and [ErrFormat] if the newest lock cannot be read;
// [ErrInconsistent]; and permanent errors of the store, such as store.ErrDenied. If
// ctx ends when the lock is already created, Campaign takes up to two
// RequestTimeouts longer to release it.
func (e *Elector) Campaign(ctx context.Context) (*Term, error) {
	if !e.busy.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	won := false
	defer func() { // also if a hook panics or ends its goroutine
		if !won {
			e.busy.Store(false)
		}
	}()
	c := &campaign{Elector: e, machine: lease.NewCandidate(e.candidacy()), began: e.clock.Now(), follows: true}
	win, err := c.run(ctx, func(rec Record) bool {
		if rec.Epoch != 0 {
			c.log(rec)
			c.tell(rec)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	won = true // the end of the term sets busy to false
	t := c.lead(ctx, win)
	if ctx.Err() != nil {
		// Won, but the caller does not wait any more.
		free, cancel := clock.WithTimeout(context.WithoutCancel(ctx), e.clock, e.opts.RequestTimeout, errNoAnswer)
		defer cancel()
		_ = t.leave(free, 0)
		return nil, context.Cause(ctx)
	}
	return t, nil
}

// Run waits until this elector leads, runs work for one term, and releases the
// lock when work has returned, even by a panic. To lead again, call Run again.
//
// The context given to work is the term's. It is cancelled when the term is lost. When
// ctx is cancelled, or by [Term.Resign], the lock announces the end, and work's context
// is cancelled as soon as another candidate is close: at once if there is none, and after
// Options.Drain at the latest. Run always waits for work and only then releases the lock,
// so work must end soon after its context.
//
// Run returns
//
//   - nil if ctx was cancelled before this elector led, or if ctx or Resign ended the work and it returned
//     a cancellation. So nil does not say that the work is done: note that in work, where it matters;
//   - otherwise [Elector.Campaign]'s error, if this elector never led;
//   - a [TermError] if the term was lost during the work, joined with work's own
//     error if that says something else;
//   - otherwise work's error.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context, t *Term) error) (err error) {
	t, err := e.Campaign(ctx)
	if err != nil {
		// With an outage it could not have led.
		if _, down := errors.AsType[*outage.Error](err); ctx.Err() != nil && !down && errors.Is(err, context.Cause(ctx)) {
			return nil
		}
		return err
	}
	t.beginWork()
	unlink := context.AfterFunc(ctx, func() {
		t.leaving(e.opts.Drain, context.Cause(ctx))
	})
	// Deferred, so that the lock is also released if work panics or exits its goroutine.
	defer func() {
		unlink()
		over := t.over.Load()
		t.endWork()
		_ = t.leave(context.WithoutCancel(ctx), 0)
		err = verdict(ctx, over, err)
	}()
	return work(t.ctx, t)
}

// verdict is what Run returns when work returned err. over is nil if the term was
// not over then.
func verdict(ctx context.Context, over *TermError, err error) error {
	told := ctx.Err() != nil
	stopped := err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) || told && errors.Is(err, context.Cause(ctx))
	switch {
	case over.lost() && stopped:
		return over
	case over.lost():
		return fmt.Errorf("%w; the work: %w", over, err)
	case stopped && (told || over != nil):
		return nil //nolint:nilerr // the work was told to stop, and did
	}
	return err
}
