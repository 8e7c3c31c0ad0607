package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// Compactor compacts one log. It is safe for concurrent use.
type Compactor struct {
	st   store.Store
	opts Options

	pacer            *pacer
	manifests, holds sightings

	mu   sync.Mutex
	last *epoch
}

// epoch is what calls with one token have in common.
type epoch struct {
	token   fence.Token
	log     *state.Log
	updater *state.Updater
}

// New returns a compactor of the log in st. It does no I/O. Its errors say which of the
// options is wrong; one of the elections' is leader.ErrOptions.
func New(st store.Store, opts *Options) (*Compactor, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := o.checkElection(st); err != nil {
		return nil, err
	}
	return &Compactor{st: st, opts: o, pacer: newPacer(&o)}, nil
}

// Report says what a compactor did.
type Report struct {
	// Folded objects of the chain, their records and bytes.
	Folded, Records, Bytes uint64
	// Edits of the table among them.
	Edits int
	// Segments written by folding, and Merged into others.
	Segments, Merged int
	// Floor is where the unfolded chain begins now.
	Floor frame.Point
	// Truncated is the offset before which [Retain] has given up the records; 0 if it
	// has given up none this time.
	Truncated uint64
	// Pruned counts deleted objects by kind: "data", "manifest", "segment", "list",
	// "file", "orphan", "pin", "tmp", "lock", and "upload" for what was broken off.
	Pruned map[string]int
	// PrunedKeys are some of them, at most 8 of each kind, for people; not of
	// locks and uploads.
	PrunedKeys map[string][]string
}

func (r *Report) count(kind string, n int) {
	if n == 0 {
		return
	}
	if r.Pruned == nil {
		r.Pruned, r.PrunedKeys = map[string]int{}, map[string][]string{}
	}
	r.Pruned[kind] += n
}

func (r *Report) pruned(kind string, keys []string) {
	if len(keys) == 0 {
		return
	}
	r.count(kind, len(keys))
	if room := 8 - len(r.PrunedKeys[kind]); room > 0 {
		r.PrunedKeys[kind] = append(r.PrunedKeys[kind], slices.Clone(keys[:min(room, len(keys))])...)
	}
}

// So many bytes are fetched ahead, of large objects of the log and of segments. Besides
// them an upload holds five parts, of 8 MiB on S3.
const (
	objectBytes  = 10 << 20
	segmentBytes = 8 << 20
)

// pass is the work of one epoch.
type pass struct {
	*Compactor
	*pacer
	log     *state.Log
	chain   chain.Source
	segs    segment.Source
	updater *state.Updater
	token   fence.Token
	report  Report

	waiting waiting
	tidy    func(context.Context) error // what follows folding and merging: prune or upkeep
	tidied  clock.Instant               // when upkeep last did something
	upkept  bool                        // whether it ever did
}

func (c *Compactor) begin(ctx context.Context, token fence.Token) (*pass, error) {
	e, err := c.epoch(ctx, token)
	if err != nil {
		return nil, err
	}
	log, u := e.log, e.updater
	f := log.Format()
	p := &pass{
		Compactor: c, pacer: c.pacer, log: log, updater: u, token: token,
		chain: chain.Source{Store: c.st, Log: f.Log, Limits: f.Limits.Limits, Settle: c.opts.Settle, Ahead: c.opts.Parallel, Budget: objectBytes},
		segs:  segment.Source{Store: c.st, Log: f.Log, Limits: f.Limits.Limits, Settle: c.opts.Settle, Budget: segmentBytes},
	}
	p.chain.Keep = p.keeps
	p.tidy = p.prune
	return p, nil
}

// epoch returns that of the token.
func (c *Compactor) epoch(ctx context.Context, token fence.Token) (*epoch, error) {
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	// guard:same-updater. It knows of the update that was under way when an earlier call
	// was stopped: one that lands during this call is this compactor's own.
	//
	//mutant:replace last != nil && last.token == token => false
	if last != nil && last.token == token {
		return last, nil
	}
	log, err := state.Open(ctx, c.st, &state.Options{Settle: c.opts.Settle, Clock: c.opts.Clock})
	if err != nil {
		return nil, err
	}
	u, err := log.Updater(layout.Compactor, token)
	if err != nil {
		return nil, fmt.Errorf("compactor: %w", err)
	}
	e := &epoch{token: token, log: log, updater: u}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = e
	return e, nil
}

// Once folds everything there was when it began, merges and prunes, as the
// compactor of the token's epoch, and returns when there is nothing left to do. The epoch comes
// from an election or from anything else that counts upwards; the same token may
// be used again by the same process, one call at a time.
//
// It may be stopped at any time; what is left behind is removed later. Errors:
// [ErrFenced]; fence.ErrCorrupt if the log is damaged, which it leaves as it is;
// fence.ErrLimit if the manifest becomes too large; those of state.Open.
func (c *Compactor) Once(ctx context.Context, token fence.Token) (Report, error) {
	p, err := c.begin(ctx, token)
	if err != nil {
		return Report{}, err
	}
	return p.report, why(ctx, p.run(ctx, 1))
}

// why says what ended ctx, where an error says only that it ended.
func why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// run does all there is to do, if at least minObjects wait to be folded.
func (p *pass) run(ctx context.Context, minObjects int) error {
	m, err := p.newest(ctx)
	if err != nil {
		return err
	}
	// guard:orphan-epoch. A new holder publishes its epoch before it does anything:
	// from then on the one before is fenced, and what it uploaded and never named
	// can be told from what is still to be named.
	if m.Roles[layout.Compactor].Epoch < p.token.Epoch() {
		if m, err = p.updater.Update(ctx, func(*state.Change) error { return nil }); err != nil {
			return err
		}
	}
	p.report.Floor = m.Floor
	fold := func(ctx context.Context, m *state.Manifest) (*state.Manifest, bool, error) {
		return p.fold(ctx, m, minObjects)
	}
	for more := true; more; {
		if m, more, err = p.afresh(ctx, m, fold); err != nil {
			return err
		}
		for merged := true; merged; {
			if m, merged, err = p.afresh(ctx, m, p.merge); err != nil {
				return err
			}
		}
		// Also between two segments: whoever cannot keep up with the writer must still
		// get rid of what is folded.
		if err := p.tidy(ctx); err != nil {
			return err
		}
	}
	if r := p.report; r.Folded > 0 || r.Truncated > 0 || len(r.Pruned) > 0 {
		p.opts.Logger.Info("compacted", zap.Uint64("folded", r.Folded), zap.Int("segments", r.Segments),
			zap.Int("merged", r.Merged), zap.Any("pruned", r.Pruned), zap.Stringer("floor", r.Floor.Position))
	}
	return nil
}

// step does a piece of work on a manifest, returns the newest that it has come to
// know, and tells whether there may be more.
type step func(ctx context.Context, m *state.Manifest) (newest *state.Manifest, more bool, err error)

// afresh takes a step again if it was void: somebody has moved the floor or
// replaced segments under it. That was an update of our own whose outcome was
// unknown, or another compactor, and then the newest manifest says that we are
// fenced.
func (p *pass) afresh(ctx context.Context, m *state.Manifest, take step) (*state.Manifest, bool, error) {
	for {
		newest, more, err := take(ctx, m)
		if !errors.Is(err, state.ErrVoid) {
			return newest, more, err
		}
		if m, err = p.newest(ctx); err != nil {
			return nil, false, err
		}
	}
}

// newest reads the newest manifest, and tells whether somebody else compacts now.
// What we might do all the same would be harmless, and in vain.
func (p *pass) newest(ctx context.Context) (*state.Manifest, error) {
	m, err := p.log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	if r := m.Roles[layout.Compactor]; r.Epoch > p.token.Epoch() {
		return nil, &fence.FencedError{Role: string(layout.Compactor), Epoch: p.token.Epoch(), By: r.Epoch}
	}
	return m, nil
}

func (p *pass) progress() {
	if p.opts.Progress != nil {
		p.opts.Progress(p.report)
	}
}
