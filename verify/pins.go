package verify

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// pins checks that what is pinned is there: of each version its segments, which are
// read whole, and its files; and what was given up and is still named for the sake of
// pins.
func (v *verifier) pins(ctx context.Context) error {
	pins, err := v.log.Pins(ctx)
	if err != nil {
		if !damage(err) {
			return err
		}
		v.problem(layout.PinPrefix, "delete the pin if nobody needs it", "a pin cannot be read: %v; nothing is pruned until it can", err)
		return nil
	}
	// Of the pins of a version one with a name, if there is any, stands for all.
	of := map[uint64]state.PinInfo{}
	for _, p := range pins {
		if p.Expired {
			continue
		}
		if p.Renewals == 0 && p.Removable(v.m.PruneMark) {
			// Its maker looks at the mark last, so it has given the pin up or will; most
			// probably this is a late copy of a creation, and a compactor removes it.
			v.note(p.Object.Key, "", "nobody relies on this pin: it was never renewed, and version %d is not promised any more", p.Version)
			continue
		}
		v.report.Pins++
		if have, ok := of[p.Version]; !ok || have.Name == "" || have.TTL > 0 {
			of[p.Version] = p
		}
	}
	h := held{verifier: v}
	for _, p := range pins {
		if of[p.Version].Object.Key != p.Object.Key {
			continue
		}
		if err := h.version(ctx, p); err != nil {
			return err
		}
	}
	return v.givenUp(ctx)
}

// held checks what pins hold.
type held struct {
	*verifier
	files map[string]int64 // sizes of all there are; nil as long as nobody asks
}

// version checks that of one pin.
func (h *held) version(ctx context.Context, p state.PinInfo) error {
	m, err := h.log.Promised(ctx, p.Version)
	if err != nil {
		return h.useless(ctx, p, err)
	}
	for s, err := range h.log.Segments(ctx, m, m.First()) {
		if err != nil {
			return h.useless(ctx, p, err)
		}
		if h.read[s.Key] {
			continue
		}
		h.read[s.Key] = true
		err := h.whole(ctx, s)
		if err != nil && !damage(err) {
			return err
		}
		if errors.Is(err, store.ErrNotFound) {
			err = errors.New("the segment is missing")
		}
		if err := h.lost(ctx, p, s.Key, err); err != nil {
			return err
		}
	}
	if m.Live() == 0 {
		return nil
	}
	if h.files == nil {
		// After the pins were listed: what they hold was there by then.
		if h.files, err = h.fileSizes(ctx); err != nil {
			return err
		}
	}
	for f, err := range h.log.Files(ctx, m) {
		if err != nil {
			return h.useless(ctx, p, err)
		}
		var bad error
		switch size, there := h.files[f.Key]; {
		case !there:
			bad = errors.New("the file is missing")
		case size != f.Size:
			bad = errors.New("the file has another size")
		}
		if err := h.lost(ctx, p, f.Key, bad); err != nil {
			return err
		}
	}
	return nil
}

// whole reads a segment that the newest manifest does not name any more.
func (h *held) whole(ctx context.Context, s state.Segment) error {
	read := func() error {
		for f, err := range h.segs.Frames(ctx, segment.Ref{Key: s.Key, First: s.First, End: s.End, Size: s.Size, Index: s.Index}, s.First) {
			if err != nil {
				return err
			}
			h.done += f.BodyLen()
			h.opts.Progress(Progress{Stage: "pins", Done: h.done})
		}
		return nil
	}
	err := read()
	if err != nil && damage(err) {
		err = read() // once more: it may have been the way here
	}
	if err == nil {
		h.report.Segments++
		h.report.Bytes += s.Size
	}
	return err
}

// lost tells of something that a pin holds and that is not as it was, if bad says so
// and the pin is still there.
func (h *held) lost(ctx context.Context, p state.PinInfo, key string, bad error) error {
	if bad == nil {
		return nil
	}
	if there, err := h.there(ctx, p.Object.Key); err != nil || !there {
		return err // released meanwhile
	}
	if p.TTL > 0 {
		// It may have come too late, and its holder be about to find out.
		h.note(key, "its holder is told when it reads it", "%s; version %d refers to it, which %s holds until it is renewed no more", about(key, bad), p.Version, p.Object.Key)
		return nil
	}
	h.problem(key, restore, "%s; version %d refers to it, which is pinned as %q", about(key, bad), p.Version, p.Name)
	return nil
}

// useless tells of a pin whose version, or its lists, cannot be read.
func (h *held) useless(ctx context.Context, p state.PinInfo, err error) error {
	if !damage(err) && !errors.Is(err, state.ErrGone) {
		return err
	}
	if there, terr := h.there(ctx, p.Object.Key); terr != nil || !there {
		return terr // released meanwhile
	}
	h.note(p.Object.Key, "if its holder has just begun it takes another version; a pin with a name is of no use and may be removed",
		"the pin %q of version %d holds what is not there: %v", p.Name, p.Version, err)
	return nil
}

// there reports whether a pin is still there.
func (h *held) there(ctx context.Context, key string) (bool, error) {
	_, _, err := store.Read(ctx, h.st, key, &store.ReadOptions{Length: 1, Settle: h.opts.Settle})
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// givenUp checks the segments that only snapshots can still read: they are behind the
// floor of the version that is pinned.
func (v *verifier) givenUp(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		if errors.Is(err, errNoManifest) {
			return nil
		}
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
		case errors.Is(err, errOvertaken), errors.Is(err, errNoManifest), errors.Is(err, state.ErrGone), err != nil && damage(err):
			return nil // let go meanwhile; or a list that lists tells about
		case err != nil:
			return err
		}
	}
	return nil
}
