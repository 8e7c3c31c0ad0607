package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// PinOptions describe a pin. It needs a TTL or a Name.
type PinOptions struct {
	// Version is the one to hold, 0 the newest.
	Version uint64
	// Name is for people, and for [Log.Unpin]: "backup-2026-11". Several pins may have the
	// same one.
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
	TTL      document.Duration `json:"ttl,omitempty"`
	Created  time.Time         `json:"created"`
	Renewed  time.Time         `json:"renewed"`
	Renewals uint64            `json:"renewals"`
	Expired  bool              `json:"expired"`
	Reason   string            `json:"reason,omitempty"`
}

// Pin holds one version of the manifest: while the pin is in the store, that version and
// everything that it names stay there too. The holder calls Renew well within the TTL,
// for example each third of it, and stops relying on the pin when that fails. A Pin is
// safe for concurrent use.
type Pin struct {
	log *Log
	key string
	m   *Manifest

	turn chan struct{} // held by whatever writes the object, never with a mutex
	doc  pinDoc        // guarded by turn
	at   store.Version // likewise
	// next is a renewal whose outcome is unknown, and sent is when it was first sent;
	// guarded by turn.
	next *pinDoc
	sent clock.Instant

	mu   sync.Mutex
	lost error
	held clock.Instant
}

// Pin makes a pin on a version of the manifest. The error is [ErrPruned] if that version
// is no longer promised. If ctx ends first, Pin takes up to ten seconds more to delete
// what it has made.
func (l *Log) Pin(ctx context.Context, opts *PinOptions) (*Pin, error) {
	o, err := opts.withDefaults()
	if err == nil {
		err = l.Writable()
	}
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
		if !errors.Is(err, ErrPruned) && !errors.Is(err, manifest.ErrPinLost) || errors.Is(err, ErrPruned) && o.Version != 0 {
			return p, err
		}
		lost = err
	}
	if errors.Is(lost, manifest.ErrPinLost) {
		return nil, fmt.Errorf("manifest: %d pins in a row were not confirmed: %w", pinTries, lost)
	}
	return nil, fmt.Errorf("%w: %d times the newest manifest was pruned before it could be pinned; is the grace period of %v too short for this store?",
		ErrPruned, pinTries, l.format.Grace)
}

func (o *PinOptions) withDefaults() (PinOptions, error) {
	v := *cmp.Or(o, &PinOptions{})
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

// PinAndRead pins a version that the caller knows, and returns the newest manifest too: the one that
// shows that the version is promised. So it costs two PUTs more than [Log.Newest]. Errors are those of
// [Log.Pin] for one version.
func (l *Log) PinAndRead(ctx context.Context, opts *PinOptions) (manifest.Pin, *Manifest, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return manifest.Pin{}, nil, err
	}
	var newest *Manifest
	p, err := l.claim(ctx, o.Version, o, func(p *Pin) (err error) {
		newest, err = p.prove(ctx)
		return err
	})
	if err != nil {
		return manifest.Pin{}, nil, err
	}
	return p.Description(), newest, nil
}

// pin creates a pin and checks that no compactor has pruned its version before.
func (l *Log) pin(ctx context.Context, version uint64, o PinOptions) (*Pin, error) {
	return l.claim(ctx, version, o, func(p *Pin) error {
		newest, err := p.prove(ctx)
		if err != nil {
			return err
		}
		p.m = newest
		if version != newest.Version {
			if p.m, err = l.Promised(ctx, version); err != nil {
				return err
			}
		}
		// guard:pin-after-start. A process that pins the newest version drops the pin if start, read
		// after the pin is in the store, is after the version's floor.
		if o.Version == 0 && newest.Start > p.m.Floor.Offset {
			return fmt.Errorf("%w: records after the floor of manifest %d have been given up", ErrPruned, version)
		}
		return nil
	})
}

// claim creates a pin and swaps it once, and then calls proved. After an error there is no pin.
func (l *Log) claim(ctx context.Context, version uint64, o PinOptions, proved func(*Pin) error) (_ *Pin, err error) {
	now := l.opts.Clock.Wall().UTC().Truncate(time.Millisecond)
	p := &Pin{log: l, key: layout.PinKey(uuid.NewString()), turn: make(chan struct{}, 1), doc: pinDoc{
		Format: document.Format, Log: l.format.Log, Nonce: fence.ID(uuid.New()),
		Version: version, Name: o.Name, Holder: o.Holder, TTL: document.Duration(o.TTL), Created: now, Renewed: now,
	}}
	body, err := p.doc.encode(p.key)
	if err != nil {
		return nil, err
	}
	// guard:pin-let-go. A process that creates a pin and then fails deletes the pin, also if its ctx
	// has ended: the create or the swap may have been applied.
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
	// guard:pin-taken. A refused create of a pin is reported as a lost pin, so the caller makes another
	// one.
	//
	//mutant:replace errors.Is(err, store.ErrPrecondition) => false
	if errors.Is(err, store.ErrPrecondition) {
		return nil, fmt.Errorf("%w: %s was not renewed in time: its creation was not answered for so long", manifest.ErrPinLost, p.key)
	}
	if err != nil {
		return nil, err
	}
	p.at = info.Version
	// guard:pin-swap. A new pin counts only after its holder has swapped it once.
	//
	//mutant:replace p.confirm(ctx) => error(nil)
	if err := p.confirm(ctx); err != nil {
		return nil, err
	}
	if err := proved(p); err != nil {
		return nil, err
	}
	return p, nil
}

// prove returns the newest manifest, which shows that the version of the new pin is promised.
func (p *Pin) prove(ctx context.Context) (*Manifest, error) {
	// guard:pin-after-mark. A process reads the prune mark after its pin is in the store; a compactor
	// lists the pins after it has published its mark.
	//
	//mutant:replace p.log.Newest(ctx) => p.log.seen().m, error(nil)
	newest, err := p.log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	if version := p.doc.Version; newest.PruneMark > 0 && version <= newest.PruneMark || version > newest.Version {
		return nil, fmt.Errorf("%w: manifest %d is not promised: what it names may have been deleted, or it never was; versions from %d to %d can be pinned",
			ErrPruned, version, newest.PruneMark+1, newest.Version)
	}
	return newest, nil
}

// confirm swaps the new pin once.
func (p *Pin) confirm(ctx context.Context) error {
	// A store that limits rewrites of a key would reject the swap, and a swap that is
	// retried is not clean.
	if err := clock.Sleep(ctx, p.log.opts.Clock, p.log.st.Traits().MinRewrite); err != nil {
		return err
	}
	clean, err := p.renew(ctx)
	// guard:pin-clean. A new pin counts only if its first swap was sent once and answered; if not, the
	// process makes another pin.
	if err == nil && !clean {
		return fmt.Errorf("%w: the request that confirms %s was not answered at the first attempt", manifest.ErrPinLost, p.key)
	}
	return err
}

// Promised reads a version that is above the prune mark, or pinned. It is [Log.At], but
// version 0 is the state before the first manifest.
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

// Renew tells compactors that the pin is still needed: one PUT. [manifest.ErrPinLost] is
// final: the pin was expired, and what it held may be gone. After any other error Renew
// may be called again.
func (p *Pin) Renew(ctx context.Context) error {
	_, err := p.renew(ctx)
	return err
}

// renew also reports whether the swap was clean; see store.WriteOptions.Clean.
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
	// guard:pin-resend. A renewal whose outcome is unknown is sent again with the same bytes until its
	// outcome is known.
	//
	//mutant:replace fresh { => true {
	fresh := p.next == nil
	if fresh {
		next := p.doc
		next.Nonce = fence.ID(uuid.New())
		next.Renewed, next.Renewals = p.log.opts.Clock.Wall().UTC().Truncate(time.Millisecond), p.doc.Renewals+1
		p.next, p.sent = &next, p.log.opts.Clock.Now()
	}
	body, err := p.next.encode(p.key)
	if err != nil {
		return false, err
	}
	// guard:pin-renew. A renewal is applied only if the pin still has the object version that its
	// holder wrote last.
	//
	//mutant:replace info, err := store.Swap(ctx, p.log.st, p.key, body, p.at, &store.WriteOptions{Settle: p.log.opts.Settle, Clean: &clean}) => info, err := p.log.st.Put(ctx, p.key, body, nil)
	info, err := store.Swap(ctx, p.log.st, p.key, body, p.at, &store.WriteOptions{Settle: p.log.opts.Settle, Clean: &clean})
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

// Held returns an instant on the log's clock: that before the last renewal which is known
// to be applied was sent. Nobody expires the pin until a TTL later.
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

// lose reads why the pin is lost.
func (p *Pin) lose(ctx context.Context) error {
	why := "it was deleted"
	if found, err := p.log.ReadPin(ctx, p.key); err == nil {
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

// Release deletes the pin. It may be called more than once.
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
