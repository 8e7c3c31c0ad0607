package verify

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// pins checks that what is pinned is there: of each version its segments, which are read
// whole, and its files; and the segments that the newest manifest names for pins alone.
func (v *verifier) pins(ctx context.Context) error {
	pins, err := v.log.Pins(ctx)
	if err != nil {
		if !unreadable(err) {
			return err
		}
		v.problem(layout.PinPrefix, "delete the pin if nobody needs it", "a pin cannot be read: %v; nothing is pruned until it can", err)
		return nil
	}
	// Of the pins of a version, one with a name is checked if there is any.
	of := map[uint64]state.PinInfo{}
	for _, p := range pins {
		if p.Expired {
			continue
		}
		if p.Renewals == 0 && p.Removable(v.m.PruneMark) {
			// Its maker reads the mark last, so it has released the pin or will. Most probably
			// this is a late copy of a creation, and a compactor deletes it.
			v.note(p.Key, "", "nobody relies on this pin: it was never renewed, and version %d is below the prune mark", p.Version)
			continue
		}
		v.report.Pins++
		if have, ok := of[p.Version]; !ok || have.Name == "" || have.TTL > 0 {
			of[p.Version] = p
		}
	}
	c := pinCheck{verifier: v}
	for _, p := range pins {
		if of[p.Version].Key != p.Key {
			continue
		}
		if err := c.version(ctx, p); err != nil {
			return err
		}
	}
	return v.truncated(ctx)
}

// pinCheck checks what pins hold.
type pinCheck struct {
	*verifier
	files map[string]int64 // the sizes of all that are there; nil until they are needed
}

// version checks what one pin holds.
func (c *pinCheck) version(ctx context.Context, p state.PinInfo) error {
	m, err := c.log.Promised(ctx, p.Version)
	if err != nil {
		return c.useless(ctx, p, err)
	}
	for s, err := range c.log.Segments(ctx, m, m.First()) {
		if err != nil {
			return c.useless(ctx, p, err)
		}
		if c.read[s.Key] {
			continue
		}
		c.read[s.Key] = true
		err := c.whole(ctx, s, "pins", 0)
		if err != nil && !unreadable(err) {
			return err
		}
		if errors.Is(err, store.ErrNotFound) {
			err = errors.New("the segment is missing")
		}
		if err := c.lost(ctx, p, s.Key, err); err != nil {
			return err
		}
	}
	if m.Live() == 0 {
		return nil
	}
	if c.files == nil {
		// The pins were listed before: what they hold was there by then.
		if c.files, err = c.fileSizes(ctx); err != nil {
			return err
		}
	}
	for f, err := range c.log.Files(ctx, m) {
		if err != nil {
			return c.useless(ctx, p, err)
		}
		var bad error
		switch size, there := c.files[f.Key]; {
		case !there:
			bad = errors.New("the file is missing")
		case size != f.Size:
			bad = errors.New("the file has another size")
		}
		if err := c.lost(ctx, p, f.Key, bad); err != nil {
			return err
		}
	}
	return nil
}

// lost reports that something that a pin holds is damaged, if bad is not nil and the pin
// is still there.
func (c *pinCheck) lost(ctx context.Context, p state.PinInfo, key string, bad error) error {
	if bad == nil {
		return nil
	}
	if there, err := c.there(ctx, p.Key); err != nil || !there {
		return err // released meanwhile
	}
	if p.TTL > 0 {
		// The pin may have come too late, and its holder be about to find out.
		c.note(key, "its holder is told when it reads it", "%s; version %d refers to it, which %s holds until it is renewed no more", about(key, bad), p.Version, p.Key)
		return nil
	}
	c.problem(key, restore, "%s; version %d refers to it, which is pinned as %q", about(key, bad), p.Version, p.Name)
	return nil
}

// useless notes a pin whose version, or a list of it, cannot be read.
func (c *pinCheck) useless(ctx context.Context, p state.PinInfo, err error) error {
	if !unreadable(err) {
		return err
	}
	if there, terr := c.there(ctx, p.Key); terr != nil || !there {
		return terr // released meanwhile
	}
	c.note(p.Key, "if its holder has just begun it takes another version; a pin with a name is of no use and may be removed",
		"the pin %q of version %d holds what is not there: %v", p.Name, p.Version, err)
	return nil
}

// there reports whether a pin is still there.
func (c *pinCheck) there(ctx context.Context, key string) (bool, error) {
	_, _, err := store.Read(ctx, c.st, key, &store.ReadOptions{Length: 1, Settle: c.opts.Settle})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// truncated checks the segments before the start of the log, which only snapshots can
// still read: those that were taken at an older version.
func (v *verifier) truncated(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		return err
	}
	m := v.m
	for s, err := range v.log.Segments(ctx, m, m.Held()) {
		if err == nil && s.End > m.Start {
			return nil
		}
		if err == nil && !v.read[s.Key] {
			err = v.segment(ctx, s, 0)
		}
		switch {
		case errors.Is(err, errMoved), err != nil && unreadable(err):
			return nil // released meanwhile, or a list, which lists reports
		case err != nil:
			return err
		}
	}
	return nil
}
