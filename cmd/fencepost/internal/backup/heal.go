package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
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
	// walk is set if a walk of the chain has ended there. It does not know what comes after.
	walk *fence.Position
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
		if oerr := t.own(ctx); oerr != nil {
			return oerr
		}
		if damaged.walk != nil {
			more, merr := t.rottenFrom(ctx, *damaged.walk)
			if merr != nil {
				return merr
			}
			damaged.keys = append(damaged.keys, more...)
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

// rottenFrom returns the damaged objects of the chain that the destination has from a slot on, without the long
// ones. Otherwise there would be one walk for each.
func (t *transfer) rottenFrom(ctx context.Context, at fence.Position) (rotten []string, err error) {
	defer beat(t.tell)()
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for key := range t.have {
		if p, ok := layout.ParseDataKey(key); !ok || p.Before(at) {
			continue
		}
		g.Go(func() error {
			b, info, err := store.Read(ctx, t.to, key, &store.ReadOptions{Limit: small})
			switch {
			case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrNotFound):
				return nil
			case err != nil:
				return err
			}
			if errors.Is(t.sound(key, b, info.Size), fence.ErrCorrupt) {
				mu.Lock()
				defer mu.Unlock()
				rotten = append(rotten, key)
			}
			return nil
		})
	}
	err = g.Wait()
	return rotten, err
}

func (t *transfer) healAll(ctx context.Context, keys []string) error {
	defer beat(t.tell)()
	for _, key := range keys {
		it := item{key: key, size: -1}
		if kind := layout.KindOf(key); kind == layout.KindSegment || kind == layout.KindFile {
			if n, ok := t.present(key); ok { // keep has seen to it that this is the right size
				it.size = n
			}
		}
		if err := t.heal(ctx, it); err != nil {
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

// originalError: the original of an object is damaged. It is not copied: it could replace the last sound copy.
type originalError struct {
	key, name, place, look string
	err                    error
}

func (e *originalError) Error() string {
	return fmt.Sprintf("%s in %s is damaged, and was not copied from there: %v. Run `fencepost %s` on %s", e.name, e.place, e.err, e.look, e.place)
}

func (e *originalError) Unwrap() error { return e.err }

// long refuses an original that is not as long as it should be.
func (t *transfer) long(it item, size int64) error {
	if it.size < 0 || size == it.size {
		return nil
	}
	return t.unfit(it.key, fmt.Errorf("%w: it has %d bytes, and should have %d", fence.ErrCorrupt, size, it.size))
}

// unfit returns what is wrong with an original as an originalError, if that is damage.
func (t *transfer) unfit(key string, err error) error {
	if !errors.Is(err, fence.ErrCorrupt) {
		return nil
	}
	w, from, _ := t.way(key)
	return &originalError{key, from, w.from.Traits().Name, t.look, err}
}

// heal copies an object over its damaged copy. The last complete backup in the same place loses nothing by
// that, if it has this object too.
//
// A damaged original replaces no copy. Without this check: an object of the log is cut to half; the nightly
// backup finds that its copy has another size, and replaces it by the half; that copy was the last place that had
// the records of the other half.
func (t *transfer) heal(ctx context.Context, it item) error {
	if t.tells(it.key) {
		b, size, err := t.head(ctx, t.log.from, it.key, it.key)
		if err != nil {
			return gone(err)
		}
		if err := t.unfit(it.key, t.sound(it.key, b, size)); err != nil {
			return err
		}
	}
	t.wasDamaged(it.key)
	it.again = true
	n, err := t.one(ctx, it)
	t.done.Add(-n)
	return err
}

// gone returns errGone for an object that is not there, and else err.
func gone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// keep decides about an object that the destination has already: it is the copy, or is healed, or is of another
// history, which is an otherError. An original that differs, and is damaged, is an originalError.
func (t *transfer) keep(ctx context.Context, it item, size int64) error {
	switch {
	case t.tells(it.key):
		return t.compare(ctx, it)
	case it.size >= 0 && size != it.size:
		return t.heal(ctx, it) // its name is unique, so this is a part of the copy
	}
	return nil
}

// compare is keep for an object whose name may be in several histories.
func (t *transfer) compare(ctx context.Context, it item) error {
	w, from, to := t.way(it.key)
	want, all, err := t.head(ctx, w.from, it.key, from)
	if err != nil {
		return gone(err)
	}
	got, found, err := t.head(ctx, w.to, it.key, to)
	switch {
	case err != nil:
		return err
	case bytes.Equal(want, got) && found == all:
		return nil
	}
	if err := t.unfit(it.key, t.sound(it.key, want, all)); err != nil {
		return err
	}
	switch rotten := errors.Is(t.sound(it.key, got, found), fence.ErrCorrupt); {
	case rotten && (nonce(got) == nil || nonce(got) == nonce(want)):
		return t.heal(ctx, it)
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

// sound returns fence.ErrCorrupt if an object is damaged, as far as b tells, which is its beginning or all of it.
// Of a long object of the chain only the header and the size are known: verify reads the rest.
func (t *transfer) sound(key string, b []byte, size int64) error {
	if !chained(key) {
		return document.Decode(key, b, new(struct{}))
	}
	h, err := frame.DecodeHeader(b)
	switch {
	case err != nil:
		return err
	case size != frame.HeaderSize+h.BodyLen():
		return fmt.Errorf("%w: it has %d bytes, and its header says %d", fence.ErrCorrupt, size, frame.HeaderSize+h.BodyLen())
	case int64(len(b)) == size:
		_, err = frame.Decode(b, t.limits)
	}
	return err
}

// nonce is that of an object of the chain, nil if it is none.
func nonce(b []byte) any {
	h, err := frame.DecodeHeader(b)
	if err != nil {
		return nil
	}
	return h.Nonce
}
