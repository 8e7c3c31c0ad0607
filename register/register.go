package register

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Options of a register. The zero value works, and so does nil.
type Options struct {
	// Settle tunes the retries.
	Settle *store.SettleOptions
	// Clock gives the time of day that a value carries. Default clock.System.
	Clock clock.Clock
}

// Validate returns what is wrong with the options, an [ErrOptions]. It does no I/O; nil is valid.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	if err := o.Settle.Validate(); err != nil {
		return fmt.Errorf("%w: Settle: %w", ErrOptions, err)
	}
	return nil
}

// Register is one object, opened for writing. It is safe for concurrent use.
type Register struct {
	st    store.Store
	key   string
	opts  Options
	epoch fence.Epoch
	owner fence.ID

	turn chan struct{} // holds a token while nobody writes

	mu      sync.Mutex // never held across a request
	current record
	version store.Version
	fenced  error
}

// tries bounds how often a write is refused in a row: by openings, or by earlier writes of this
// register whose outcome was unknown.
const tries = 64

// Open takes the register over for the epoch of a token, and returns when no earlier epoch can
// write it any more. It creates the object if there is none.
//
// Errors: a fence.FencedError if a later epoch owns it; [ErrOptions], also for a key among the names of
// logs, backups and groups, such as data/1 or lock/x; fence.ErrCorrupt and
// fence.ErrFormat if something else is under the key; those of store.Swap, such as
// store.ErrUnknown. After an error the register may have been taken over all the same.
func Open(ctx context.Context, st store.Store, key string, token fence.Token, opts *Options) (*Register, error) {
	if !token.Valid() {
		return nil, fmt.Errorf("%w: the token is zero: epochs begin at 1", ErrOptions)
	}
	return open(ctx, st, key, opts, func(fence.Epoch) fence.Epoch { return token.Epoch() })
}

// Take is [Open] with the epoch that follows the one that owns the register: the latest call
// wins. It is for programs without an election.
func Take(ctx context.Context, st store.Store, key string, opts *Options) (*Register, error) {
	return open(ctx, st, key, opts, func(found fence.Epoch) fence.Epoch {
		if found == math.MaxUint64 {
			return found // it is fenced by the next one that has this token
		}
		return found + 1
	})
}

func open(ctx context.Context, st store.Store, key string, opts *Options, epoch func(found fence.Epoch) fence.Epoch) (*Register, error) {
	if err := check(st, key, opts); err != nil {
		return nil, err
	}
	if err := Free(st, key); err != nil {
		return nil, err
	}
	r := &Register{st: st, key: key, owner: fence.ID(uuid.New()), turn: make(chan struct{}, 1)}
	if opts != nil {
		r.opts = *opts
	}
	for range tries {
		found, version, err := read(ctx, st, key, r.opts.Settle)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		r.epoch = epoch(found.Epoch)
		// guard:register-epoch. A register can be opened only for the epoch that owns it, or for a
		// later one.
		if found.Epoch > r.epoch {
			return nil, &fence.FencedError{Epoch: r.epoch, By: found.Epoch, Key: key}
		}
		// guard:register-claim. To open a register is to write it, so that writes of earlier owners
		// that are still in flight are refused.
		//
		//mutant:replace claimed, err := r.write(ctx, found, version, nil) => var claimed bool; if r.current, r.version = found, version; version == "" { claimed, err = r.write(ctx, found, version, nil) } else { claimed, err = true, nil; r.current.Owner = r.owner }
		claimed, err := r.write(ctx, found, version, nil)
		if err != nil {
			return nil, err
		}
		if claimed {
			r.turn <- struct{}{}
			return r, nil
		}
	}
	return nil, fmt.Errorf("register: %s: others took it over %d times in a row while it was being opened; open it again", key, tries)
}

func check(st store.Store, key string, opts *Options) error {
	if store.IsNil(st) {
		return fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions)
	}
	if err := store.CheckKey("open", key); err != nil {
		return err
	}
	return opts.Validate()
}

// Free returns an [ErrOptions] if a key is among the names of logs, backups and groups, such as data/1 or lock/x. What is
// written there could destroy one. It asks only for the store's name, and sends no request.
func Free(st store.Store, key string) error {
	if _, own := store.As[layout.Own](st); own {
		return nil
	}
	if what := layout.Owned(st.Traits().Name, key); what != "" {
		return fmt.Errorf("%w: the key %s: the name %q belongs to logs, backups and groups, and an object there could destroy one; use another key, such as latest.json", ErrOptions, key, what)
	}
	return nil
}

// Read returns what the register holds. The error is store.ErrNotFound if nobody has opened it yet;
// fence.ErrCorrupt or fence.ErrFormat if something else is under the key.
func Read(ctx context.Context, st store.Store, key string, opts *Options) (State, error) {
	if err := check(st, key, opts); err != nil {
		return State{}, err
	}
	var settle *store.SettleOptions
	if opts != nil {
		settle = opts.Settle
	}
	r, _, err := read(ctx, st, key, settle)
	if err != nil {
		return State{}, err
	}
	return State{Epoch: r.Epoch, Value: r.value(), Writes: r.Writes, Time: r.Time}, nil
}

func read(ctx context.Context, st store.Store, key string, settle *store.SettleOptions) (record, store.Version, error) {
	body, info, err := store.Read(ctx, st, key, &store.ReadOptions{Limit: maxRecord, Settle: settle})
	if errors.Is(err, store.ErrTooLarge) {
		err = document.Corrupt(key, "%v", err)
	}
	if err != nil {
		return record{}, "", err
	}
	r, err := decode(key, body)
	return r, info.Version, err
}

// Epoch is the epoch that the register was opened with.
func (r *Register) Epoch() fence.Epoch { return r.epoch }

// Value is the last value that this register has found or set; nil if there was none.
func (r *Register) Value() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.current.value())
}

// Set writes a value. The package comment has its outcomes. Calls at the same time are done one
// after the other.
func (r *Register) Set(ctx context.Context, value []byte) error {
	if err := checkValue(value); err != nil {
		return err
	}
	if value == nil {
		value = []byte{}
	}
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for range tries {
		r.mu.Lock()
		current, version, fenced := r.current, r.version, r.fenced
		r.mu.Unlock()
		if fenced != nil {
			return fenced
		}
		if done, err := r.write(ctx, current, version, value); done || err != nil {
			return err
		}
		if err := r.refused(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("register: %s: %d writes in a row were refused; set the value again", r.key, tries)
}

// write swaps the object, and reports whether that took place. A nil value keeps the one
// that is there.
func (r *Register) write(ctx context.Context, old record, version store.Version, value []byte) (bool, error) {
	next := old
	next.Epoch, next.Owner, next.Nonce = r.epoch, r.owner, fence.ID(uuid.New())
	if next.Writes < math.MaxUint64 { // or nobody could read it any more
		next.Writes++
	}
	if value != nil {
		next.set(value)
	}
	if value != nil || version == "" {
		next.Time = clock.Or(r.opts.Clock).Wall().UTC()
	}
	body, err := next.encode(r.key)
	if err != nil {
		return false, err
	}
	var info store.Info
	if opts := (&store.WriteOptions{Settle: r.opts.Settle}); version == "" {
		info, err = store.Create(ctx, r.st, r.key, body, opts)
	} else {
		info, err = store.Swap(ctx, r.st, r.key, body, version, opts)
	}
	if errors.Is(err, store.ErrPrecondition) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.version = next, info.Version
	return true, nil
}

// refused finds out why a write was refused. It returns nil if an earlier write of this very
// register has landed late: then the write is tried again.
func (r *Register) refused(ctx context.Context) error {
	found, version, err := read(ctx, r.st, r.key, r.opts.Settle)
	switch {
	case errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
		return err // to try again changes nothing
	case err != nil && !errors.Is(err, store.ErrNotFound):
		// The write may have been applied before another owner's replaced it: its value is kept then.
		return fmt.Errorf("%w: a write to %s was refused, and nobody can tell why: %w", store.ErrUnknown, r.key, err)
	}
	// guard:register-own. After a refused write, a register tries again only if it has written the
	// object itself, by an earlier write that was applied late.
	//
	//mutant:replace found.Owner != r.owner => false
	if found.Owner != r.owner {
		if err != nil || found.Epoch < r.epoch {
			err = fmt.Errorf("%w: %s", ErrLost, r.key)
		} else {
			err = &fence.FencedError{Epoch: r.epoch, By: found.Epoch, Key: r.key}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fenced = err
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current, r.version = found, version
	return nil
}
