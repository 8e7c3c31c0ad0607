package compactor

import (
	"context"
	"errors"
	"math"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// pins are the versions that are pinned.
type pins struct {
	versions map[uint64]bool
	lowest   uint64 // [math.MaxUint64] if there is none
	all      []manifest.Pin
}

// pins lists the pins; m was read before. If expire is true, lapsed pins are expired and
// hold nothing any more.
func (p *pass) pins(ctx context.Context, m *state.Manifest, expire bool) (pins, error) {
	held := pins{versions: map[uint64]bool{}, lowest: math.MaxUint64}
	all, err := p.log.Pins(ctx)
	if err != nil {
		return held, err
	}
	infos := make([]store.Info, 0, len(all))
	for _, pin := range all {
		infos = append(infos, pin.Object)
	}
	unchanged := p.pinned.watch(p.opts.Clock.Now(), infos)
	for _, pin := range all {
		if expire && (pin.Expired || pin.Lapsed(unchanged(pin.Object))) {
			switch gone, err := p.expire(ctx, pin, m); {
			case err != nil:
				return held, err
			case gone:
				continue
			}
		}
		if !pin.Expired {
			held.all = append(held.all, pin.Pin)
			held.versions[pin.Version] = true
			held.lowest = min(held.lowest, pin.Version)
		}
	}
	return held, nil
}

// expire swaps a lapsed pin to expired, and then deletes its object if that may be. It
// reports whether the pin holds nothing any more.
func (p *pass) expire(ctx context.Context, pin state.PinInfo, m *state.Manifest) (bool, error) {
	// guard:expire-first. A lapsed pin is swapped to expired before its object is deleted.
	// Without the swap: a compactor reads the pin, which has lapsed; its holder renews it;
	// the compactor deletes it; its holder goes on reading under a pin that holds nothing.
	// Of the swap and the renewal only one is applied.
	if !pin.Expired {
		err := p.log.ExpirePin(ctx, pin, "not renewed for its time to live")
		if errors.Is(err, store.ErrPrecondition) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if _, ok := layout.ParsePinKey(pin.Object.Key); !ok || !pin.Removable(m.PruneMark) {
		return true, nil
	}
	return true, p.delete(ctx, "pin", []string{pin.Object.Key})
}
