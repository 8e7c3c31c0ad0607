package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// hold reads a version, the newest one if it is 0, and pins it unless the snapshot is to
// be unpinned.
func (q *search) hold(ctx context.Context, version uint64) error {
	if !q.want.Unpinned {
		pin, err := q.log.Pin(ctx, &state.PinOptions{Version: version, Name: q.want.Name, TTL: q.want.TTL})
		if err != nil {
			return q.borrow(ctx, version, err)
		}
		q.pin, q.m = q.renew(ctx, pin, q.want.TTL), pin.Manifest()
		return nil
	}
	m, err := q.log.Newest(ctx)
	if err == nil && version != 0 && version != m.Version {
		mark := m.PruneMark
		if m, _, err = q.log.At(ctx, version); err == nil && version <= mark {
			err = fmt.Errorf("%w: version %d is at or below the prune mark %d", state.ErrPruned, version, mark)
		}
	}
	if err != nil {
		return q.borrow(ctx, version, err)
	}
	q.m = m
	return nil
}

// release deletes the pin of a search that has failed.
func (q *search) release(ctx context.Context) error {
	if q.pin == nil {
		return nil
	}
	ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), q.opts.Clock, q.want.TTL, context.DeadlineExceeded)
	defer cancel()
	return q.pin.release(ctx)
}

// borrow relies on another's pin, such as a backup's, for a version at or below the
// prune mark: that takes no new pin. The snapshot lasts as long as the other pin.
//
// The other pin may have come too late, so that a zombie's manifest may be in the hole.
// That one is right too as far as it goes: it was made from the same chain. What it
// refers to may be deleted, and the snapshot's methods say so.
func (q *search) borrow(ctx context.Context, version uint64, gone error) error {
	if !errors.Is(gone, state.ErrPruned) || version == 0 {
		return q.noVersion(ctx, version, gone)
	}
	m, _, err := q.log.At(ctx, version)
	if err != nil {
		// guard:lean-unread. A reader reports ErrGone for a manifest that it cannot read only if the
		// store says that the manifest is absent.
		//
		//mutant:replace errors.Is(err, state.ErrPruned) => true
		if errors.Is(err, state.ErrPruned) {
			err = gone
		}
		return q.noVersion(ctx, version, err)
	}
	pins, err := q.log.Pins(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(pins, func(p state.PinInfo) bool { return p.Version == version && !p.Expired }) {
		return q.noVersion(ctx, version, gone)
	}
	q.m = m
	return nil
}

// noVersion says which versions there are instead of one that is gone.
func (r *Reader) noVersion(ctx context.Context, version uint64, err error) error {
	if !errors.Is(err, state.ErrPruned) {
		return err
	}
	had, verr := r.versions(ctx)
	if verr != nil || version == 0 {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return fmt.Errorf("%w: version %d; kept are %s", ErrGone, version, had)
}

// versions says in words which versions a snapshot can have: those above the prune mark,
// and pinned ones.
func (r *Reader) versions(ctx context.Context) (string, error) {
	m, err := r.log.Newest(ctx)
	if err != nil {
		return "", err
	}
	all, err := r.log.Versions(ctx)
	if err != nil {
		return "", err
	}
	pins, err := r.log.Pins(ctx)
	if err != nil {
		return "", err
	}
	var kept []uint64
	for v := range all {
		pinned := slices.ContainsFunc(pins, func(p state.PinInfo) bool { return p.Version == v && !p.Expired })
		if v <= m.Version && (v > m.PruneMark || pinned) {
			kept = append(kept, v)
		}
	}
	slices.Sort(kept)
	if n := len(kept); n > 6 {
		return fmt.Sprintf("%d versions from %d to %d", n, kept[0], kept[n-1]), nil
	}
	return fmt.Sprintf("the versions %d", kept), nil
}

// Pin keeps a version of the manifest, and every object that it names, from being
// deleted: a backup can copy them at leisure. A version of 0 is the newest one. The pin
// holds until [Reader.Unpin], or for ttl if that is not 0; nobody renews it. To read what
// it holds, take a snapshot of its version.
//
// Errors: [ErrOptions]; [ErrGone] if the version is pruned; [ErrPinLost] if the store
// was too slow; manifest.ErrBackup. It costs two PUTs and a look at the newest manifest.
func (r *Reader) Pin(ctx context.Context, name string, version uint64, ttl time.Duration) (manifest.Pin, error) {
	switch {
	case name == "":
		return manifest.Pin{}, fmt.Errorf("%w: a pin needs a name, by which Unpin finds it", ErrOptions)
	case ttl != 0 && ttl < manifest.MinPinTTL:
		return manifest.Pin{}, fmt.Errorf("%w: ttl %v is too short: it must be 0 (until Unpin) or at least %v", ErrOptions, ttl, manifest.MinPinTTL)
	}
	p, err := r.log.Pin(ctx, &state.PinOptions{Version: version, Name: name, TTL: ttl})
	if err != nil {
		return manifest.Pin{}, r.noVersion(ctx, version, err)
	}
	return p.Description(), nil
}

// Pins returns all pins, also those of snapshots, in order of their versions. It costs one LIST, and a
// GET for each pin.
func (r *Reader) Pins(ctx context.Context) ([]manifest.Pin, error) {
	found, err := r.log.Pins(ctx)
	if err != nil {
		return nil, err
	}
	pins := make([]manifest.Pin, len(found))
	for i, p := range found {
		pins[i] = p.Pin
	}
	return pins, nil
}

// Unpin deletes all pins of a name. Their holders find out at the next renewal. What
// only these pins kept is deleted by later passes of a compactor. Errors: [ErrOptions]
// if the name is empty; [ErrNoPin] if no pin has it.
func (r *Reader) Unpin(ctx context.Context, name string) error {
	if name == "" {
		return fmt.Errorf("%w: Unpin needs the name of the pins to delete", ErrOptions)
	}
	return r.log.Unpin(ctx, name)
}

// Release deletes one pin that [Reader.Pin] has made, by its key. Later passes of a compactor
// delete what only this pin has kept. A pin that is gone is no error. It costs one DELETE.
func (r *Reader) Release(ctx context.Context, pin manifest.Pin) error {
	switch _, ok := layout.ParsePinKey(pin.Key); {
	case !ok:
		return fmt.Errorf("%w: %q is not the key of a pin", ErrOptions, pin.Key)
	case pin.TTL != 0:
		return fmt.Errorf("%w: %s has a holder who renews it; use Unpin for a pin with a name", ErrOptions, pin.Key)
	}
	return store.DeleteAll(ctx, r.log.Store(), []string{pin.Key}, r.opts.Settle)
}
