package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

const (
	// pinsAtOnce is how many pins are read at the same time.
	pinsAtOnce = 16
	// pinSlack is how much longer than its TTL a pin must have stood still by the
	// store's own clock. Most stores tell times in whole seconds.
	pinSlack = 5 * time.Second
)

// PinInfo is a pin, with its object as it was read.
type PinInfo struct {
	manifest.Pin
	// Object is what the store said of it. Its Version changes with every renewal.
	Object store.Info

	doc pinDoc
}

func (d *pinDoc) encode(key string) ([]byte, error) {
	b, err := document.Encode(key, d)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return b, nil
}

func decodePin(key string, body []byte, log fence.ID) (pinDoc, error) {
	var d pinDoc
	if err := document.Decode(key, body, &d); err != nil {
		return d, err
	}
	switch {
	case d.Log != log:
		return d, document.Corrupt(key, "it belongs to log %s, this is log %s", d.Log, log)
	case d.TTL < 0 || d.TTL == 0 && d.Name == "" && !d.Expired:
		return d, document.Corrupt(key, "it has a TTL of %v and the name %q", time.Duration(d.TTL), d.Name)
	}
	return d, nil
}

// ReadPin reads one pin. Errors: store.ErrNotFound if it was released; fence.ErrCorrupt and
// fence.ErrFormat if it cannot be read; the store's and ctx's.
func (l *Log) ReadPin(ctx context.Context, key string) (PinInfo, error) {
	body, info, err := store.Read(ctx, l.st, key, &store.ReadOptions{Limit: maxPin, Settle: l.opts.Settle})
	if errors.Is(err, store.ErrTooLarge) {
		return PinInfo{}, document.Corrupt(key, "%v", err)
	}
	if err != nil {
		return PinInfo{}, err
	}
	d, err := decodePin(key, body, l.format.Log)
	if err != nil {
		return PinInfo{}, fmt.Errorf("%w; nobody can tell what this pin holds; delete it if it is not needed", err)
	}
	info.Key = key
	return PinInfo{Object: info, doc: d, Pin: d.describe(key)}, nil
}

func (d *pinDoc) describe(key string) manifest.Pin {
	return manifest.Pin{
		Key: key, Version: d.Version, Name: d.Name, Holder: d.Holder, TTL: time.Duration(d.TTL), Created: d.Created, Renewed: d.Renewed,
		Renewals: d.Renewals, Expired: d.Expired, Reason: d.Reason,
	}
}

// Pins returns all pins in order of their versions. It costs one LIST, and one GET for
// each. A pin that was in the store before the call is among them, unless it was deleted
// meanwhile. After an error nothing may be pruned: a pin that cannot be read may hold
// anything.
func (l *Log) Pins(ctx context.Context) ([]PinInfo, error) {
	pins, damaged, err := l.SoundPins(ctx)
	if err == nil && len(damaged) > 0 {
		err = damaged[slices.Min(slices.Collect(maps.Keys(damaged)))]
	}
	if err != nil {
		return nil, err
	}
	return pins, nil
}

// SoundPins is [Log.Pins] for a caller that prunes nothing: it returns what is wrong with
// damaged pins by their keys, and the others all the same.
func (l *Log) SoundPins(ctx context.Context) (pins []PinInfo, damaged map[string]error, err error) {
	keys, err := l.pinKeys(ctx)
	if err != nil {
		return nil, nil, err
	}
	return l.readPins(ctx, keys)
}

// pinKeys returns the keys of all pins, in order. It costs one LIST.
func (l *Log) pinKeys(ctx context.Context) (keys []string, err error) {
	for info, err := range store.ListAll(ctx, l.st, layout.PinPrefix, nil, l.opts.Settle) {
		if err != nil {
			return nil, err
		}
		if _, ok := layout.ParsePinKey(info.Key); ok {
			keys = append(keys, info.Key)
		}
	}
	// A listing may repeat itself.
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// readPins reads the pins that have these keys, in order of their versions. It leaves out those that
// were released meanwhile.
func (l *Log) readPins(ctx context.Context, keys []string) (pins []PinInfo, damaged map[string]error, err error) {
	var mu sync.Mutex
	damaged = map[string]error{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pinsAtOnce)
	for _, key := range keys {
		g.Go(func() error {
			p, err := l.ReadPin(gctx, key)
			if errors.Is(err, store.ErrNotFound) {
				return nil // released meanwhile
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
				damaged[key] = err
			case err != nil:
				return err
			default:
				pins = append(pins, p)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(pins, func(a, b PinInfo) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.Object.Key, b.Object.Key))
	})
	return pins, damaged, nil
}

// Lapsed reports whether a pin may be expired with [Log.ExpirePin], or has been expired.
// Unchanged is how long its Object.Version has stood still in the caller's own elapsed
// time, counted from after the response that first showed it; 0 if this is the first.
// The only other clock that counts is the store's, by two of its times in one response.
func (p *PinInfo) Lapsed(unchanged time.Duration) bool {
	if p.Expired {
		return true
	}
	ttl := p.TTL
	// guard:pin-unsettled. A pin that was never renewed lapses after a minute, whatever its TTL: a
	// holder relies only on a pin that it has renewed.
	//
	//mutant:replace p.Renewals == 0 => false
	if p.Renewals == 0 && (ttl == 0 || ttl > unsettledTTL) {
		ttl = unsettledTTL
	}
	if ttl == 0 {
		return false
	}
	if age, known := p.Object.Age(); known && age-pinSlack >= ttl {
		return true
	}
	return unchanged >= ttl
}

// Removable reports whether the object of an expired pin may be deleted. Mark is a prune
// mark that has been published.
func (p *PinInfo) Removable(mark uint64) bool {
	// guard:pin-stillborn. An expired pin that was never renewed is deleted only when the prune mark
	// has passed the pin's version.
	//
	//mutant:replace p.Renewals > 0 || => true ||
	return p.Renewals > 0 || mark > 0 && p.Version <= mark
}

// ExpirePin swaps a pin to expired: its holder's next renewal fails with
// [manifest.ErrPinLost] and the reason. Only after that may what the pin held be deleted,
// and the object itself if it is [PinInfo.Removable]. The error is store.ErrPrecondition
// if the pin is gone, or was renewed since it was read and so still holds.
func (l *Log) ExpirePin(ctx context.Context, p PinInfo, reason string) error {
	if p.Expired {
		return nil
	}
	d := p.doc
	d.Nonce, d.Expired, d.Reason = fence.ID(uuid.New()), true, reason
	body, err := d.encode(p.Object.Key)
	if err != nil {
		return err
	}
	// guard:pin-expire. A compactor expires a pin only if the pin still has the object version that the
	// compactor saw standing still.
	//
	//mutant:replace store.Swap(ctx, l.st, p.Object.Key, body, p.Object.Version, &store.WriteOptions{Settle: l.opts.Settle}) => l.st.Put(ctx, p.Object.Key, body, nil)
	_, err = store.Swap(ctx, l.st, p.Object.Key, body, p.Object.Version, &store.WriteOptions{Settle: l.opts.Settle})
	return err
}

// Unpin expires all pins of a name, whoever holds them, and deletes those that are
// [PinInfo.Removable]; a compactor deletes the others later. The error is manifest.ErrNoPin
// if there is none.
func (l *Log) Unpin(ctx context.Context, name string) error {
	if name == "" {
		// Every snapshot's pin is without a name.
		return errors.New("manifest: Unpin needs the name of the pins to remove")
	}
	found := false
	for range pinTries {
		pins, err := l.Pins(ctx)
		if err != nil {
			return err
		}
		again := false
		for _, p := range pins {
			if p.Name != name || p.Expired && !p.Removable(0) {
				continue
			}
			found = true
			err := l.ExpirePin(ctx, p, "it was unpinned by its name, "+name)
			if errors.Is(err, store.ErrPrecondition) {
				again = true // renewed just now
				continue
			}
			if err != nil {
				return err
			}
			if p.Removable(0) { // else a compactor does it, once the mark has passed it
				if err := store.DeleteAll(ctx, l.st, []string{p.Object.Key}, l.opts.Settle); err != nil {
					return err
				}
			}
		}
		switch {
		case !found:
			return fmt.Errorf("%w: no pin is named %q", manifest.ErrNoPin, name)
		case !again:
			return nil
		}
	}
	return fmt.Errorf("manifest: the pins named %q were renewed %d times while they were removed", name, pinTries)
}
