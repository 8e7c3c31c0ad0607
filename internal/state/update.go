package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// Updater writes manifests for one role in one epoch. Of its updates one runs
// at a time; others wait. Once fenced it stays so.
type Updater struct {
	log   *Log
	role  layout.Role
	epoch fence.Epoch

	turn chan struct{} // held by the running update, never with a mutex
	last uint64        // number of the last update tried; guarded by turn

	mu     sync.Mutex
	fenced error
}

// Updater returns the updater of role for the holder of token. It does no I/O.
func (l *Log) Updater(role layout.Role, token fence.Token) (*Updater, error) {
	if !token.Valid() {
		return nil, fmt.Errorf("manifest: the zero token gives no right to write; tokens come from an election, or from fence.NewToken with an epoch of at least 1")
	}
	return &Updater{log: l, role: role, epoch: token.Epoch(), turn: make(chan struct{}, 1)}, nil
}

// Err returns why the updater is fenced, or nil.
func (u *Updater) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fenced
}

func (u *Updater) end(other fence.Epoch) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fenced == nil {
		u.fenced = &fence.FencedError{Role: string(u.role), Epoch: u.epoch, By: other}
	}
	return u.fenced
}

// Update applies f to a copy of the newest manifest and publishes the result as
// the next version, again and again until it is there, and returns it. F may be
// called several times; it must change nothing but what it is given. If f
// returns an error nothing is written and the error is passed on ([ErrVoid] if
// the update no longer makes sense). What f has made too long for a manifest is moved
// to pages, which are in the store before the version that names them.
//
// The update is applied once or not at all. If ctx ends or the store fails, the
// error is store.ErrUnknown and it may have been applied, or yet be: f must be
// such that the next update can tell (a fold names the floor that it started
// from). After fence.ErrFenced it may have been applied just before the role was taken
// over, and the successor has built on it; it will not be applied any more. After
// any other error it has not been and will not be. Those are f's, the store's,
// fence.ErrLimit if the manifest becomes too large, [fence.ErrCorrupt], [fence.ErrFormat].
func (u *Updater) Update(ctx context.Context, f func(*Change) error) (*Manifest, error) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := u.Err(); err != nil {
		return nil, err
	}
	cur, err := u.log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	// Each call takes a new number, also after one whose outcome is unknown:
	// should that one land later, it is told from this one by its number.
	number := u.last
	if r := cur.Roles[u.role]; r.Epoch == u.epoch {
		number = max(number, r.Update)
	}
	number++
	u.last = number
	nonce := fence.ID(uuid.New())
	pages := pager{log: u.log, role: u.role, epoch: u.epoch, made: map[[sha256.Size]byte]any{}}
	for {
		// guard:role-epoch. Checked at every load, not only after a refusal: numbers may have been
		// pruned, so that a zombie's create succeeds in a hole.
		//
		//mutant:replace r.Epoch > u.epoch => false
		r := cur.Roles[u.role]
		switch {
		case r.Epoch > u.epoch:
			return nil, u.end(r.Epoch)
		case r.Epoch == u.epoch && r.Update == number && r.Nonce == nonce:
			return cur, nil // it is in, wherever in the line it went
		case r.Epoch == u.epoch && r.Update >= number:
			// guard:update-nonce. Only this updater counts in this epoch, and one update at a time:
			// another process was given the same token.
			return nil, u.end(r.Epoch)
		}
		next := cur.clone()
		if err := f(&Change{next}); err != nil {
			return nil, err
		}
		if err := pages.tidy(ctx, next); errors.Is(err, ErrGone) {
			// A page of cur: others have gone on and pruned.
			if cur, err = u.log.Newest(ctx); err != nil {
				return nil, err
			}
			continue
		} else if err != nil {
			return nil, err
		}
		next.Format, next.Log, next.Version, next.Nonce = document.Format, u.log.format.Log, cur.Version+1, fence.ID(uuid.New())
		next.Written = u.log.opts.Clock.Wall().UTC().Truncate(time.Millisecond)
		next.Roles[u.role] = RoleState{Epoch: u.epoch, Update: number, Nonce: nonce}
		if next.Hint != nil && !next.Floor.Before(*next.Hint) {
			next.Hint = nil
		}
		key := layout.ManifestKey(next.Version)
		if err := next.check(key, u.log.format); err != nil {
			return nil, fmt.Errorf("manifest: refusing to publish what nobody could read: %w", err)
		}
		// guard:only-forward. What is behind the floor and the mark may be deleted
		// already.
		if next.Floor.Before(cur.Floor) || next.PruneMark < cur.PruneMark || next.Start < cur.Start || next.Forgotten < cur.Forgotten {
			return nil, fmt.Errorf("manifest: refusing to move the floor from %v to %v, the start from %d to %d and the prune mark from %d to %d: they only rise",
				cur.Floor.Position, next.Floor.Position, cur.Start, next.Start, cur.PruneMark, next.PruneMark)
		}
		body, err := next.encode(u.log.format.Limits.Manifest)
		if err != nil {
			return nil, err
		}
		info, err := store.Create(ctx, u.log.st, key, body, &store.WriteOptions{Settle: u.log.opts.Settle})
		switch {
		case err == nil:
			info.Key = key
			u.log.remember(loaded{next, info})
		case errors.Is(err, store.ErrPrecondition):
			// Not a verdict: this number may have been ours, pruned, and filled with
			// junk since. Only the newest manifest tells.
		default:
			return nil, err
		}
		// guard:update-count. Created or refused, look at the newest: it carries this update's count,
		// or the write fell into a hole left by pruning and nobody sees it. Either
		// way something has that number.
		//
		//mutant:replace u.log.newest(ctx, next.Version, u.log.highest) => next, error(nil)
		if cur, err = u.log.newest(ctx, next.Version, u.log.highest); err != nil {
			return nil, fmt.Errorf("%w: manifest %d was sent: %w", store.ErrUnknown, next.Version, err)
		}
	}
}
