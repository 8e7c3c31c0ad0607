package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

// pinName is the name of all pins of a table.
func (p *pub) pinName() string { return p.format.Name() + "/" + p.state.Meta().ID }

// hold pins a version of the log for what is about to be published, if the one that the table
// names is old. A pin on a version keeps all files that were live then or later.
//
// guard:delta-pin-first. Before a publisher creates a Delta version, a pin holds the manifest version
// with which it read the log, or an older one.
//
//mutant:replace w.r.Pin(ctx, name, w.table.Version(), 0) => manifest.Pin{Key: "none", Version: w.table.Version()}, error(nil)
func (p *pub) hold(ctx context.Context, w *work) error {
	_, old, known := p.state.Source(w.log)
	name := p.pinName()
	if w.pin.Key != "" && (w.pin.Name != name || w.pin.Version > w.table.Version() || known && w.pin.Version <= old.Manifest) {
		// guard:delta-pin-named. A publisher releases a pin of its own at once only if no Delta version
		// can name it.
		//
		//mutant:replace if !w.named { => if true {
		if !w.named {
			if err := w.release(ctx, w.pin); err != nil {
				return err
			}
		}
		if w.named {
			p.due.Store(true)
		}
		w.pin, w.named = manifest.Pin{}, false
	}
	// A pin that read takes has two requests less. So this one waits for it, but not for long.
	often := holdsPerRetention
	if w.warm {
		often /= 2
	}
	if w.pin.Key != "" || known && !p.holdDue(w.source, often) {
		return nil
	}
	pin, err := w.r.Pin(ctx, name, w.table.Version(), 0)
	switch {
	case errors.Is(err, reader.ErrGone):
		return errAgain
	case err != nil:
		return err
	case pin.Version != w.table.Version(): // there was no manifest, and now there is one
		return errors.Join(errAgain, w.r.Release(ctx, pin))
	}
	w.pin, w.pins = pin, append(w.pins, pin)
	return nil
}

// holdDue reports whether a source that the table has needs a new hold, if holds move so often in each
// retention: the hold is old enough, and there is a newer manifest to hold.
func (p *pub) holdDue(s *source, often int) bool {
	if p.state.Meta() == nil {
		return false
	}
	_, old, known := p.state.Source(s.log)
	age := p.opts.Clock.Wall().Sub(time.UnixMilli(old.Held)).Abs() // a clock may have gone back
	return known && !old.Gone && age >= p.state.Meta().Retention/time.Duration(often) && s.table.Version() > old.Manifest
}

// release releases a pin, and forgets it.
func (s *source) release(ctx context.Context, pin manifest.Pin) error {
	if err := s.r.Release(ctx, pin); err != nil {
		return err
	}
	s.pins = slices.DeleteFunc(s.pins, func(p manifest.Pin) bool { return p.Key == pin.Key })
	return nil
}

// renew returns a step without an edit if the hold of a source must move and no edit moves it.
//
// tuning:delta-idle-hold. If the pin that the table names for a log without new edits is older than the
// retention, a publisher pins a newer manifest.
//
//mutant:replace age < retention => age < 1000*retention
func (p *pub) renew(s *source) []step {
	edits, h, known := p.state.Source(s.log)
	if !known {
		return nil
	}
	retention := p.state.Meta().Retention
	age := p.opts.Clock.Wall().Sub(time.UnixMilli(h.Held)).Abs() // a clock may have gone back
	if age < retention || s.table.Version() <= h.Manifest {
		return nil
	}
	// Publishers whose clocks differ by more than the retention take each other's holds for old.
	now := p.opts.Clock.Now()
	if s.renewed != nil && now.Sub(*s.renewed) < retention/holdsPerRetention {
		return nil
	}
	s.renewed = &now
	return []step{{edits: edits, place: h.place()}}
}

// untidy reports whether there may be something to let go of: a hold or a checkpoint is new, or
// the table is idle.
func (p *pub) untidy() bool {
	if due := p.due.Load(); due || p.state == nil || p.state.Meta() == nil {
		return due
	}
	every := p.state.Meta().Retention / holdsPerRetention
	if p.tidied != nil && p.opts.Clock.Now().Sub(*p.tidied) <= every {
		return false // a hold may be old for years: that of an idle source, or of another publisher's
	}
	for _, h := range p.state.Holds() {
		if p.opts.Clock.Wall().Sub(time.UnixMilli(h.Held)) > every {
			return true
		}
	}
	return false
}

// tidy lets go of what no version within the retention names: pins of the sources, and what only
// older versions of the table need.
func (p *pub) tidy(ctx context.Context) error {
	p.due.Store(false)
	if p.state == nil || p.state.Version() < 0 {
		return nil
	}
	manifests, clean, err := p.table.Expire(ctx, p.state)
	if err != nil || manifests == nil {
		return err
	}
	p.needed = manifests
	// What cannot be let go of in one log keeps nobody from the others.
	return errors.Join(p.unpin(ctx, p.sources, p.state.Meta().Retention), clean(ctx))
}

// needed is the manifest of each log that the oldest version within the retention names.
type needed map[fence.ID]uint64

// sweep finds the pins of publishers that died, twice in each retention. It does so in rounds that publish
// nothing: those have the fewest requests. A publisher of which each round publishes something does it
// in tidy, once in each retention.
func (p *pub) sweep(ctx context.Context) error {
	if p.needed == nil || p.state == nil {
		return nil
	}
	every := p.state.Meta().Retention / listsPerRetention
	var todo []*source
	for _, s := range p.sources {
		if s.bad == nil && p.unlisted(s, every) {
			todo = append(todo, s)
		}
	}
	return p.unpin(ctx, todo, every)
}

// unlisted reports whether the pins of a source were not listed for so long. After a try in vain it says
// so only after a while: a pin that cannot be read may stay in the log for ever.
func (p *pub) unlisted(s *source, every time.Duration) bool {
	now, again := p.opts.Clock.Now(), p.state.Meta().Retention/holdsPerRetention
	return (s.listed == nil || now.Sub(*s.listed) >= every) && (s.sought == nil || now.Sub(*s.sought) >= again)
}

// unpin releases the pins of this table on some sources that hold versions below those that are needed, as
// far as they are known. It lists the pins of a log if they were not listed for so long. Everything is
// published already. So what fails is told to Hooks.Failed, and holds up neither the round nor the other
// sources. Errors of sources that were left out are told already.
func (p *pub) unpin(ctx context.Context, sources []*source, every time.Duration) error {
	for _, s := range sources {
		oldest, ok := p.needed[s.log]
		if !ok || s.r == nil || s.twin != "" {
			// It is not in that version yet, so later ones need all its pins. Or nobody can say
			// which of its pins are needed: they stay until a round can.
			continue
		}
		err := p.unpinOne(ctx, s, oldest, every)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && s.bad == nil {
			p.opts.Hooks.Failed(fmt.Errorf("%s: old pins of the table are still there: %w", s.name, err))
		}
	}
	return nil
}

func (p *pub) unpinOne(ctx context.Context, s *source, oldest uint64, every time.Duration) (unread error) {
	// The publisher knows its own pins. Those of publishers that died are found now and then.
	if p.unlisted(s, every) {
		now := p.opts.Clock.Now()
		s.sought = &now
		pins, err := s.r.Pins(ctx)
		if err == nil {
			s.pins, s.listed = pins, &now
		}
		unread = err // the pins that are known can be released all the same
	}
	for _, pin := range slices.Clone(s.pins) {
		if pin.Name != p.pinName() || pin.TTL != 0 || pin.Key == s.pin.Key {
			continue
		}
		// guard:delta-unpin. Cleanup releases a pin of the table only if its manifest version is below
		// the one that the oldest Delta version within the retention names.
		//
		//mutant:replace pin.Version < oldest => pin.Version < oldest+1000
		if pin.Version < oldest {
			if err := s.release(ctx, pin); err != nil {
				return errors.Join(unread, err)
			}
		}
	}
	return unread
}
