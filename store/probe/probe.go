package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Run probes st. It returns nil if the store kept every promise, and an [*Error] if it broke
// one. Any other error kept Run from finding out: see the package comment. The report is
// never nil; after an error it tells how far the probe got.
//
// Run sends about three thousand requests and two uploads; if the store answers within 50 µs, many
// more for half a second. It deletes what it wrote.
func Run(ctx context.Context, st store.Store, opts *Options) (*Report, error) {
	if store.IsNil(st) {
		return &Report{Kept: []string{}}, errors.New("probe: the store is nil")
	}
	o := opts.withDefaults()
	p := &prober{
		opts:   o,
		start:  o.Clock.Now(),
		settle: &store.SettleOptions{Attempt: o.Attempt, Reads: 10, Clock: o.Clock},
		report: &Report{Store: st.Traits().Name, At: o.Clock.Wall().UTC(), Version: Version, Kept: []string{}, Clients: o.Clients},
		spans:  map[string][]time.Duration{},
		keys:   map[string]bool{},
		wrote:  map[string]clock.Instant{},
		final:  map[string][]byte{},
		stale:  map[string]store.Version{},
	}
	p.rewrite = st.Traits().MinRewrite
	if err := opts.Validate(); err != nil {
		return p.report, err
	}
	closeAll, err := p.open(ctx, st)
	defer closeAll()
	if err == nil {
		err = p.run(ctx)
	}
	p.cleanUp(ctx)
	p.report.Put, p.report.Get, p.report.List = latency(p.spans["put"]), latency(p.spans["get"]), latency(p.spans["list"])
	return p.report, err
}

type prober struct {
	opts    Options
	start   clock.Instant
	settle  *store.SettleOptions
	clients []store.Store

	mu     sync.Mutex // guards what racers write: report.Unknown and spans
	report *Report
	spans  map[string][]time.Duration

	keys map[string]bool // all keys that may exist
	// wrote is when each key was written last, rewrite how soon it may be written again.
	wrote   map[string]clock.Instant
	rewrite time.Duration
	// final is what each key must hold at the end, where a late write or a stale cache
	// would show. Nil means no object.
	final map[string][]byte
	// entries is how many objects the last listing had, with those of others.
	entries int
	// stale is a version that a key had before.
	stale map[string]store.Version
}

func (p *prober) open(ctx context.Context, st store.Store) (closeAll func(), err error) {
	p.clients = []store.Store{st}
	closeAll = func() {
		for _, c := range p.clients[1:] {
			if c, ok := c.(io.Closer); ok && p.opts.Open != nil {
				_ = c.Close()
			}
		}
	}
	for len(p.clients) < p.opts.Clients {
		c := st
		if p.opts.Open != nil {
			if c, err = p.opts.Open(ctx); err != nil {
				return closeAll, fmt.Errorf("probe: opening client %d: %w", len(p.clients)+1, err)
			}
		}
		p.clients = append(p.clients, c)
	}
	return closeAll, nil
}

func (p *prober) run(ctx context.Context) error {
	for _, step := range []struct {
		promises []string
		test     func(context.Context) error
	}{
		{[]string{Create}, p.create},
		{[]string{Swap, SwapMissing, OneVersion}, p.swap},
		{[]string{Ranges}, p.ranges},
		{[]string{ReadWrite, ListWrite}, p.consistency},
		{[]string{CreateAtomic}, p.raceCreators},
		{[]string{SwapAtomic}, p.raceSwappers},
		{nil, p.chases},
		{nil, p.refusals},
		{[]string{Pages}, p.listings},
		{[]string{Uploads}, p.upload},
		{[]string{Stays}, p.again},
	} {
		if err := step.test(ctx); err != nil {
			if broken := (*Error)(nil); errors.As(err, &broken) {
				// A later test can refute what an earlier one has shown.
				p.report.Kept = slices.DeleteFunc(p.report.Kept, func(kept string) bool { return kept == broken.Promise })
			}
			return err
		}
		p.report.Kept = append(p.report.Kept, step.promises...)
	}
	return nil
}

// cleanUp deletes everything that was written, even if ctx has ended.
func (p *prober) cleanUp(ctx context.Context) {
	ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), p.opts.Clock, time.Minute, errCleanUp)
	defer cancel()
	if p.rewrite > 0 {
		_ = clock.Sleep(ctx, p.opts.Clock, p.rewrite) // before the last key can be deleted
	}
	for keys := range slices.Chunk(slices.Collect(maps.Keys(p.keys)), 500) {
		if err := store.DeleteAll(ctx, p.clients[0], keys, p.settle); err != nil {
			p.report.Leftover += len(keys)
		}
	}
}

var errCleanUp = errors.New("probe: no time left to delete what was written")

// tmpPrefix is layout.TmpPrefix. Stores know nothing of logs, so it is written again here.
const tmpPrefix = "tmp/"

// key returns a new key, which is deleted at the end.
func (p *prober) key() string {
	key := tmpPrefix + uuid.NewString()
	p.keys[key] = true
	return key
}

// mutate makes one request that writes or deletes a key.
//
// guard:probe-pace. Between two writes of one key the probe waits for Traits.MinRewrite.
func (p *prober) mutate(ctx context.Context, key string, f func() error) error {
	if last, ok := p.wrote[key]; ok {
		//mutant:replace p.rewrite - p => 0*p.rewrite - p
		if wait := p.rewrite - p.opts.Clock.Now().Sub(last); wait > 0 {
			if err := clock.Sleep(ctx, p.opts.Clock, wait); err != nil {
				return err
			}
		}
	}
	defer func() { p.wrote[key] = p.opts.Clock.Now() }()
	return f()
}

// body returns bytes that were never written before.
func body(what string) []byte {
	return fmt.Appendf(nil, "fencepost probe: %s %s\n", what, uuid.NewString())
}

// client returns the n-th client, counted around.
func (p *prober) client(n int) store.Store { return p.clients[n%len(p.clients)] }

// timed runs one request, and records how long it took if it was answered. Races are an op
// of their own, since their times are no latency.
func (p *prober) timed(op string, f func() error) error {
	start := p.opts.Clock.Now()
	err := f()
	span := p.opts.Clock.Now().Sub(start)
	p.mu.Lock()
	defer p.mu.Unlock()
	if (op == "put" || op == "race") && store.OutcomeOf(err) == store.Unknown {
		p.report.Unknown++
	} else {
		p.spans[op] = append(p.spans[op], span)
	}
	return err
}

// put sends the same bytes to the same key until the store answers "applied" or "refused".
// It does not settle the outcome as store.Create does, because the answer itself is to be
// tested. A refusal may be the echo of a request that was applied, so the caller reads the
// key.
func (p *prober) put(ctx context.Context, promise string, st store.Store, key string, body []byte, cond store.Condition) (store.Outcome, store.Info, error) {
	var outcome store.Outcome
	var info store.Info
	err := store.Retry(ctx, p.settle, func(ctx context.Context) error {
		err := p.mutate(ctx, key, func() error {
			return p.timed("put", func() (err error) {
				info, err = st.Put(ctx, key, body, &store.PutOptions{If: cond})
				return err
			})
		})
		if outcome = store.OutcomeOf(err); outcome == store.Refused {
			return nil
		}
		return err
	})
	if err != nil {
		return outcome, info, p.failure(promise, "writing "+key+" ("+cond.String()+")", err)
	}
	return outcome, info, nil
}

// failure returns a refusal if the store cannot do what is asked, and else its error.
func (p *prober) failure(promise, what string, err error) error {
	if errors.Is(err, store.ErrUnsupported) {
		return p.refuse(promise, hintConditions, err, "%s is not supported", what)
	}
	return failed(what, err)
}

// get reads a whole object. The body is nil if there is none.
func (p *prober) get(ctx context.Context, st store.Store, key string) ([]byte, store.Info, error) {
	var b []byte
	var info store.Info
	err := p.timed("get", func() (err error) {
		b, info, err = store.Read(ctx, st, key, &store.ReadOptions{Limit: 1 << 20, Settle: p.settle})
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, store.Info{}, nil
	case errors.Is(err, store.ErrTooLarge):
		return []byte("something larger than anything that was written"), info, nil
	case err != nil:
		return nil, info, failed("reading "+key, err)
	}
	if b == nil {
		b = []byte{}
	}
	return b, info, nil
}

func (p *prober) refuse(promise, hint string, err error, format string, args ...any) error {
	return &Error{Store: p.report.Store, Promise: promise, Observed: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}

// list returns the objects of this probe that the store lists. There may be any number of
// others below tmp/.
func (p *prober) list(ctx context.Context, st store.Store) (map[string]store.Info, error) {
	found := map[string]store.Info{}
	err := p.timed("list", func() error {
		p.entries = 0
		for info, err := range store.ListAll(ctx, st, tmpPrefix, nil, p.settle) {
			if err != nil {
				return err
			}
			p.entries++
			if p.keys[info.Key] {
				found[info.Key] = info
			}
		}
		return nil
	})
	if err != nil {
		return nil, failed("listing tmp/", err)
	}
	for key, want := range p.final {
		if want == nil {
			continue
		}
		if _, ok := found[key]; !ok {
			return nil, p.refuse(ListWrite, hintConsistent, nil, "an object that was there all the while is missing from a listing, after listings have shown %d", p.report.Listed)
		}
		p.report.Listed++
	}
	return found, nil
}

// elapsed returns how long the probe has been running.
func (p *prober) elapsed() time.Duration { return p.opts.Clock.Now().Sub(p.start) }
