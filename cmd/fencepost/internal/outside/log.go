package outside

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// How much a follower remembers.
const (
	maxTerms     = 500
	maxManifests = 60
	maxSeals     = 500
	maxSamples   = 240
	maxPins      = 200
)

// maxValidityMS is the longest validity that an election accepts.
const maxValidityMS = 24 * 3600 * 1000

// follower watches one log, or one lock without a log. It is for one goroutine.
type follower struct {
	*Hub
	st       store.Store
	log      *state.Log // nil: there is only a lock
	complete bool       // every job was done once

	locks     map[uint64]store.Info // of the leaders, by epoch
	terms     map[uint64]Term
	newest    uint64 // the newest epoch that has a lock
	beat      beat   // of the newest lock
	compactor *Term
	compacts  beat // of the compactors' newest lock
	m         *state.Manifest
	manifests []Manifest
	slots     slots
	pins      map[string]Pin
	pinCount  int
	published published
	samples   []Sample
}

// followLog watches a log until something else, or another log, is in its place. A tick reads the newest
// lock: one request. Each second tick reads the newest manifest and lists what was appended: three. Each
// eighth lists the locks and the pins, and looks for the compactor, for what was published, and whether the
// log is still there: seven at most. So eight ticks take 27 requests or less, which leaves some for the locks
// of past leaders.
func (h *Hub) followLog(ctx context.Context, i int, st store.Store, format manifest.Format) error {
	log := state.With(st, format, &state.Options{Settle: h.settle(), Clock: h.clock})
	f := h.follower(st)
	f.log, f.pins, f.slots.seals = log, map[string]Pin{}, map[fence.Epoch]uint64{}
	other := func() (bool, error) {
		now, err := manifest.ReadFormat(ctx, st, h.settle())
		return errors.Is(err, manifest.ErrNotInitialized) || err == nil && now.Log != format.Log, err
	}
	return h.repeat(ctx, i, other, func(n int) error {
		for _, job := range f.jobs(n) {
			if err := job(ctx); err != nil {
				return err
			}
			view := f.view() // at once: the next request may have to wait for its turn
			h.update(i, func(s *State) { s.Log = view })
		}
		if err := f.history(ctx); err != nil {
			return err
		}
		f.complete = true
		view := f.view()
		h.update(i, func(s *State) { s.Log, s.Err = view, "" })
		return nil
	})
}

// follower returns one that knows nothing yet.
func (h *Hub) follower(st store.Store) *follower {
	return &follower{Hub: h, st: st, locks: map[uint64]store.Info{}, terms: map[uint64]Term{}}
}

// jobs are those of a tick, the most important first.
func (f *follower) jobs(n int) []func(context.Context) error {
	jobs := []func(context.Context) error{func(ctx context.Context) error { return f.findLeader(ctx, n%8 == 0) }}
	if n%2 == 0 {
		jobs = append(jobs, f.readManifest, f.findTail)
	}
	if n%8 == 0 {
		jobs = append(jobs, f.readCompactor, f.listPins, f.readPublished)
	}
	return jobs
}

func (f *follower) lead() *Term {
	t := f.terms[f.newest]
	return &t
}

// findLeader reads the newest lock. If nobody leads by it, a later one may be there already. So who leads is
// not in doubt until the next tick when one leader follows another.
func (f *follower) findLeader(ctx context.Context, list bool) error {
	for {
		listed := list || f.newest == 0 || !f.lead().Leads()
		if listed {
			if err := f.listLocks(ctx); err != nil {
				return err
			}
		}
		if err := f.readLock(ctx); err != nil || listed || f.newest > 0 && f.lead().Leads() {
			return err
		}
	}
}

// listLocks finds the newest epoch.
func (f *follower) listLocks(ctx context.Context) error {
	locks, newest, err := f.listNumbered(ctx, layout.LockPrefix)
	if err != nil {
		return err
	}
	f.locks, f.newest = locks, max(f.newest, newest)
	maps.DeleteFunc(f.terms, func(e uint64, _ Term) bool { _, ok := locks[e]; return !ok && e != f.newest })
	return nil
}

func (f *follower) listNumbered(ctx context.Context, prefix string) (all map[uint64]store.Info, newest uint64, err error) {
	all = map[uint64]store.Info{}
	for info, err := range store.ListAll(ctx, f.st, prefix, nil, f.settle()) {
		if err != nil {
			return nil, 0, err
		}
		if n, ok := layout.ParseLockKey(prefix, info.Key); ok {
			all[n] = info
			newest = max(newest, n)
		}
	}
	return all, newest, nil
}

// readLock reads the newest lock.
func (f *follower) readLock(ctx context.Context) error {
	if f.newest == 0 {
		return nil
	}
	term, version, err := f.term(ctx, layout.LockPrefix, f.newest)
	if errors.Is(err, store.ErrNotFound) {
		delete(f.terms, f.newest)
		f.newest = 0
		return nil
	}
	if err != nil {
		return err
	}
	f.beat.look(&term, version, f.clock.Now())
	f.terms[f.newest] = term
	return nil
}

// beat is the version of a lock, and since when it is known.
type beat struct {
	version store.Version
	since   clock.Instant
}

// look marks a leader as lapsed that was seen twice without a heartbeat between.
func (b *beat) look(t *Term, version store.Version, now clock.Instant) {
	if version != b.version {
		*b = beat{version, now}
	}
	if validity := time.Duration(t.Validity * float64(time.Second)); t.Leads() && now.Sub(b.since) > validity+validity/10 {
		t.State = "lapsed"
	}
}

// lockDoc is the JSON of a lock, as docs/format.md has it.
type lockDoc struct {
	Epoch      uint64    `json:"epoch"`
	State      string    `json:"state"`
	Holder     string    `json:"holder"`
	ValidityMS int64     `json:"validity_ms"`
	Acquired   time.Time `json:"acquired"`
	Renewed    time.Time `json:"renewed"`
	Renewals   uint64    `json:"renewals"`
	Reason     string    `json:"reason"`
	ExpiredBy  string    `json:"expired_by"`
	Next       uint64    `json:"next"`
}

func (f *follower) term(ctx context.Context, prefix string, epoch uint64) (Term, store.Version, error) {
	key := layout.NumberedKey(prefix, epoch)
	body, info, err := store.Read(ctx, f.st, key, &store.ReadOptions{Limit: 64 << 10, Settle: f.settle()})
	if err != nil {
		return Term{}, "", err
	}
	var l lockDoc
	if err := document.Decode(key, body, &l); err != nil {
		return Term{}, "", err
	}
	validity := time.Duration(min(max(l.ValidityMS, 0), maxValidityMS)) * time.Millisecond
	if !slices.Contains([]string{"held", "draining", "expired"}, l.State) {
		return Term{}, "", document.Corrupt(key, "state is %q", l.State)
	}
	t := Term{
		Epoch: epoch, Known: true, Holder: l.Holder, State: l.State, From: l.Acquired, To: l.Renewed,
		Validity: validity.Seconds(), Renewals: l.Renewals, Reason: l.Reason, By: l.ExpiredBy,
	}
	if age, ok := info.Age(); ok && t.Leads() && age > validity+5*time.Second {
		t.State = "lapsed"
	}
	return t, info.Version, nil
}

// history reads the locks of past leaders, as far as the budget allows.
func (f *follower) history(ctx context.Context) error {
	for more := true; more && f.budget.spare(); {
		var err error
		if more, err = f.past(ctx); err != nil {
			return err
		}
	}
	return nil
}

// past reads one lock of a past leader, the newest that is not known. It reports whether
// there may be more.
func (f *follower) past(ctx context.Context) (more bool, err error) {
	epochs := []uint64{}
	for e := range f.locks {
		if t, ok := f.terms[e]; e != f.newest && (!ok || t.Leads()) {
			epochs = append(epochs, e)
		}
	}
	if len(epochs) == 0 || len(f.terms) >= maxTerms {
		return false, nil
	}
	e := slices.Max(epochs)
	term, _, err := f.term(ctx, layout.LockPrefix, e)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
		delete(f.locks, e)
		delete(f.terms, e)
		return true, nil
	case err != nil:
		return false, err
	}
	if term.Leads() { // a late request has left it in the hole of a pruned lock: nobody led
		delete(f.locks, e)
		return true, nil
	}
	f.terms[e] = term
	return true, nil
}

// readManifest reads the newest manifest, and notes who wrote it.
func (f *follower) readManifest(ctx context.Context) error {
	m, err := f.log.Newest(ctx)
	if err != nil {
		return err
	}
	last := f.m
	f.m = m
	at := f.clock.Wall()
	// A leader notes its records every ten seconds. Between two notes nothing is known of the rate.
	if n := len(f.samples); n == 0 || m.Tail().Offset != f.samples[n-1].Records || at.Sub(f.samples[n-1].At) > max(3*f.tick, 30*time.Second) {
		f.samples = append(f.samples, Sample{At: at, Records: m.Tail().Offset})
		f.samples = f.samples[max(0, len(f.samples)-maxSamples):]
	}
	if m.Version == 0 || last != nil && m.Version == last.Version {
		return nil
	}
	row := Manifest{Version: m.Version, Written: m.Written, Floor: m.Floor.Position, Noted: m.Tail().Position, Offset: m.Tail().Offset}
	if last != nil {
		row.Missed = m.Version - last.Version - 1
	}
	for role, r := range m.Roles {
		if last != nil && last.Roles[role] != r || len(m.Roles) == 1 {
			if row.By != "" {
				row.By += ", "
			}
			row.By += string(role)
			row.Epoch = uint64(r.Epoch)
		}
	}
	f.manifests = append([]Manifest{row}, f.manifests...)
	f.manifests = f.manifests[:min(len(f.manifests), maxManifests)]
	return nil
}

// readCompactor looks for the newest compactor.
func (f *follower) readCompactor(ctx context.Context) error {
	_, newest, err := f.listNumbered(ctx, layout.CompactorLockPrefix)
	if err != nil {
		return err
	}
	if newest == 0 {
		f.compactor = nil
		return nil
	}
	t, version, err := f.term(ctx, layout.CompactorLockPrefix, newest)
	if errors.Is(err, store.ErrNotFound) {
		return nil // pruned since: there is a newer one
	}
	if err != nil {
		return err
	}
	f.compacts.look(&t, version, f.clock.Now())
	f.compactor = &t
	return nil
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

// listPins lists the pins, and reads those that are new as far as the budget allows.
func (f *follower) listPins(ctx context.Context) error {
	now, n := map[string]Pin{}, 0
	for info, err := range store.ListAll(ctx, f.st, layout.PinPrefix, nil, f.settle()) {
		if err != nil {
			return err
		}
		id, ok := layout.ParsePinKey(info.Key)
		if !ok {
			continue
		}
		if n++; len(now) >= maxPins {
			continue
		}
		p, known := f.pins[id]
		if !known {
			p = Pin{ID: id}
		}
		if !info.LastModified.IsZero() {
			p.Renewed = info.LastModified
		}
		now[id] = p
	}
	gone := 0
	for id, p := range now {
		over := p.Holder != "" && !p.Expired && f.clock.Wall().After(p.Renewed.Add(time.Duration(p.TTL*float64(time.Second))))
		if p.Holder != "" && !over || !f.budget.spare() {
			continue // a pin that is over may be found expired
		}
		key := layout.PinKey(id)
		body, _, err := store.Read(ctx, f.st, key, &store.ReadOptions{Limit: 64 << 10, Settle: f.settle()})
		var d pinDoc
		switch {
		case errors.Is(err, store.ErrNotFound):
			delete(now, id)
			gone++
			continue
		case err != nil:
			return err
		case document.Decode(key, body, &d) != nil:
			continue
		}
		ttl, _ := time.ParseDuration(d.TTL)
		p.Name, p.Holder, p.Version, p.Created, p.TTL, p.Expired = d.Name, d.Holder, d.Version, d.Created, ttl.Seconds(), d.Expired
		now[id] = p
	}
	f.pins, f.pinCount = now, n-gone
	return nil
}

// sealSize is the size of a seal. An object with records is larger.
const sealSize = frame.HeaderSize
