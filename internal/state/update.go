package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Updater writes manifests for one role in one epoch. It runs one update at a time;
// others wait. Once fenced it stays so.
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
		return nil, fmt.Errorf("state: the zero token gives no right to write; tokens come from an election, or from fence.NewToken with an epoch of at least 1")
	}
	if err := l.Writable(); err != nil {
		return nil, err
	}
	if token.Epoch() == math.MaxUint64 {
		return nil, fmt.Errorf("state: epoch %d leaves no room for a successor; use a lower number", token.Epoch())
	}
	return &Updater{log: l, role: role, epoch: token.Epoch(), turn: make(chan struct{}, 1)}, nil
}

// Err returns why the updater is fenced, or nil.
func (u *Updater) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fenced
}

func (u *Updater) end(by fence.Epoch) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fenced == nil {
		u.fenced = &fence.FencedError{Role: string(u.role), Epoch: u.epoch, By: by}
	}
	return u.fenced
}

// Update applies f to a copy of the newest manifest and publishes the result as the
// next version. It repeats both until the change is in the newest manifest, which it
// returns. F may be called several times, and must change nothing but its argument. If
// f returns an error, nothing is written and Update returns that error; [ErrVoid] says
// that the update no longer makes sense. What has become too long for a manifest is
// moved to pages, which are stored before the version that names them.
//
// The update is applied once or not at all. Which of the two, the error says:
//
//   - store.ErrUnknown, because ctx ended or the store failed: it may have been applied,
//     or may be later. So f must be such that the next update can tell; a fold, for
//     example, names the floor that it started from.
//   - [fence.ErrFenced]: it may have been applied just before the role was taken over, and
//     the successor has built on it. It will not be applied later.
//   - any other error: it was not applied and never will be. These are f's, the store's,
//     [fence.ErrLimit] if the manifest becomes too large, [fence.ErrCorrupt] and
//     [fence.ErrFormat].
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
	// Each call takes a new number, also after a call whose outcome is unknown. Should
	// that one land later, its number tells it from this one.
	up := update{Updater: u, f: f, number: u.last, nonce: fence.ID(uuid.New())}
	if r := cur.Roles[u.role]; r.Epoch == u.epoch {
		up.number = max(up.number, r.Update)
	}
	up.number++
	u.last = up.number
	up.pages = pager{log: u.log, role: u.role, epoch: u.epoch, made: map[[sha256.Size]byte]any{}}
	for {
		switch applied, err := up.applied(cur); {
		case err != nil:
			return nil, err
		case applied:
			return cur, nil
		}
		next, err := up.next(ctx, cur)
		switch {
		case errors.Is(err, errReplaced):
			cur, err = u.log.Newest(ctx)
		case err == nil:
			cur, err = up.publish(ctx, next)
		}
		if err != nil {
			return nil, err
		}
	}
}

// update is one call of [Updater.Update].
type update struct {
	*Updater
	f      func(*Change) error
	number uint64   // counts the updates of this epoch
	nonce  fence.ID // tells this update from one of another holder of the token
	pages  pager
}

// applied reports whether manifest m contains this update. The error is fence.ErrFenced
// if somebody else has the role.
func (u *update) applied(m *Manifest) (bool, error) {
	// guard:role-epoch. At every read of the manifest, not only after a refused create, an updater
	// checks that its role has no later epoch.
	//
	//mutant:replace r.Epoch > u.epoch => false
	r := m.Roles[u.role]
	switch {
	case r.Epoch > u.epoch:
		return false, u.end(r.Epoch)
	case r.Epoch == u.epoch && r.Update == u.number && r.Nonce == u.nonce:
		return true, nil
	case r.Epoch == u.epoch && r.Update >= u.number:
		// guard:update-nonce. If a manifest has an updater's epoch, its number or a higher one, and
		// another nonce, a second process has the same token, and the updater stops.
		return false, u.end(r.Epoch)
	}
	return false, nil
}

// errReplaced: a page of the manifest was pruned, so there is a newer manifest.
var errReplaced = errors.New("state: the manifest was replaced")

// next makes the version after cur. The error is errReplaced if cur is not the newest.
func (u *update) next(ctx context.Context, cur *Manifest) (*Manifest, error) {
	next := cur.clone()
	if err := u.f(&Change{next}); err != nil {
		return nil, err
	}
	switch err := u.pages.tidy(ctx, next); {
	case errors.Is(err, ErrPruned):
		return nil, fmt.Errorf("%w: %w", errReplaced, err)
	case err != nil:
		return nil, err
	}
	next.Format, next.Log, next.Version, next.Nonce = document.Format, u.log.format.Log, cur.Version+1, fence.ID(uuid.New())
	next.Written = u.log.opts.Clock.Wall().UTC().Truncate(time.Millisecond)
	next.Roles[u.role] = RoleState{Epoch: u.epoch, Update: u.number, Nonce: u.nonce}
	if next.Hint != nil && !next.Floor.Before(*next.Hint) {
		next.Hint = nil
	}
	if err := next.check(layout.ManifestKey(next.Version), u.log.format); err != nil {
		return nil, fmt.Errorf("state: refusing to publish what nobody could read: %w", err)
	}
	// guard:only-forward. Floor, start and prune mark never go down from one manifest version to the
	// next.
	if next.Floor.Before(cur.Floor) || next.PruneMark < cur.PruneMark || next.Start < cur.Start || next.Forgotten < cur.Forgotten {
		return nil, fmt.Errorf("state: refusing to move the floor from %v to %v, the start from %d to %d and the prune mark from %d to %d: they only rise",
			cur.Floor.Position, next.Floor.Position, cur.Start, next.Start, cur.PruneMark, next.PruneMark)
	}
	return next, nil
}

// publish creates next and returns the newest manifest after that.
func (u *update) publish(ctx context.Context, next *Manifest) (*Manifest, error) {
	body, err := next.encode(u.log.format.Limits.Manifest)
	if err != nil {
		return nil, err
	}
	key := layout.ManifestKey(next.Version)
	info, err := store.Create(ctx, u.log.st, key, body, &store.WriteOptions{Settle: u.log.opts.Settle})
	switch {
	case err == nil:
		info.Key = key
		u.log.remember(loaded{next, info})
	case errors.Is(err, store.ErrPrecondition):
		// This decides nothing. Our own object may have had this number, was pruned, and
		// its hole was filled with junk. Only the newest manifest tells.
	default:
		return nil, err
	}
	// guard:update-count. An updater reports its update as applied only if the newest manifest has its
	// count and nonce, and also if its create was refused.
	//
	//mutant:replace u.log.newest(ctx, next.Version, u.log.highest) => next, error(nil)
	newest, err := u.log.newest(ctx, next.Version, u.log.highest)
	if err != nil {
		return nil, fmt.Errorf("%w: manifest %d was sent: %w", store.ErrUnknown, next.Version, err)
	}
	return newest, nil
}
