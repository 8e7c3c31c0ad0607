package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// PinOptions describe a pin. It needs a TTL or a Name.
type PinOptions struct {
	// Version is the one to hold, 0 the newest.
	Version uint64
	// Name is for people, and for [Log.Unpin]: "backup-2026-11". Several pins may
	// have it.
	Name string
	// Holder says who holds it, for people; by default host name and process id.
	Holder string
	// TTL is for how long the pin holds without being renewed, at least
	// [MinPinTTL]. 0 means until [Log.Unpin].
	TTL time.Duration
}

const (
	// unsettledTTL is the time to live of a pin whose creation has not been confirmed.
	unsettledTTL = time.Minute
	// letGoTime bounds the removal of a pin that was not taken after all.
	letGoTime = 10 * time.Second
	// maxPin bounds the object of a pin.
	maxPin = 64 << 10
	// pinTries bounds how often the newest version is pruned before it is pinned.
	pinTries = 16
)

// pinDoc is the object of a pin.
type pinDoc struct {
	Format int      `json:"format"`
	Log    fence.ID `json:"log"`
	// Nonce is fresh with every write, so that no two states have one version.
	Nonce    fence.ID          `json:"nonce"`
	Version  uint64            `json:"version"`
	Name     string            `json:"name,omitempty"`
	Holder   string            `json:"holder"`
	TTL      manifest.Duration `json:"ttl,omitempty"`
	Created  time.Time         `json:"created"`
	Renewed  time.Time         `json:"renewed"`
	Renewals uint64            `json:"renewals"`
	Expired  bool              `json:"expired"`
	Reason   string            `json:"reason,omitempty"`
}

// Pin holds one version of the manifest: while it is there, that version and
// everything that it names stays in the store. Its holder calls Renew well within
// its TTL, each third of it for example, and stops relying on it when that fails.
// It is safe for concurrent use.
type Pin struct {
	log *Log
	key string
	m   *Manifest

	turn chan struct{} // held by who writes the object, never with a mutex
	doc  pinDoc        // guarded by turn
	at   store.Version // likewise
	// next is a renewal whose outcome is unknown, and since when; guarded by turn.
	next *pinDoc
	sent clock.Instant

	mu   sync.Mutex
	lost error
	held clock.Instant
}

// Pin holds a version of the manifest. Errors: [ErrGone] if that version is not
// promised any more. If ctx ends first it takes up to ten seconds more to remove
// what it has made.
func (l *Log) Pin(ctx context.Context, opts *PinOptions) (*Pin, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	version := o.Version
	var lost error
	for range pinTries {
		if o.Version == 0 {
			m, err := l.Newest(ctx)
			if err != nil {
				return nil, err
			}
			version = m.Version
		}
		p, err := l.pin(ctx, version, o)
		if !errors.Is(err, ErrGone) && !errors.Is(err, manifest.ErrPinLost) || errors.Is(err, ErrGone) && o.Version != 0 {
			return p, err
		}
		lost = err
	}
	if errors.Is(lost, manifest.ErrPinLost) {
		return nil, fmt.Errorf("manifest: %d pins in a row were not confirmed: %w", pinTries, lost)
	}
	return nil, fmt.Errorf("%w: %d times the newest manifest was pruned before it could be pinned; is the grace period of %v too short for this store?",
		ErrGone, pinTries, time.Duration(l.format.Grace))
}

func (o *PinOptions) withDefaults() (PinOptions, error) {
	var v PinOptions
	if o != nil {
		v = *o
	}
	switch {
	case v.TTL == 0 && v.Name == "":
		return v, errors.New("manifest: a pin needs a TTL, or a Name by which it can be removed")
	case v.TTL != 0 && v.TTL < manifest.MinPinTTL:
		return v, fmt.Errorf("manifest: a pin of %v is too short: at least %v are possible", v.TTL, manifest.MinPinTTL)
	case len(v.Name)+len(v.Holder) > maxPin/8:
		return v, fmt.Errorf("manifest: name and holder of a pin have %d bytes; at most %d are possible", len(v.Name)+len(v.Holder), maxPin/8)
	}
	if v.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		v.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	return v, nil
}

// pin creates the pin and finds out whether it came in time.
func (l *Log) pin(ctx context.Context, version uint64, o PinOptions) (_ *Pin, err error) {
	now := l.opts.Clock.Wall().UTC().Truncate(time.Millisecond)
	p := &Pin{log: l, key: layout.PinKey(uuid.NewString()), turn: make(chan struct{}, 1), doc: pinDoc{
		Format: document.Format, Log: l.format.Log, Nonce: fence.ID(uuid.New()),
		Version: version, Name: o.Name, Holder: o.Holder, TTL: manifest.Duration(o.TTL), Created: now, Renewed: now,
	}}
	body, err := p.doc.encode()
	if err != nil {
		return nil, err
	}
	// guard:pin-let-go. Nobody else knows it, and one without a TTL would hold for ever.
	// Also if ctx has ended: the creation, or the swap, may have been applied. A creation
	// that lands behind this lapses (pin-unsettled), a swap is refused.
	//
	//mutant:replace err != nil { => false {
	defer func() {
		if err != nil {
			ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), l.opts.Clock, letGoTime, context.DeadlineExceeded)
			defer cancel()
			err = errors.Join(err, p.delete(ctx))
		}
	}()
	info, err := store.Create(ctx, l.st, p.key, body, &store.WriteOptions{Settle: l.opts.Settle})
	// guard:pin-taken. Nobody else makes an object of this name. The answer was so long
	// on its way that a compactor has taken the pin away meanwhile: another one will do.
	//
	//mutant:replace errors.Is(err, store.ErrPrecondition) => false
	if errors.Is(err, store.ErrPrecondition) {
		return nil, fmt.Errorf("%w: %s was not renewed in time: its creation was not answered for so long", manifest.ErrPinLost, p.key)
	}
	if err != nil {
		return nil, err
	}
	p.at = info.Version
	// guard:pin-swap. A late duplicate of the create, landing after the pin was taken
	// away and deleted, would bring back the version that the first renewal expects;
	// what the pin held would be gone by then.
	//
	//mutant:replace p.settle(ctx) => error(nil)
	if err := p.settle(ctx); err != nil {
		return nil, err
	}
	// guard:pin-after-mark. The mark is read after the pin is there, and a pruner
	// lists the pins after it has published its mark: either it sees this pin, or its
	// mark is seen here.
	//
	//mutant:replace l.Newest(ctx) => l.seen().m, error(nil)
	newest, err := l.Newest(ctx)
	if err != nil {
		return nil, err
	}
	if newest.PruneMark > 0 && version <= newest.PruneMark || version > newest.Version {
		return nil, fmt.Errorf("%w: manifest %d is not promised: what it names may have been deleted, or it never was; versions from %d to %d can be pinned",
			ErrGone, version, newest.PruneMark+1, newest.Version)
	}
	p.m = newest
	if version != newest.Version {
		if p.m, err = l.Promised(ctx, version); err != nil {
			return nil, err
		}
	}
	// guard:pin-after-start. The same for what was appended behind the floor of this
	// version: a compactor that has not seen this pin lets go of it once it is given up.
	// Of an older version it may be gone already; who asks for that has no more.
	if o.Version == 0 && newest.Start > p.m.Floor.Offset {
		return nil, fmt.Errorf("%w: records behind the floor of manifest %d have been given up", ErrGone, version)
	}
	return p, nil
}

// settle swaps the new pin once.
func (p *Pin) settle(ctx context.Context) error {
	// A store that limits rewrites of a key would turn it away, and a swap that is
	// tried again is not clean.
	if err := clock.Sleep(ctx, p.log.opts.Clock, p.log.st.Traits().MinRewrite); err != nil {
		return err
	}
	clean, err := p.renew(ctx)
	// guard:pin-clean. A copy of the swap may be under way as well, and land on top
	// of the create's. Another pin will do; a second swap would not: whoever finds this
	// one taken away after the first may delete it at once (pin-stillborn).
	if err == nil && !clean {
		return fmt.Errorf("%w: the request that confirms %s was not answered at the first attempt", manifest.ErrPinLost, p.key)
	}
	return err
}

// Promised reads a version that is above the prune mark, or pinned: [Log.At], and 0 is
// the state before the first, of which nothing was ever pruned while there is no mark.
func (l *Log) Promised(ctx context.Context, version uint64) (*Manifest, error) {
	if version == 0 {
		return l.initial(), nil
	}
	m, _, err := l.At(ctx, version)
	return m, err
}

// Manifest returns the version that is held.
func (p *Pin) Manifest() *Manifest { return p.m }

// Version returns the number of the version that is held.
func (p *Pin) Version() uint64 { return p.m.Version }

// Description returns what the pin's object says. It waits for a renewal in flight.
func (p *Pin) Description() manifest.Pin {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	return p.doc.describe(p.key)
}

// Renew tells pruners that the pin is still needed: one PUT. [ErrPinLost] is
// final: the pin was taken away, and what it held may be gone. After any other error it may be tried
// again.
func (p *Pin) Renew(ctx context.Context) error {
	_, err := p.renew(ctx)
	return err
}

// renew also tells whether it was clean; see store.SwapClean.
func (p *Pin) renew(ctx context.Context) (clean bool, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if err := p.Err(); err != nil {
		return false, err
	}
	// guard:pin-resend. As with any write: a renewal whose outcome is unknown may have
	// been applied, and other bytes would then be refused, as if somebody had taken the
	// pin away. The same are sent again until it is settled.
	//
	//mutant:replace fresh { => true {
	fresh := p.next == nil
	if fresh {
		next := p.doc
		next.Nonce = fence.ID(uuid.New())
		next.Renewed, next.Renewals = p.log.opts.Clock.Wall().UTC().Truncate(time.Millisecond), p.doc.Renewals+1
		p.next, p.sent = &next, p.log.opts.Clock.Now()
	}
	body, err := p.next.encode()
	if err != nil {
		return false, err
	}
	// guard:pin-renew. On its own version only: whoever takes the pin away swaps it
	// first.
	//
	//mutant:replace info, clean, err := store.SwapClean(ctx, p.log.st, p.key, body, p.at, &store.WriteOptions{Settle: p.log.opts.Settle}) => info, err := p.log.st.Put(ctx, p.key, body, nil)
	info, clean, err := store.SwapClean(ctx, p.log.st, p.key, body, p.at, &store.WriteOptions{Settle: p.log.opts.Settle})
	if conflict := (*store.ConflictError)(nil); errors.As(err, &conflict) {
		return false, p.lose(ctx)
	}
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	p.held = p.sent
	p.mu.Unlock()
	p.doc, p.at, p.next = *p.next, info.Version, nil
	return clean && fresh, nil
}

// Held returns the instant, on the log's clock, before the last renewal that is
// known to have been applied was sent. Until a TTL later nobody takes the pin away.
func (p *Pin) Held() clock.Instant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Err returns why the pin is lost, or nil as long as nobody has noticed.
func (p *Pin) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// lose finds out why the pin is lost.
func (p *Pin) lose(ctx context.Context) error {
	why := "it was deleted"
	if found, err := p.log.readPin(ctx, p.key); err == nil {
		why = "it was written by another: " + found.Holder
		if found.Expired {
			why = found.Reason
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = fmt.Errorf("%w: %s of manifest %d: %s; open the newest version, or pin for longer and renew more often", manifest.ErrPinLost, p.key, p.doc.Version, why)
	return p.lost
}

// Release gives the pin up. It may be called more than once.
func (p *Pin) Release(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.mu.Lock()
	if p.lost == nil {
		p.lost = fmt.Errorf("%w: it was released", manifest.ErrPinLost)
	}
	p.mu.Unlock()
	return p.delete(ctx)
}

// delete removes the object. Its name is never used again.
func (p *Pin) delete(ctx context.Context) error {
	return store.DeleteAll(ctx, p.log.st, []string{p.key}, p.log.opts.Settle)
}
