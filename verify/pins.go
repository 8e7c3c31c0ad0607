package verify

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// pins checks that what is pinned is there: of each version its segments, which are read
// whole, and its files; and the segments that the newest manifest names for pins alone.
func (v *verifier) pins(ctx context.Context) error {
	pins, damaged, err := v.log.SoundPins(ctx)
	if err != nil {
		return err
	}
	for key, err := range damaged {
		if errors.Is(err, fence.ErrFormat) {
			return err
		}
		v.problem(key, "", "%s; nothing is pruned until it can be read", about(key, err))
	}
	// Of the pins of a version, one that somebody relies on is checked if there is any.
	of := map[uint64]state.PinInfo{}
	for _, p := range pins {
		if p.Expired {
			continue
		}
		if p.Version > v.m.Version {
			// It may have been published since the newest manifest was read.
			if err := v.refresh(ctx); err != nil {
				return err
			}
			if there, err := v.there(ctx, p.Key); err != nil {
				return err
			} else if there && p.Version > v.m.Version && !reliedOn(p) {
				v.note(p.Key, "", "nobody relies on this pin of version %d, and the newest manifest is %d", p.Version, v.m.Version)
				continue
			} else if there && p.Version > v.m.Version {
				v.problem(p.Key, restore+"; "+keep, "the pin %q holds version %d, and the newest manifest is %d: newer ones are missing", p.Name, p.Version, v.m.Version)
				continue
			}
		}
		if p.Renewals == 0 && p.Removable(v.m.PruneMark) {
			// Its maker reads the mark last, so it has released the pin or will. Most probably
			// this is a late copy of a creation, and a compactor deletes it.
			v.note(p.Key, "", "nobody relies on this pin: it was never renewed, and version %d is below the prune mark", p.Version)
			continue
		}
		v.report.Pins++
		if have, ok := of[p.Version]; !ok || !reliedOn(have) {
			of[p.Version] = p
		}
	}
	for _, p := range pins {
		if of[p.Version].Key != p.Key {
			continue
		}
		if err := v.pinned(ctx, p); err != nil {
			return err
		}
	}
	return v.truncated(ctx)
}

// pinned checks what one pin holds.
func (v *verifier) pinned(ctx context.Context, p state.PinInfo) error {
	m, err := v.log.Promised(ctx, p.Version)
	if err != nil {
		return v.unheld(ctx, p, layout.ManifestKey(p.Version), err)
	}
	return v.named(ctx, m, func(string) bool { return true }, func(key string, err error) error { return v.unheld(ctx, p, key, err) })
}

// named checks the objects that a version names and that are wanted: its segments and files,
// and its pages. Those that were found sound before are not read again. It calls bad with what
// is wrong with each.
func (v *verifier) named(ctx context.Context, m *state.Manifest, wanted func(key string) bool, bad func(key string, err error) error) error {
	for _, p := range v.log.Pages(m) {
		if !wanted(p.Key) {
			continue
		}
		if err := p.Check(ctx); err != nil {
			if !unreadable(err) {
				return err
			}
			// What the page lists is not known then.
			return bad(p.Key, err)
		}
	}
	for s, err := range v.log.Segments(ctx, m, m.First()) {
		if err != nil && unreadable(err) {
			return nil // a page that is not wanted has been pruned meanwhile
		}
		if err != nil {
			return err
		}
		if v.read[s.Key] || !wanted(s.Key) {
			continue
		}
		switch err := v.whole(ctx, s, "pins", 0); {
		case err == nil:
			v.read[s.Key] = true
		case !unreadable(err):
			return err
		default:
			if err := bad(s.Key, err); err != nil {
				return err
			}
		}
	}
	var files []manifest.File
	for f, err := range v.log.Files(ctx, m) {
		if err != nil && unreadable(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if wanted(f.Key) {
			f.Meta = nil // not needed, and it may be long
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil
	}
	// What the version names was there when its pin was listed, or the mark was read.
	broken, err := v.badFiles(ctx, files, "pins")
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := broken[f.Key]; err != nil {
			if err := bad(f.Key, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// unheld reports that something that a pin holds is damaged, if the pin is still there.
func (v *verifier) unheld(ctx context.Context, p state.PinInfo, key string, bad error) error {
	if !unreadable(bad) {
		return bad
	}
	p, err := v.log.ReadPin(ctx, p.Key)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && p.Expired:
		return nil // released or expired meanwhile: it holds nothing any more
	case err != nil && !unreadable(err):
		return err
	case err != nil:
		v.problem(p.Key, "", "%s; nothing is pruned until it can be read", about(p.Key, err))
		return nil
	}
	gone := errors.Is(bad, errNoFile)
	if errors.Is(bad, store.ErrNotFound) || errors.Is(bad, state.ErrPruned) {
		gone, bad = true, errMissing
	}
	// guard:pin-relied. It is a problem if an object that a pin holds is missing.
	//
	//mutant:replace !reliedOn(p) => p.TTL > 0
	if gone && !reliedOn(p) {
		v.note(key, "its holder is told when it reads it", "%s; version %d refers to it, which %s holds until it is renewed no more", about(key, bad), p.Version, p.Key)
		return nil
	}
	v.problem(key, restore+"; if nobody needs the version, remove its pin", "%s; version %d refers to it, which is pinned as %q by %s", about(key, bad), p.Version, p.Name, p.Key)
	return nil
}

// reliedOn reports whether somebody relies on a pin. One without a name that was renewed at most
// once may be that of a snapshot that is being opened: its maker swaps it once, and then looks
// whether its version is still promised. If the maker has died before that, the pin has lapsed since, but stays until a
// compactor expires it.
func reliedOn(p state.PinInfo) bool { return (p.Name != "" || p.Renewals > 1) && !p.Lapsed(0) }

// there reports whether a pin is still there.
func (v *verifier) there(ctx context.Context, key string) (bool, error) {
	_, _, err := store.Read(ctx, v.st, key, &store.ReadOptions{Length: 1, Settle: v.opts.Settle})
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
