package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// unpruned is a log with versions that name what later ones dropped: segments that
// were merged, files that were removed.
func unpruned(t testing.TB) *world {
	t.Helper()
	w := sample(t)
	w.token++
	c := mustNew(t, w.mem, small())
	p, err := c.begin(context.Background(), fence.NewToken(w.token))
	if err != nil {
		t.Fatal(err)
	}
	p.tidy = func(context.Context) error { return nil }
	if err := p.run(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	if n := len(w.newest().Dropped); n < 4 {
		t.Fatalf("only %d objects were dropped", n)
	}
	return w
}

func (w *world) logOf(st store.Store) *state.Log {
	return state.With(st, w.log.Format(), &state.Options{Settle: quick})
}

// whole fails the test unless everything that a manifest names is there, itself
// included.
func (w *world) whole(m *state.Manifest, when string) {
	w.Helper()
	ctx := context.Background()
	got, _, err := w.log.At(ctx, m.Version)
	if err != nil || got.Nonce != m.Nonce {
		w.Fatalf("%s: manifest %d: %v", when, m.Version, err)
	}
	names := w.log.Lists(m)
	for s, err := range w.log.Segments(ctx, m, 0) {
		if err != nil {
			w.Fatalf("%s: %v", when, err)
		}
		names = append(names, s.Key)
	}
	for f, err := range w.log.Files(ctx, m) {
		if err != nil {
			w.Fatalf("%s: %v", when, err)
		}
		names = append(names, f.Key)
	}
	for _, key := range names {
		if !w.has(key) {
			w.Fatalf("%s: manifest %d names %s, which is gone", when, m.Version, key)
		}
	}
}

// A pin that is taken while a compactor prunes either holds all that its version names,
// or is refused. Its requests are made at any two places between those of the
// compactor: the creation at one and the others at a later one, or the creation and the
// swap at one. TestExplore in internal/testkit/sim goes through every interleaving of all
// requests of the two, with the same code: "a pin against a compactor that merges and
// prunes" for the newest version, and another one for an older one.
//
// guard:mark-before-pins, guard:mark-first.
func TestPinRacesPrune(t *testing.T) {
	base := unpruned(t)
	old := base.newest().Version
	for old > 1 && len(base.manifest(old).Segments) < 2 {
		old-- // before the merge
	}
	for _, version := range []uint64{old, 0} {
		good, refused := 0, 0
		// race makes the first requests at request i, and the rest at request j.
		race := func(first, i, j int) (reached bool) {
			w := base.fork(t)
			when := fmt.Sprintf("version %d, %d requests at request %d, the others at request %d", version, first, i, j)
			pin, reached, err := w.pinWhile(version, first, i, j, func(st store.Store) error {
				return w.pass(st, w.token).prune(context.Background())
			})
			w.holds(when)
			switch {
			case err == nil:
				good++
				w.whole(pin.Manifest(), when)
				w.compact(w.mem, small())
				w.whole(pin.Manifest(), when+", compacted")
				if err := pin.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			case errors.Is(err, state.ErrPruned):
				refused++
			default:
				t.Fatalf("%s: %v", when, err)
			}
			if i == j {
				w.compact(w.mem, small())
				w.tidy(when)
			}
			return reached && !t.Failed()
		}
		for first := 1; first <= 2; first++ { // the pin is created, or created and swapped
			for i, more := 1, true; more; i++ {
				j := i
				for race(first, i, j) {
					if j++; testing.Short() {
						j += 3
					}
				}
				more = j > i
			}
		}
		t.Logf("version %d: %d were good, %d refused", version, good, refused)
		if good < 20 || version != 0 && refused < 20 {
			t.Errorf("version %d: %d were good, %d refused", version, good, refused)
		}
	}
}

// A pin that is taken while a compactor folds all, gives all of it up and lets go of it
// holds also what was behind the floor of its version, or another version is taken.
// guard:start-before-pins, guard:pinned-start, guard:pin-after-start.
func TestPinRacesRetention(t *testing.T) {
	base := newWorld(t, 0, nil)
	base.lead(3)
	base.compact(base.mem, nil)
	base.lead(3)
	base.token++
	o := &Options{Settle: quick, Parallel: 1, Retain: Retain{Age: 1}}
	behind, later, stride := 0, 0, 1
	if testing.Short() {
		stride = 4
	}
	for i, more := 1, true; more; i++ { // the pin is created and swapped
		for j := i; ; j += stride { // the manifest is read
			w := base.fork(t)
			when := fmt.Sprintf("pinned at request %d, looked at request %d", i, j)
			pin, reached, err := w.pinWhile(0, 2, i, j, func(st store.Store) error {
				_, err := w.once(st, w.token, o)
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			from := pin.Manifest().Floor.Offset
			if from == 3 {
				behind++
			} else {
				later++
			}
			for range 3 {
				m := w.newest()
				w.whole(m, when)
				if m.Start > from && m.Held() > from {
					t.Fatalf("%s: manifest %d is pinned, which ends at %d, and those up to %d were let go", when, pin.Version(), from, m.Held())
				}
				w.compact(w.mem, o)
			}
			if err := pin.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.compact(w.mem, o)
			}
			if left := w.keys(segmentPrefix); len(left) > 0 {
				t.Errorf("%s: %q are left", when, left)
			}
			if t.Failed() {
				return
			}
			if !reached {
				more = j > i
				break
			}
		}
	}
	t.Logf("%d times what was not folded yet is held, %d times a later version", behind, later)
	if behind < 20 || later < 20 {
		t.Errorf("%d times what was not folded yet is held, %d times a later version", behind, later)
	}
}

// The mark of an earlier pass lands late, behind this pass's listing of pins, and a
// pin that came between the two is good. guard:mark-before-pins.
func TestMarkLandsBehindThePins(t *testing.T) {
	w := unpruned(t)
	version := w.newest().Version
	for version > 1 && len(w.manifest(version).Segments) < 2 {
		version-- // before the merge
	}
	token := fence.NewToken(w.token) // of the pass before, too
	ctx := context.Background()
	p, err := mustNew(t, w.mem, small()).begin(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.survey(ctx, true)
	if err != nil || s.mark <= version {
		t.Fatalf("mark %d, version %d, %v", s.mark, version, err)
	}
	pin, err := w.logOf(w.mem).Pin(ctx, &state.PinOptions{Version: version, Name: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	late, err := w.logOf(w.mem).Updater(layout.Compactor, token)
	if err == nil {
		_, err = late.Update(ctx, func(m *state.Change) error {
			m.PruneMark = s.mark
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	// As retain does, for one.
	if s.m, err = p.updater.Update(ctx, func(*state.Change) error { return nil }); err != nil || s.m.PruneMark != s.mark {
		t.Fatalf("mark %d, want %d, %v", s.m.PruneMark, s.mark, err)
	}
	if err := p.pruneVersions(ctx, s); err != nil {
		t.Fatal(err)
	}
	w.whole(pin.Manifest(), "pinned before the mark was there")
}

func (w *world) manifest(version uint64) *state.Manifest {
	w.Helper()
	m, _, err := w.log.At(context.Background(), version)
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// pinWhile takes a pin, whose first requests are made at request i of a compactor at
// work, and the others at request j. It reports whether the compactor came that far.
func (w *world) pinWhile(version uint64, first, i, j int, work func(st store.Store) error) (pin *state.Pin, reached bool, err error) {
	w.Helper()
	turn, parked, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	advance := func() bool {
		select {
		case turn <- struct{}{}:
		case <-done:
			return false
		}
		select {
		case <-parked:
			return true
		case <-done:
			return false
		}
	}
	w.watch(func(_ context.Context, op faultstore.Op) {
		switch {
		case op.Client == "pin":
			parked <- struct{}{}
			<-turn
		case op.Client != "c":
		case i == j && op.ClientN == i:
			reached = true
			for advance() {
			}
		case op.ClientN == i:
			for n := 0; n < first && advance(); n++ {
			}
		case op.ClientN == j:
			reached = true
			for advance() {
			}
		}
	})
	log := w.logOf(w.faulty.Client("pin"))
	go func() {
		defer close(done)
		pin, err = log.Pin(context.Background(), &state.PinOptions{Version: version, Name: "backup", Holder: "test"})
	}()
	<-parked
	if err := work(w.faulty.Client("c")); err != nil {
		w.Fatal(err)
	}
	for advance() {
	}
	<-done
	w.watch(nil)
	return pin, reached, err
}

// What a pin holds stays however often all is compacted, and goes when it is
// released; of what is not pinned nothing stays.
func TestPinHolds(t *testing.T) {
	w := sample(t)
	w.watch(nil)
	var pins []*state.Pin
	for i := range 4 {
		pin, err := w.log.Pin(t.Context(), &state.PinOptions{Name: fmt.Sprint("backup-", i), Holder: "test"})
		if err != nil {
			t.Fatal(err)
		}
		pins = append(pins, pin)
		w.lead(3)
		w.commit([]string{w.file()}, nil)
		w.compact(w.faulty, small())
		w.compact(w.faulty, small())
		for _, pin := range pins {
			w.whole(pin.Manifest(), fmt.Sprint("after round ", i))
		}
	}
	before := w.keys("")
	for range 3 {
		if r := w.compact(w.faulty, small()); r.Pruned["segment"]+r.Pruned["data"]+r.Pruned["file"]+r.Pruned["list"] > 0 {
			t.Errorf("there was nothing to prune, and it pruned %v", r.Pruned)
		}
	}
	// Beside the manifests that new holders write.
	if left := len(w.keys("")); left > len(before)+4 {
		t.Errorf("%d objects have become %d", len(before), left)
	}
	for len(pins) > 0 {
		i := len(pins) / 2
		if err := w.log.Unpin(t.Context(), pins[i].Description().Name); err != nil {
			t.Fatal(err)
		}
		pins = slices.Delete(pins, i, i+1)
		w.compact(w.faulty, small())
		for _, pin := range pins {
			w.whole(pin.Manifest(), "with fewer pins")
		}
	}
	w.compact(w.faulty, small())
	w.holds("at the end")
	w.tidy("at the end")
	if left := w.keys("pin/"); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// On a log where nothing happens but that somebody holds something, nothing is
// written.
func TestPinIdle(t *testing.T) {
	w := unpruned(t)
	if _, err := w.log.Pin(t.Context(), &state.PinOptions{Version: w.newest().Version - 1, Name: "backup"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.once(w.mem, w.token, small()); err != nil {
			t.Fatal(err)
		}
	}
	before := w.keys("")
	for range 3 {
		if _, err := w.once(w.mem, w.token, small()); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.keys(""); !slices.Equal(before, after) {
		t.Errorf("%q has become %q", short(before), short(after))
	}
}

// A pin lapses by the compactor's own elapsed time, or by the store's clock; the
// machine's time of day decides nothing. Its holder is told.
func TestPinLapses(t *testing.T) {
	const ttl = time.Minute
	type step struct {
		after time.Duration
		renew bool
		held  bool
	}
	for name, c := range map[string]struct {
		tell  func(store.Info) store.Info
		wrong time.Duration
		steps []step
	}{
		"watched":         {noDate, 0, []step{{time.Hour, false, true}, {ttl - 1, false, true}, {1, false, false}}},
		"an hour fast":    {noDate, time.Hour, []step{{0, false, true}, {ttl - 1, false, true}, {1, false, false}}},
		"an hour slow":    {noDate, -time.Hour, []step{{0, false, true}, {ttl - 1, false, true}, {1, false, false}}},
		"by the store":    {exactly, time.Hour, []step{{ttl + 5*time.Second - 1, false, true}, {1, false, false}}},
		"renewed":         {noDate, 0, []step{{0, false, true}, {ttl - 1, true, true}, {ttl - 1, true, true}, {ttl, false, false}}},
		"renewed (store)": {exactly, 0, []step{{0, false, true}, {ttl - 1, true, true}, {ttl - 1, true, true}, {ttl + 5*time.Second, false, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hands{}
			w := newWorld(t, 0, &memstore.Options{Clock: h})
			w.lead(3)
			w.compact(w.mem, small())
			pin, err := w.logOf(w.mem).Pin(t.Context(), &state.PinOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			w.lead(3)
			mine := &hands{wrong: c.wrong}
			o := small()
			o.Clock = mine
			comp := mustNew(t, told{w.mem, c.tell}, o)
			w.token++
			for i, s := range c.steps {
				h.advance(s.after)
				mine.advance(s.after)
				if s.renew {
					if err := pin.Renew(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				r, err := comp.Once(t.Context(), fence.NewToken(w.token))
				if err != nil {
					t.Fatal(err)
				}
				if gone := len(w.keys("pin/")) == 0; gone == s.held || (r.Pruned["pin"] == 1) == s.held {
					t.Fatalf("step %d: gone is %v, %v", i, gone, r.Pruned)
				}
				if s.held {
					w.whole(pin.Manifest(), fmt.Sprint("step ", i))
				}
			}
			if err := pin.Renew(t.Context()); !errors.Is(err, manifest.ErrPinLost) {
				t.Errorf("its holder is told %v", err)
			}
			w.compact(w.mem, small())
			w.tidy("at the end")
		})
	}
}

// A renewal at any request of the compactor that takes a lapsed pin away either
// comes in time, and all is still there, or its holder is told. guard:expire-first.
func TestRenewalRacesExpiry(t *testing.T) {
	in, out := 0, 0
	for n := 1; ; n++ {
		h := &hands{}
		w := newWorld(t, 0, &memstore.Options{Clock: h})
		w.lead(3)
		w.compact(w.mem, small())
		w.lead(3)
		w.compact(w.mem, &Options{Settle: quick})
		pin, err := w.logOf(w.mem).Pin(t.Context(), &state.PinOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		w.lead(3)
		h.advance(time.Hour)
		reached, renewed := false, error(nil)
		w.watch(func(_ context.Context, op faultstore.Op) {
			if op.Client == "c" && op.ClientN == n {
				reached = true
				renewed = pin.Renew(t.Context())
			}
		})
		w.compact(w.faulty.Client("c"), small())
		if !reached {
			break
		}
		when := fmt.Sprint("renewed at request ", n)
		switch {
		case renewed == nil:
			in++
			if err := pin.Renew(t.Context()); err != nil {
				t.Errorf("%s, and then it was lost all the same: %v", when, err)
			}
			w.whole(pin.Manifest(), when)
			w.compact(w.mem, small())
			w.whole(pin.Manifest(), when+", compacted")
		case errors.Is(renewed, manifest.ErrPinLost):
			out++
		default:
			t.Fatalf("%s: %v", when, renewed)
		}
	}
	if in < 5 || out < 3 {
		t.Errorf("%d were in time, %d were told", in, out)
	}
}

// A pin that cannot be read may hold anything: nothing that is named by a manifest
// goes, and the error says which pin it is.
func TestPinDamaged(t *testing.T) {
	w := unpruned(t)
	key := layout.PinKey(uuid.NewString())
	w.put(key, []byte("junk"))
	before := w.keys("")
	w.token++
	_, err := w.once(w.mem, w.token, small())
	if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("the error is %v", err)
	}
	for _, key := range before {
		if !w.has(key) {
			t.Errorf("%s is gone", key)
		}
	}
	w.remove(key)
	w.compact(w.mem, small())
	w.tidy("at the end")
}
