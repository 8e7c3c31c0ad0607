package outside

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// How much a follower remembers.
const (
	maxTerms     = 500
	maxManifests = 60
	maxSeals     = 500
	maxSamples   = 240
)

// maxValidityMS is the longest validity that an election accepts.
const maxValidityMS = 24 * 3600 * 1000

// follower watches one log, or one lock without a log. It is for one goroutine.
type follower struct {
	*Hub
	st   store.Store
	log  *inspect.Log // nil: there is only a lock
	jobs struct{ place, leader, manifest, compactor, pins, published, versions, past job }

	locks     map[fence.Epoch]store.Info // of the leaders
	terms     map[fence.Epoch]survey.Term
	newest    fence.Epoch   // the newest that has a lock
	unlisted  int           // how often the newest lock was read since the locks were listed
	beat      beat          // of the newest lock
	free      int           // how often in a row nobody led
	asked     clock.Instant // when the leader was last looked for
	compactor survey.Term
	compacts  beat // of the compactors' newest lock
	idle      int  // how often in a row nobody compacted
	m         *inspect.State
	manifests []Manifest
	slots     slots
	pins      map[string]keptPin
	pinCount  int
	pinsKnown bool // all pins were read once
	published published
	samples   []Sample
}

// followLog watches a log until something else, or another log, is in its place. A tick reads the newest
// lock: one request. Each second tick reads the newest manifest and lists what was appended, and reads the last of it: four. Each
// eighth lists the locks and the pins, and looks for the compactor, for what was published, and whether the
// log is still there: seven at most. So eight ticks take 31 requests or less, and four more when the compactor has
// gone, which leaves some for pins and for the locks of past leaders.
func (h *Hub) followLog(ctx context.Context, i int, st store.Store, log *inspect.Log) {
	f := h.follower(st)
	f.log, f.pins, f.slots.seals = log, map[string]keptPin{}, map[fence.Epoch]uint64{}
	f.jobs.place.do = func(ctx context.Context) error {
		now, err := manifest.ReadFormat(ctx, st, h.settle())
		if errors.Is(err, manifest.ErrNotInitialized) || err == nil && now.Log != log.Format().Log {
			return errElsewhere
		}
		return err
	}
	j := &f.jobs
	all := []*job{&j.place, &j.leader, &j.manifest, &j.compactor, &j.pins, &j.published, &j.versions, &j.past}
	f.repeat(ctx, i, all, func(s *State) { s.Log = f.view() })
}

// follower returns one that knows nothing yet.
func (h *Hub) follower(st store.Store) *follower {
	f := &follower{Hub: h, st: st, locks: map[fence.Epoch]store.Info{}, terms: map[fence.Epoch]survey.Term{}}
	j := &f.jobs
	j.place = job{every: 8, wait: 8}
	j.leader = job{every: 1, do: f.findLeader}
	j.manifest = job{every: 2, do: f.readChain}
	j.compactor = job{every: 8, do: f.readCompactor}
	j.pins = job{every: 8, do: f.listPins}
	j.published = job{every: 8, do: f.readPublished, aside: true} // the rights to read a log may not cover the table
	j.versions = job{every: 1, do: func(ctx context.Context) error { return f.spare(ctx, f.readPin) }}
	j.past = job{every: 1, do: func(ctx context.Context) error { return f.spare(ctx, f.past) }}
	return f
}

func (f *follower) lead() survey.Term { return f.terms[f.newest] }

// findLeader reads the newest lock. If nobody leads by it, a later one may be there already. So who leads is
// not in doubt until the next tick when one leader follows another.
func (f *follower) findLeader(ctx context.Context) error {
	f.unlisted++
	defer func() { f.asked = f.clock.Now() }()
	for {
		listed := f.unlisted >= 8 || f.newest == 0 || !f.lead().Leads
		if listed {
			if err := f.listLocks(ctx); err != nil {
				return err
			}
		}
		if err := f.readLock(ctx); err != nil || listed || f.newest > 0 && f.lead().Leads {
			return err
		}
	}
}

// listLocks finds the newest epoch.
func (f *follower) listLocks(ctx context.Context) error {
	locks, newest, err := f.list(ctx, inspect.Lock)
	if err != nil {
		return err
	}
	f.locks, f.newest, f.unlisted = locks, max(f.newest, newest), 0
	maps.DeleteFunc(f.terms, func(e fence.Epoch, _ survey.Term) bool { _, ok := locks[e]; return !ok && e != f.newest })
	return nil
}

// list lists the locks of an election.
func (f *follower) list(ctx context.Context, of inspect.Kind) (all map[fence.Epoch]store.Info, newest fence.Epoch, err error) {
	all = map[fence.Epoch]store.Info{}
	for info, err := range store.ListAll(ctx, f.st, of.Prefix(), nil, f.settle()) {
		if err != nil {
			return nil, 0, err
		}
		if n := inspect.Parse(info.Key); n.Kind == of && n.Number > 0 {
			e := fence.Epoch(n.Number)
			all[e] = info
			newest = max(newest, e)
		}
	}
	return all, newest, nil
}

// readLock reads the newest lock.
func (f *follower) readLock(ctx context.Context) error {
	if f.newest == 0 {
		return nil
	}
	term, version, err := f.term(ctx, inspect.Lock, f.newest)
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
func (b *beat) look(t *survey.Term, version store.Version, now clock.Instant) {
	if version != b.version {
		*b = beat{version, now}
	}
	if validity := t.Lasts(); t.Leads && now.Sub(b.since) > validity+validity/10 {
		t.Lapse()
	}
}

// lockDoc is the JSON of a lock, as docs/format.md has it.
type lockDoc struct {
	Epoch       uint64      `json:"epoch"`
	State       string      `json:"state"`
	Holder      string      `json:"holder"`
	ValidityMS  int64       `json:"validity_ms"`
	Acquired    time.Time   `json:"acquired"`
	Renewed     time.Time   `json:"renewed"`
	Renewals    uint64      `json:"renewals"`
	Transitions uint64      `json:"transitions"`
	Reason      string      `json:"reason"`
	ExpiredBy   string      `json:"expired_by"`
	Next        fence.Epoch `json:"next"`
}

func (f *follower) term(ctx context.Context, of inspect.Kind, epoch fence.Epoch) (t survey.Term, version store.Version, err error) {
	key := inspect.Name{Kind: of, Number: uint64(epoch)}.Key()
	body, info, err := store.Read(ctx, f.st, key, &store.ReadOptions{Limit: 64 << 10, Settle: f.settle()})
	if err != nil {
		return t, "", err
	}
	var l lockDoc
	if err := document.Decode(key, body, &l); err != nil {
		return t, "", err
	}
	validity := time.Duration(min(max(l.ValidityMS, 0), maxValidityMS)) * time.Millisecond
	if !slices.Contains([]string{"held", "draining", "expired"}, l.State) {
		return t, "", document.Corrupt(key, "state is %q", l.State)
	}
	t = survey.TermOf(leader.Record{
		Epoch: epoch, State: leader.State(l.State), Holder: l.Holder, Validity: validity, Acquired: l.Acquired, Renewed: l.Renewed,
		Renewals: l.Renewals, Transitions: l.Transitions, Reason: l.Reason, ExpiredBy: l.ExpiredBy, Next: l.Next,
	})
	if age, ok := info.Age(); ok && t.Leads && age > validity+5*time.Second {
		t.Lapse()
	}
	return t, info.Version, nil
}

// spare does something as often as there is more to do and the budget has room to spare.
func (f *follower) spare(ctx context.Context, do func(context.Context) (more bool, err error)) error {
	for more := true; more && f.budget.spare(); {
		var err error
		if more, err = do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// past reads one lock of a past leader, the newest that is not known. It reports whether
// there may be more. Of too many it forgets the oldest.
func (f *follower) past(ctx context.Context) (more bool, err error) {
	epochs := slices.Sorted(maps.Keys(f.locks))
	epochs = epochs[max(0, len(epochs)-maxTerms):]
	maps.DeleteFunc(f.terms, func(e fence.Epoch, _ survey.Term) bool { return e != f.newest && len(epochs) > 0 && e < epochs[0] })
	unknown := slices.DeleteFunc(epochs, func(e fence.Epoch) bool {
		t, ok := f.terms[e]
		return e == f.newest || ok && !t.Leads
	})
	if len(unknown) == 0 {
		return false, nil
	}
	e := slices.Max(unknown)
	term, _, err := f.term(ctx, inspect.Lock, e)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
		delete(f.locks, e)
		delete(f.terms, e)
		return true, nil
	case err != nil:
		return false, err
	}
	if term.Leads { // a late request has left it in the hole of a pruned lock: nobody led
		delete(f.locks, e)
		return true, nil
	}
	f.terms[e] = term
	return true, nil
}

// readChain reads the newest manifest, and then lists what was appended.
func (f *follower) readChain(ctx context.Context) error {
	if err := f.readManifest(ctx); err != nil {
		return err
	}
	return f.findTail(ctx)
}

// newestManifest returns the newest manifest. A backup of the same log may have been restored in its place: then
// there is only an older one than f.log has seen, which is damage to it. So if there is damage a second time, the
// store is asked once more, as if nothing was known. By then it is known that the log is there.
func (f *follower) newestManifest(ctx context.Context) (*inspect.State, error) {
	m, err := f.log.Newest(ctx)
	if errors.Is(err, fence.ErrCorrupt) && f.jobs.manifest.failed > 0 {
		if anew, err := inspect.Open(ctx, f.st, f.settle()); err == nil {
			if older, err := anew.Newest(ctx); err == nil && older.Version > 0 {
				f.log = anew
				return older, nil
			}
		}
	}
	return m, err
}

// readManifest reads the newest manifest, and notes who wrote it.
func (f *follower) readManifest(ctx context.Context) error {
	m, err := f.newestManifest(ctx)
	if err != nil {
		return err
	}
	if f.m != nil && (m.Version < f.m.Version || m.Noted.Before(f.m.Noted)) { // restored
		f.m, f.manifests, f.samples, f.slots = nil, nil, nil, slots{seals: map[fence.Epoch]uint64{}}
	}
	last := f.m
	f.m = m
	at := f.clock.Wall()
	// A leader notes its records every ten seconds. Between two notes nothing is known of the rate.
	if n := len(f.samples); n == 0 || m.NotedOffset != f.samples[n-1].Records || at.Sub(f.samples[n-1].At) > max(3*f.tick, 30*time.Second) {
		f.samples = append(f.samples, Sample{At: at, Records: m.NotedOffset})
		f.samples = f.samples[max(0, len(f.samples)-maxSamples):]
	}
	if m.Version == 0 || last != nil && m.Version == last.Version {
		return nil
	}
	row := Manifest{Version: m.Version, Written: m.Written, Floor: m.Floor, Noted: m.Noted, Offset: m.NotedOffset}
	if last != nil {
		row.Missed = m.Version - last.Version - 1
	}
	wrote := func(role string, e, was fence.Epoch, n, before uint64) {
		if last != nil && (e != was || n != before) || e > 0 && m.Writer+m.Compactor == e {
			row.By, row.Epoch = strings.TrimPrefix(row.By+", "+role, ", "), uint64(e)
		}
	}
	old := cmp.Or(last, &inspect.State{})
	wrote("writer", m.Writer, old.Writer, m.WriterUpdate, old.WriterUpdate)
	wrote("compactor", m.Compactor, old.Compactor, m.CompactorUpdate, old.CompactorUpdate)
	f.manifests = append([]Manifest{row}, f.manifests...)
	f.manifests = f.manifests[:min(len(f.manifests), maxManifests)]
	return nil
}

// readCompactor looks for the newest compactor.
func (f *follower) readCompactor(ctx context.Context) error {
	_, newest, err := f.list(ctx, inspect.CompactorLock)
	if err != nil {
		return err
	}
	if newest == 0 {
		f.compactor = survey.Term{}
		return nil
	}
	t, version, err := f.term(ctx, inspect.CompactorLock, newest)
	if errors.Is(err, store.ErrNotFound) {
		return nil // pruned since: there is a newer one
	}
	if err != nil {
		return err
	}
	f.compacts.look(&t, version, f.clock.Now())
	f.compactor = t
	if t.Leads {
		f.idle = 0
		return nil
	}
	// Perhaps one follows another, in a moment or a little later.
	f.jobs.compactor.soon = 1 << min(2*f.idle, 3)
	f.idle++
	return nil
}
