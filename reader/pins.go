package reader

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
)

// Pin keeps a version of the manifest, and every object that it names, from being
// deleted: a backup can copy them at leisure. A version of 0 is the newest one. The pin
// holds until [Reader.Unpin], or for ttl if that is not 0; nobody renews it. To read what
// it holds, take a snapshot of its version.
//
// Errors: [ErrOptions]; [ErrGone] if the version is pruned; [ErrPinLost] if the store
// was too slow. It costs two PUTs and a look at the newest manifest.
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

// Pins returns all pins, also those of snapshots, in order of their versions. It costs
// one LIST, and a GET for each pin.
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
