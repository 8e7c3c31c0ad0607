package compactor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// hands is a clock that a test sets. Its time of day can be wrong.
type hands struct {
	mu    sync.Mutex
	now   time.Duration
	wrong time.Duration
}

var morning = time.Date(2024, 2, 29, 6, 0, 0, 0, time.UTC)

func (h *hands) advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += d
}

func (h *hands) Now() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Instant(h.now)
}

func (h *hands) Wall() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return morning.Add(h.now + h.wrong)
}

func (*hands) AfterFunc(d time.Duration, f func()) clock.Timer { return clock.Go().AfterFunc(d, f) }

// told is a store that tells its time as some stores do.
type told struct {
	store.Store
	tell func(store.Info) store.Info
}

func (s told) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, opts) {
			if !yield(s.tell(info), err) {
				return
			}
		}
	}
}

func (s told) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := s.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Info = s.tell(obj.Info)
	}
	return obj, err
}

func exactly(i store.Info) store.Info { return i }

func inSeconds(i store.Info) store.Info {
	i.LastModified, i.Date = i.LastModified.Truncate(time.Second), i.Date.Truncate(time.Second)
	return i
}

func stale(i store.Info) store.Info {
	i = inSeconds(i)
	i.Date = i.Date.Add(-1800 * time.Millisecond)
	return i
}

func noDate(i store.Info) store.Info     { i.Date = time.Time{}; return i }
func noModified(i store.Info) store.Info { i.LastModified = time.Time{}; return i }

// What a fold makes unnecessary is kept for the grace period by the store's own
// clock, whatever this machine's says and however coarse the store's is; without
// one, by what the compactor has seen of it.
//
// guard:age-resolution. Some stores cut Last-Modified to whole seconds, others to milliseconds. Without
// this: manifest 8 is written at 12:00:00.9, and the store says 12:00:00; at 12:00:01 a compactor takes
// it for one second old; the grace period of one second seems over, and the compactor deletes manifests
// 6 and 7, which a slow listing still needs.
func TestGrace(t *testing.T) {
	const grace = 10 * time.Second
	type step struct {
		after  time.Duration
		pruned bool
	}
	for name, c := range map[string]struct {
		tell  func(store.Info) store.Info
		wrong time.Duration // of this machine's time of day
		steps []step
	}{
		"exact":               {exactly, 0, []step{{0, false}, {9999 * time.Millisecond, false}, {2 * time.Millisecond, true}}},
		"an hour fast":        {exactly, time.Hour, []step{{0, false}, {9 * time.Second, false}, {1002 * time.Millisecond, true}}},
		"an hour slow":        {exactly, -time.Hour, []step{{0, false}, {9 * time.Second, false}, {1002 * time.Millisecond, true}}},
		"whole seconds":       {inSeconds, 0, []step{{0, false}, {9200 * time.Millisecond, false}, {1200 * time.Millisecond, true}}},
		"stale":               {stale, 0, []step{{0, false}, {9200 * time.Millisecond, false}, {1800 * time.Millisecond, false}, {2 * time.Second, true}}},
		"no date":             {noDate, time.Hour, []step{{0, false}, {9999 * time.Millisecond, false}, {2 * time.Millisecond, true}}},
		"no date, seen late":  {noDate, 0, []step{{time.Hour, false}, {grace, true}}},
		"no last-modified":    {noModified, -time.Hour, []step{{0, false}, {9999 * time.Millisecond, false}, {2 * time.Millisecond, true}}},
		"no clock whatsoever": {func(i store.Info) store.Info { return noDate(noModified(i)) }, time.Hour, []step{{time.Minute, false}, {grace, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hands{now: 900 * time.Millisecond}
			w := newWorld(t, grace, &memstore.Options{Clock: h})
			for range 2 {
				w.Lead(3)
				w.compact(w.Mem, &Options{Settle: logtest.Quick, Clock: h})
			}
			mine := &hands{now: h.now, wrong: c.wrong}
			w.Token++
			comp := w.withToken(told{w.Mem, c.tell}, w.Token, &Options{FanIn: 2, Levels: 40, Settle: logtest.Quick, Clock: mine})
			for i, s := range c.steps { // the first merges too
				h.advance(s.after)
				mine.advance(s.after)
				r, err := comp.Once(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, kind := range []string{"data", "manifest", "segment"} {
					if got := r.Pruned[kind] > 0; got != s.pruned {
						t.Errorf("step %d, %v later: pruned %v", i, s.after, r.Pruned)
					}
				}
				w.holds(fmt.Sprint("step ", i))
			}
		})
	}
}

// At any time, on stores that tell their time in any way: when a manifest is deleted, a
// newer one has been there for the grace period. When data is deleted, a manifest whose
// floor is after it has been there for so long (T37).
//
// guard:grace. Some stores make a listing by a walk through a directory: in any order, and not in one
// moment. Without this check: manifest 6 raises the floor, and slot 1/4 is pruned; a reader that knows
// only manifest 5, which is pinned, finds slot 1/4 absent, and lists the manifests; the walk passes the
// places of manifests 7 to 9 before they are created; they replace manifest 6, and a compactor deletes
// it; then the walk comes to the place of manifest 6; the reader takes manifest 5 for the newest, and
// slot 1/4 for the tail.
func TestT37_NothingBeforeItsTime(t *testing.T) {
	const grace = 3 * time.Second
	tellings := []func(store.Info) store.Info{exactly, inSeconds, stale, noDate}
	pruned := map[string]int{}
	for seed := range uint64(16) {
		rng := rand.New(rand.NewPCG(seed, 0))
		h := &hands{now: time.Duration(rng.IntN(1000)) * time.Millisecond}
		w := newWorld(t, grace, &memstore.Options{Clock: h})
		written := map[uint64]time.Duration{}
		floors := map[uint64]fence.Position{}
		var mu sync.Mutex // a compactor makes several requests at once
		look := func() {
			m := w.Newest()
			mu.Lock()
			defer mu.Unlock()
			if _, ok := written[m.Version]; !ok && m.Version > 0 {
				written[m.Version], floors[m.Version] = h.now, m.Floor.Position
			}
		}
		w.Faulty.SetAfter(func(context.Context, faultstore.Op, error) { look() })
		w.watch(func(_ context.Context, op faultstore.Op) {
			if op.Kind != faultstore.Delete {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, key := range op.Keys {
				pos, isData := layout.ParseDataKey(key)
				v, isManifest := layout.ParseManifestKey(key)
				ok := !isData && !isManifest
				for newer, at := range written {
					if h.now-at >= grace && (isManifest && newer > v || isData && pos.Before(floors[newer])) {
						ok = true
					}
				}
				if !ok {
					t.Errorf("seed %d: %s is deleted at %v; manifests were written at %v", seed, key, h.now, written)
				}
			}
		})
		st := told{w.Faulty, tellings[rng.IntN(len(tellings))]}
		comp := w.withToken(st, 1, &Options{FanIn: 2, Levels: 40, Settle: logtest.Quick, Clock: h})
		for range 40 {
			switch rng.IntN(3) {
			case 0:
				w.Lead(1 + rng.IntN(2))
				look()
			case 1:
				h.advance(time.Duration(rng.IntN(2000)) * time.Millisecond)
			case 2:
				r, err := comp.Once(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for kind, n := range r.Pruned {
					pruned[kind] += n
				}
			}
		}
		w.holds(fmt.Sprint("seed ", seed))
		if t.Failed() {
			return
		}
	}
	if pruned["data"] < 50 || pruned["manifest"] < 50 || pruned["segment"] < 5 {
		t.Errorf("that proves little: %v", pruned)
	}
}

// Objects without a name of ours are never deleted.
func TestUnknownObjectsStay(t *testing.T) {
	h := &hands{}
	w := newWorld(t, 0, &memstore.Options{Clock: h})
	id := uuid.NewString()
	n20 := layout.FormatNumber(1)
	odd := []string{
		"README", "format.json.bak", "manifest.json", "orders/data/" + n20 + "/" + n20,
		"data/x", "data/1/1", "data/" + n20, "data/" + n20 + "/1", "data/" + n20 + "/" + n20 + ".bak", "data/" + n20 + "/" + layout.FormatNumber(0),
		"data/" + n20 + "/" + n20 + "/x", "data/" + n20 + "0/" + n20, "data/+" + n20[1:] + "/" + n20,
		"manifest/x", "manifest/" + n20, "manifest/" + n20 + ".json.bak", "manifest/old/" + n20 + ".json", "manifest/1.json", "manifest/" + layout.FormatNumber(0) + ".json",
		"segment/x", "segment/compactor/" + n20 + "/x", "segment/compactor/" + n20 + "/" + strings.ToUpper(id), "segment/compactor/1/" + id,
		"segment/compactor/" + n20 + "/" + id + ".bak", "segment/writer/" + layout.FormatNumber(99) + "/" + id, "segment/reader/" + n20 + "/" + id,
		"segment/compactor/" + n20 + "/sub/" + id, "segment/compactor/" + layout.FormatNumber(99) + "/" + id,
		"tmp/x", "tmp/" + id + ".parquet", "tmp/sub/" + id, "tmp/" + strings.ReplaceAll(id, "-", ""), "tmp/{" + id + "}", "tmp/" + strings.ToUpper(id),
		"lock/x", "lock/" + n20, "lock/" + n20 + ".json.bak", "lock/1.json", "compactor-lock/x", "locks/" + n20 + ".json",
		"list/x", "list/compactor/" + n20 + "/x", "list/compactor/" + n20 + "/" + strings.ToUpper(id), "list/compactor/1/" + id, "list/compactor/" + n20 + "/" + id + ".json",
		"list/writer/" + layout.FormatNumber(99) + "/" + id, "list/reader/" + n20 + "/" + id, "list/compactor/" + n20 + "/sub/" + id, "list/compactor/" + layout.FormatNumber(99) + "/" + id,
		"file/x", "file/" + n20 + "/x.parquet", "file/1/" + id, "file/" + n20 + "/" + strings.ToUpper(id), "file/" + n20 + "/" + id + "parquet", "file/" + n20 + "/" + id + ".",
		"file/" + n20 + "/sub/" + id + ".parquet", "file/" + n20 + "/" + id + "/part", "file/" + n20 + "/" + id + ".par quet", "file/" + layout.FormatNumber(99) + "/" + id + ".parquet",
		"pin/x", "pin/" + id, "pin/" + id + ".json.bak", "pin/" + strings.ToUpper(id) + ".json", "pin/sub/" + id + ".json",
	}
	for _, key := range odd {
		w.Put(key, []byte(key))
	}
	ours := []string{"tmp/" + id, "list/writer/" + n20 + "/" + id, "segment/writer/" + n20 + "/" + id, "list/compactor/" + n20 + "/" + id, "segment/compactor/" + n20 + "/" + id, "file/" + n20 + "/" + id, "file/" + n20 + "/" + id + ".tar.gz"}
	for _, key := range ours {
		w.Put(key, []byte("left by one that died"))
	}
	w.Lead(5)
	h.advance(1000 * 24 * time.Hour)
	for range 3 {
		w.Lead(2)
		o := &Options{FanIn: 2, Levels: 40, Settle: logtest.Quick, Clock: h, Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 1}}}
		w.compact(w.Mem, o)
		h.advance(24 * time.Hour)
		if _, err := mustNew(t, w.Mem, o).Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Token = w.Newest().Roles[layout.Compactor].Epoch
	}
	for _, key := range odd {
		if !w.Has(key) {
			t.Errorf("%s is gone", key)
		}
	}
	for _, key := range ours {
		if w.Has(key) {
			t.Errorf("%s is of our kind, years old, and still there", key)
		}
	}
	w.holds("at the end")
}

// Junk in the holes that pruning leaves fools no compactor: objects of the log,
// seals, manifests, at every place, before or while it works.
func TestT37_JunkInHoles(t *testing.T) {
	base := sample(t)
	base.compact(base.Mem, small())
	base.Lead(2)
	m := base.Newest()
	ahead := base.fork(t) // where all has been folded
	ahead.compact(ahead.Mem, small())
	wild := *ahead.Newest()
	var chained []fence.Position
	for e := fence.Epoch(1); e <= base.Epoch; e++ {
		for s := range uint64(8) {
			if p := logtest.At(e, s+1); p.Before(m.Floor.Position) && !base.Has(layout.DataKey(p)) {
				chained = append(chained, p)
			}
		}
	}
	if len(chained) < 10 {
		t.Fatalf("there are no holes: %v", base.Keys(""))
	}
	litter := func(w *world) {
		for i, p := range chained {
			if w.Has(layout.DataKey(p)) {
				continue
			}
			switch i % 3 {
			case 0:
				w.Put(layout.DataKey(p), w.Seal(p, w.Epoch+5))
			case 1:
				w.Put(layout.DataKey(p), w.Data(frame.Point{Position: p, Offset: uint64(i)}, "junk"))
			case 2:
				w.Put(layout.DataKey(p), []byte("junk"))
			}
		}
		for v := uint64(1); v < m.PruneMark; v++ {
			if key := layout.ManifestKey(v); !w.Has(key) {
				w.Put(key, w.junkManifest(wild, v))
			}
		}
	}
	check := func(w *world, when string) {
		w.holds(when)
		w.compact(w.Faulty, small())
		w.holds(when + ", compacted")
		w.Lead(1)
		w.compact(w.Faulty, small())
		w.holds(when + ", life went on")
		w.tidy(when)
	}
	w := base.fork(t)
	w.watch(nil)
	litter(w)
	check(w, "before")
	for n := 1; ; n++ {
		w := base.fork(t)
		var reached atomic.Bool
		w.watch(func(_ context.Context, op faultstore.Op) {
			if op.Client == "c" && op.ClientN == n && !reached.Swap(true) {
				litter(w)
			}
		})
		w.Token++
		if _, err := w.once(w.Faulty.Client("c"), w.Token, small()); err != nil {
			t.Fatalf("at request %d: %v", n, err)
		}
		if !reached.Load() {
			return
		}
		check(w, fmt.Sprint("at request ", n))
		if t.Failed() {
			return
		}
	}
}

// junkManifest is what a zombie puts into a hole: sound in itself.
func (w *world) junkManifest(m state.Manifest, version uint64) []byte {
	w.Helper()
	m.Version, m.PruneMark, m.Dropped, m.Nonce = version, 0, nil, fence.ID(uuid.New())
	b, err := document.Encode(layout.ManifestKey(m.Version), m)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// A zombie that has slept between reading the newest manifest and listing them all finds, among those
// of its time, the junk of another zombie: a fold that was never published, with a floor beyond the
// durable one.
//
// guard:horizon-junk. Without this check: compactor C reads manifest 9, the newest, and sleeps; other
// compactors publish more manifests, and prune 8 and 9; zombie Z creates another manifest 8 in the
// hole, with the later floor of a fold that nobody else has published; C wakes up, lists the manifests,
// finds Z's as the highest one up to 9, trusts its floor, and deletes objects that are not folded.
func TestT37_JunkHorizon(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(1)
	w.compact(w.Mem, nil)
	w.Lead(1)
	w.Lead(1)
	zombie := w.pass(w.Faulty.Client("zombie"), w.Token, nil)
	var lists atomic.Int64
	w.watch(func(_ context.Context, op faultstore.Op) {
		if op.Client != "zombie" || op.Kind != faultstore.List || op.Key != layout.ManifestPrefix {
			return
		}
		if lists.Add(1) != 2 {
			return // of the newest; the second is that of all versions
		}
		old := w.Newest()
		w.Lead(10)
		ahead := w.fork(t)
		ahead.compact(ahead.Mem, nil)
		w.Token++
		w.pruneAs(w.Token)
		hole := layout.ManifestKey(old.Version - 1)
		if m := w.Newest(); w.Has(hole) || old.PruneMark >= old.Version-1 || !m.Floor.Equal(old.Floor) {
			t.Fatalf("there is no hole: %v", w.Keys(layout.ManifestPrefix))
		}
		w.Put(hole, w.junkManifest(*ahead.Newest(), old.Version-1))
	})
	if err := zombie.prune(t.Context()); !overtaken(err) {
		t.Fatal(err)
	}
	if lists.Load() < 2 {
		t.Fatal("it did not sleep")
	}
	w.holds("after the zombie")
}

// What a compactor uploaded and never named is removed by the next, though that one
// has nothing else to do, and the first cannot name it any more.
//
// guard:orphan-named. Without this check: a new compactor starts; all segments of the log were uploaded
// in earlier compactor epochs; the new compactor deletes them, and the log with them.
//
// tuning:orphan-epoch. From then on no earlier compactor can publish, so a segment of an earlier
// compactor epoch that no manifest names is an orphan. Without this update: compactor A uploads a
// merged segment, and dies before it publishes; compactor B, with other options, finds nothing to fold
// or merge, and publishes nothing; the newest manifest still has A's epoch, so A might publish the
// segment; B leaves the segment in the store at each pass.
func TestOrphans(t *testing.T) {
	w := sample(t)
	w.compact(w.Mem, nil)
	slow := w.Faulty.Client("slow")
	var nexts atomic.Int64
	w.watch(func(_ context.Context, op faultstore.Op) {
		// It merges, has uploaded, and is about to publish.
		if op.Client == "slow" && op.Kind == faultstore.Put && len(w.Keys("segment/compactor/"+layout.FormatNumber(uint64(w.Token)+1)+"/")) == 1 && nexts.CompareAndSwap(0, 1) {
			r, err := w.once(w.Faulty, w.Token+2, nil)
			if err != nil || r.Pruned["orphan"] != 1 || len(r.PrunedKeys["orphan"]) != 1 || r.Segments+r.Merged > 0 {
				t.Errorf("the next: %+v, %v", r, err)
			}
		}
	})
	if _, err := w.once(slow, w.Token+1, small()); err == nil || !overtaken(err) {
		t.Errorf("the first: %v", err)
	}
	if nexts.Load() != 1 {
		t.Fatal("it did not merge")
	}
	w.holds("at the end")
	w.tidy("at the end")
}

// A zombie that finds nothing to do is told so all the same, and does nothing.
func TestZombieIsFenced(t *testing.T) {
	w := sample(t)
	w.compact(w.Mem, nil)
	before := w.Keys("")
	r, err := w.once(w.Faulty, w.Token-1, small())
	var by *fence.FencedError
	if !errors.As(err, &by) || by.By != w.Token || by.Epoch != w.Token-1 || len(r.Pruned) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := w.Faulty.Counts(); n.Of(faultstore.Put, "")+n.Of(faultstore.Upload, "")+n.Of(faultstore.Delete, "") > 0 || !slices.Equal(w.Keys(""), before) {
		t.Errorf("it made the requests %v", n)
	}
}

// A segment whose manifest may be there is not deleted, and one whose manifest is certainly not there
// is.
//
// guard:publish-unknown. Without this check: a compactor's update times out; the compactor deletes the
// segment; the update is applied after all, and the manifest names a segment that is gone.
func TestPublishOutcomes(t *testing.T) {
	// The second manifest of a compactor is that of its fold.
	unread := func() faultstore.Hook {
		var puts atomic.Int64
		return func(op faultstore.Op) faultstore.Fault {
			switch {
			case op.Kind == faultstore.Put:
				puts.Add(1)
			case puts.Load() == 2 && op.Kind == faultstore.List:
				return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
			}
			return faultstore.Fault{}
		}
	}
	for name, c := range map[string]struct {
		hook    faultstore.Hook
		unknown bool
	}{
		"the newest cannot be read": {unread(), true},
		"turned away":               {faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.ManifestPrefix, Skip: 1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}), false},
	} {
		w := newWorld(t, 0, nil)
		w.Lead(5)
		w.Faulty.SetHook(c.hook)
		w.Token++
		_, err := w.once(w.Faulty, w.Token, nil)
		if err == nil || errors.Is(err, store.ErrUnknown) != c.unknown {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(w.Keys("segment/")); (n == 1) != c.unknown {
			t.Errorf("%s: %d segments are there", name, n)
		}
		w.holds(name)
		w.compact(w.Mem, nil)
		w.holds(name + ", compacted")
		w.tidy(name)
	}
	for _, void := range []error{state.ErrVoid, fence.ErrLimit} {
		w := newWorld(t, 0, nil)
		p := w.pass(w.Mem, 1, nil)
		key := layout.SegmentKey(layout.Compactor, 1, uuid.NewString())
		w.Put(key, []byte("segment"))
		_, err := p.publish(t.Context(), &state.Segment{Key: key}, func(*state.Change) error { return void })
		if !errors.Is(err, void) || w.Has(key) {
			t.Errorf("%v: %v, and the segment is there: %v", void, err, w.Has(key))
		}
	}
}
