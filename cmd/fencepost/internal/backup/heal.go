package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// A copy that is there already may be damaged, or of another history of the same log.
//
//   - Objects of the chain and manifests have the same names in all histories, and may have the same
//     sizes. So they are compared: those of the chain by the nonce in the header, which is random.
//   - All other objects have a UUID in their names. No other history has them, and if the size is
//     right, the copy was once whole: no store makes a part of an object visible.
//   - What has rotted since is found when the copy is verified, which reads all of it. It is copied
//     again then. With Options.NoVerify nobody finds it.

// damagedError names the objects of a copy that are damaged.
type damagedError struct {
	keys []string
	err  error
}

func (e *damagedError) Error() string { return e.err.Error() }
func (e *damagedError) Unwrap() error { return e.err }

// healing calls do until it finds no damage in the copy. What do finds damaged is copied again, each
// object once: after that it is the source that is damaged.
func (t *transfer) healing(ctx context.Context, do func() error) error {
	for {
		err := do()
		damaged, ok := errors.AsType[*damagedError](err)
		if !ok {
			return err
		}
		again := map[string]bool{}
		for _, key := range damaged.keys {
			if kind := layout.KindOf(key); kind != layout.KindUnknown && kind != layout.KindFormat && !t.wasHealed(key) {
				again[key] = true
			}
		}
		if len(again) == 0 {
			return err
		}
		if herr := t.healAll(ctx, slices.Sorted(maps.Keys(again))); herr != nil {
			return fmt.Errorf("%w; and it cannot be copied again: %w", err, herr)
		}
	}
}

func (t *transfer) healAll(ctx context.Context, keys []string) error {
	defer beat(t.tell)()
	for _, key := range keys {
		if err := t.heal(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (t *transfer) wasHealed(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.healed[key]
}

// wasDamaged tells people about a copy that is about to be replaced.
func (t *transfer) wasDamaged(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.healed[key] = true
	t.report.Healed = len(t.healed)
	w, _, name := t.way(key)
	t.note("%s in %s is damaged; copying it again", name, w.to.Traits().Name)
}

// heal copies an object over its damaged copy. The last complete backup in the same place loses nothing by
// that, if it has this object too.
func (t *transfer) heal(ctx context.Context, key string) error {
	t.wasDamaged(key)
	n, err := t.one(ctx, item{key: key, size: -1, again: true})
	t.done.Add(-n)
	return err
}

// keep decides about an object that the destination has already: it is the copy, or is healed, or is of another
// history, which is an otherError.
func (t *transfer) keep(ctx context.Context, it item, size int64) error {
	if it.size >= 0 && size != it.size && !t.tells(it.key) {
		return t.heal(ctx, it.key) // its name is unique, so this is a part of the copy
	}
	if !t.tells(it.key) {
		return nil
	}
	w, from, to := t.way(it.key)
	want, all, err := t.head(ctx, w.from, it.key, from)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: %w", errGone, err)
	case err != nil:
		return err
	}
	got, found, err := t.head(ctx, w.to, it.key, to)
	switch {
	case err != nil:
		return err
	case bytes.Equal(want, got) && found == all:
		return nil
	case t.damaged(it.key, want, got, found == all):
		return t.heal(ctx, it.key)
	case found != all:
		return &otherError{it.key, fmt.Sprintf("its %s has %d bytes, not %d", to, found, all), w.to.Traits().Name, t.advice}
	case nonce(want) == nil || nonce(want) != nonce(got):
		return &otherError{it.key, "its " + to + " has other content", w.to.Traits().Name, t.advice}
	}
	return nil // a seal that verify has made again: it has another time, and the same nonce
}

// tells reports whether an object tells one history from another. The others have names that no other history has.
func (t *transfer) tells(key string) bool {
	_, manifest := layout.ParseManifestKey(key)
	return manifest || chained(key)
}

func chained(key string) bool {
	_, data := layout.ParseDataKey(key)
	return data
}

// head reads as much of an object as is compared, and tells its size.
func (t *transfer) head(ctx context.Context, st store.Store, key, name string) (b []byte, size int64, err error) {
	o := &store.ReadOptions{Limit: int64(t.limits.Manifest)}
	if chained(key) {
		o = &store.ReadOptions{Length: compared}
	}
	b, info, err := store.Read(ctx, st, name, o)
	switch {
	case errors.Is(err, store.ErrRange): // it is empty
		return nil, 0, nil
	case errors.Is(err, store.ErrTooLarge): // no log has such a manifest
		return nil, info.Size, nil
	}
	return b, info.Size, err
}

// damaged reports whether a copy that differs from its original is a damaged one. The original must be
// sound. Of a long object of the chain only the header is known here: verify reads the rest.
func (t *transfer) damaged(key string, want, got []byte, sameSize bool) bool {
	if !chained(key) {
		bad := func(b []byte) bool { return errors.Is(document.Decode(key, b, new(struct{})), fence.ErrCorrupt) }
		return bad(got) && !bad(want)
	}
	switch {
	case nonce(want) == nil:
		return false
	case nonce(got) == nil:
		return true
	case nonce(got) != nonce(want):
		return false
	case !sameSize:
		return true
	}
	_, err := frame.Decode(got, t.limits)
	return len(got) < compared && errors.Is(err, fence.ErrCorrupt)
}

// nonce is that of an object of the chain, nil if it is none.
func nonce(b []byte) any {
	h, err := frame.DecodeHeader(b)
	if err != nil {
		return nil
	}
	return h.Nonce
}
