package compactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// Compactor compacts one log. It is safe for concurrent use, but with [Options.Token]
// one call at a time may change the log.
type Compactor struct {
	st    store.Store // counts requests for the pacer
	plain store.Store // the same; for elections, and for what not every store can do
	opts  Options     // with defaults
	pacer *pacer
	// outage logs that the store does not answer. What fails meanwhile needs no line.
	outage *outage.Log
	// When this process first saw each manifest and each pin, for stores that do not tell
	// how old an object is.
	manifests, pinned sightings

	campaigned atomic.Bool // only the first campaign may reclaim the lock

	mu  sync.Mutex
	own *epoch // of Options.Token; nil before the first call
}

// epoch is what all calls with one token share.
type epoch struct {
	token   fence.Token
	log     *state.Log
	updater *state.Updater
}

// New returns a compactor of the log in st. It does no I/O. Its errors are [ErrOptions];
// one about Options.Leader, or about an election that cannot be held in st, is
// leader.ErrOptions too.
func New(st store.Store, opts *Options) (*Compactor, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c := &Compactor{plain: st, opts: opts.withDefaults()}
	c.pacer = newPacer(&c.opts)
	c.st = &counted{st, c.pacer}
	settle := *cmp.Or(c.opts.Settle, &store.SettleOptions{})
	c.outage = outage.New(c.opts.Logger, st, c.opts.Clock)
	if settle.Retrying == nil {
		settle.Retrying = c.outage.Failed
		c.opts.Settle = &settle
	}
	if err := c.checkElection(); err != nil {
		return nil, err
	}
	return c, nil
}

// Once folds all objects that there were when it began, merges, prunes, and returns what
// it did. Without [Options.Token] it first waits until this process is the compactor.
//
// It may be stopped at any time: a later call removes what it leaves behind. Errors:
// [ErrFenced]; fence.ErrCorrupt if the log is damaged, which changes nothing;
// fence.ErrLimit if the manifest becomes too large; manifest.ErrNotInitialized;
// manifest.ErrFiles; manifest.ErrBackup; those of the store and of the election.
func (c *Compactor) Once(ctx context.Context) (Report, error) {
	var report Report
	err := c.inEpoch(ctx, func(ctx context.Context, p *pass) error {
		err := p.run(ctx, 1)
		report = p.report
		return err
	})
	return report, failed(ctx, err)
}

// Truncate gives up the records before an offset for good: no reader that opens later
// sees them. Later passes delete the segments that hold no others, after the grace
// period and when no pin holds them. An offset before the first record changes nothing.
// Only folded records can be given up. Errors: as of [Compactor.Once].
func (c *Compactor) Truncate(ctx context.Context, before uint64) error {
	return failed(ctx, c.inEpoch(ctx, func(ctx context.Context, p *pass) error {
		_, err := p.updater.Update(ctx, func(m *state.Change) error { return m.Truncate(before) })
		return err
	}))
}

// inEpoch calls work with a pass of Options.Token's epoch, or of an epoch that this
// process wins.
func (c *Compactor) inEpoch(ctx context.Context, work func(context.Context, *pass) error) error {
	if !c.opts.Token.Valid() {
		return c.elected(ctx, work)
	}
	e, err := c.ownEpoch(ctx)
	if err != nil {
		return err
	}
	return work(ctx, c.pass(e))
}

// ownEpoch returns the epoch of Options.Token.
func (c *Compactor) ownEpoch(ctx context.Context) (*epoch, error) {
	c.mu.Lock()
	own := c.own
	c.mu.Unlock()
	// guard:same-updater. All calls of a Compactor that was given a token share one updater, which
	// numbers its updates.
	//
	//mutant:replace own != nil => false
	if own != nil {
		return own, nil
	}
	done, err := c.opts.Budget.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := c.pacer.pace(ctx, 0); err != nil {
		return nil, err
	}
	log, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	e, err := newEpoch(log, c.opts.Token)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = e
	return e, nil
}

func newEpoch(log *state.Log, token fence.Token) (*epoch, error) {
	u, err := log.Updater(layout.Compactor, token)
	return &epoch{token: token, log: log, updater: u}, err
}

func (c *Compactor) open(ctx context.Context) (*state.Log, error) {
	log, err := state.Open(ctx, c.st, &state.Options{Files: c.opts.Files, Settle: c.opts.Settle, Clock: c.opts.Clock})
	if err == nil {
		err = log.Writable() // before an election leaves its lock there
	}
	return log, err
}

// failed completes an error for the caller: with the cause for which ctx has ended, and
// with the name of this package.
func failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("compactor: %w", err)
}
