package state

import (
	"context"
	"math"
	"slices"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
)

// Pinned are the pins of a log that hold a version.
type Pinned struct {
	Versions map[uint64]bool
	All      []manifest.Pin
}

// NewPinned leaves out the pins that are expired.
func NewPinned(pins []PinInfo) Pinned {
	p := Pinned{Versions: map[uint64]bool{}}
	for _, pin := range pins {
		if !pin.Expired {
			p.Versions[pin.Version] = true
			p.All = append(p.All, pin.Pin)
		}
	}
	return p
}

// Frees reports whether a manifest may be deleted once a mark is published.
func (p Pinned) Frees(version, mark uint64) bool {
	// guard:pinned-manifest. A manifest below the prune mark is not deleted while a pin holds its
	// version.
	//
	//mutant:replace && !p.Versions[version] =>
	return version < mark && !p.Versions[version]
}

// UpTo is the last version of which the dropped objects may be deleted once a mark is published.
func (p Pinned) UpTo(mark uint64) uint64 {
	lowest := uint64(math.MaxUint64)
	for version := range p.Versions {
		lowest = min(lowest, version)
	}
	// guard:pinned-objects. While a version is pinned, no object is deleted that a later version has
	// dropped.
	//
	//mutant:replace min(mark, lowest) => mark
	return min(mark, lowest)
}

// Pruning says how a role prunes versions.
type Pruning struct {
	// Mark is the prune mark to publish: versions before it may go. The version at the mark has been
	// in the store for the grace period, which the caller knows.
	Mark uint64
	// May, if not nil, is called before the mark is published. Its error ends the pruning.
	May func(*Manifest) error
	// Pins returns the pins; m is the newest manifest, and has the mark.
	Pins func(ctx context.Context, m *Manifest) (Pinned, error)
	// Objects, if not nil, deletes what versions up to the mark have dropped.
	Objects func(ctx context.Context) error
	// Delete deletes manifests, in the order of the keys.
	Delete func(ctx context.Context, keys []string) error
}

// Prune deletes the versions before a mark, except pinned ones, and what they have dropped. The
// caller has read m as the newest manifest. It may be called at any time and any number of times,
// also by a zombie: what is before a published mark is dead, and no name is used again. Errors:
// those of [Updater.Update] and of p.
func (u *Updater) Prune(ctx context.Context, m *Manifest, p *Pruning) (err error) {
	// guard:mark-first. The prune mark is published before any version below the mark is deleted.
	if m.PruneMark < p.Mark {
		m, err = u.Update(ctx, func(c *Change) error {
			if p.May != nil {
				if err := p.May(c.Manifest); err != nil {
					return err
				}
			}
			c.PruneMark = max(c.PruneMark, p.Mark)
			return nil
		})
		if err != nil {
			return err
		}
	}
	// guard:mark-before-pins. The pins are listed after the prune mark was published.
	//
	// The pins are listed also if the manifest has the mark already: an earlier update of this role,
	// of unknown outcome, may have published it.
	//
	//mutant:replace p.Pins(ctx, m) => Pinned{}, error(nil)
	pins, err := p.Pins(ctx, m)
	if err != nil {
		return err
	}
	if p.Objects != nil {
		if err := p.Objects(ctx); err != nil {
			return err
		}
	}
	versions, err := u.log.Versions(ctx)
	if err != nil {
		return err
	}
	var dead []string
	for v := range versions {
		if pins.Frees(v, p.Mark) {
			dead = append(dead, layout.ManifestKey(v))
		}
	}
	// In order of their numbers: so each stays at least as long as those that it replaced.
	slices.Sort(dead)
	return p.Delete(ctx, dead)
}
