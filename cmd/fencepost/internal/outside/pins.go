package outside

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// maxPins is how many pins a follower remembers.
const maxPins = 200

// keptPin is a pin that a follower remembers.
type keptPin struct {
	Pin
	due   bool      // to be read, for the first time or because it may have expired
	read  bool      // at least once, whatever came of it
	as    time.Time // Renewed when it was last read
	asked time.Time // when it was last read
	over  bool      // its time was over when the pins were last listed
}

// pinDoc is the JSON of a pin, as docs/format.md has it.
type pinDoc struct {
	Version uint64    `json:"version"`
	Name    string    `json:"name"`
	Holder  string    `json:"holder"`
	Created time.Time `json:"created"`
	Renewed time.Time `json:"renewed"`
	TTL     string    `json:"ttl"`
	Expired bool      `json:"expired"`
}

// listPins lists the pins. If there are too many it keeps those that were not renewed for longest: an old one is
// more likely among them.
func (f *follower) listPins(ctx context.Context) error {
	found := map[string]keptPin{} // a key can come twice
	for info, err := range store.ListAll(ctx, f.st, inspect.Pin.Prefix(), nil, f.settle()) {
		if err != nil {
			return err
		}
		name := inspect.Parse(info.Key)
		id := name.ID
		if name.Kind != inspect.Pin {
			continue
		}
		p, known := f.pins[id]
		if !known {
			p = keptPin{Pin: Pin{ID: id}, due: true}
		}
		if !info.LastModified.IsZero() {
			p.Renewed = info.LastModified
		}
		ttl := time.Duration(p.TTL * float64(time.Second))
		// Nobody may come to mark a pin as expired. So one that is over is not read again and again: that would
		// leave nothing for past leaders.
		now, was := f.clock.Wall(), p.over
		p.over = ttl > 0 && !p.Expired && now.After(p.Renewed.Add(ttl))
		p.due = p.due || (p.over || was) && !p.Renewed.Equal(p.as) || p.over && now.Sub(p.asked) >= time.Hour
		found[id] = p
	}
	all := slices.SortedFunc(maps.Values(found), func(a, b keptPin) int {
		if c := a.Renewed.Compare(b.Renewed); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	f.pins, f.pinCount = map[string]keptPin{}, len(all)
	for _, p := range all[:min(len(all), maxPins)] {
		f.pins[p.ID] = p
	}
	f.pinsKnown = f.pinsKnown || f.pinsRead()
	return nil
}

// readPin reads a pin that is due, and reports whether there may be more.
func (f *follower) readPin(ctx context.Context) (more bool, err error) {
	for id, p := range f.pins {
		if !p.due {
			continue
		}
		key := inspect.Name{Kind: inspect.Pin, ID: id}.Key()
		body, _, err := store.Read(ctx, f.st, key, &store.ReadOptions{Limit: 64 << 10, Settle: f.settle()})
		if errors.Is(err, store.ErrNotFound) {
			delete(f.pins, id)
			f.pinCount--
			f.pinsKnown = f.pinsKnown || f.pinsRead()
			return true, nil
		}
		if err != nil && !errors.Is(err, store.ErrTooLarge) {
			return false, err
		}
		p.due, p.read, p.as, p.asked = false, true, p.Renewed, f.clock.Wall()
		var d pinDoc
		if err == nil && document.Decode(key, body, &d) == nil {
			ttl, _ := time.ParseDuration(d.TTL)
			p.Name, p.Holder, p.Version, p.Created, p.TTL, p.Expired = d.Name, d.Holder, d.Version, d.Created, ttl.Seconds(), d.Expired
		}
		f.pins[id] = p
		f.pinsKnown = f.pinsKnown || f.pinsRead()
		return true, nil
	}
	return false, nil
}

// pinsRead reports whether all pins that are kept were read. Once they were, later ones hide the others no more:
// where pins come often, one is unread again and again.
func (f *follower) pinsRead() bool {
	for _, p := range f.pins {
		if !p.read {
			return false
		}
	}
	return true
}
