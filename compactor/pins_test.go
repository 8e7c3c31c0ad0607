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
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
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
	w.Token++
	p := w.pass(w.Mem, w.Token, small())
	p.tidy = func(context.Context) error { return nil }
	if err := p.run(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	if n := len(w.Newest().Dropped); n < 4 {
		t.Fatalf("only %d objects were dropped", n)
	}
	return w
}

func (w *world) logOf(st store.Store) *state.Log {
	return state.With(st, w.Format, &state.Options{Settle: logtest.Quick})
}

// whole fails the test unless everything that a manifest names is there, itself
// included.
func (w *world) whole(m *state.Manifest, when string) {
	w.Helper()
	ctx := context.Background()
	got, _, err := w.State.At(ctx, m.Version)
	if err != nil || got.Nonce != m.Nonce {
		w.Fatalf("%s: manifest %d: %v", when, m.Version, err)
	}
	segments, lists := w.names(m)
	names := slices.Concat(segments, lists)
	for f, err := range w.State.Files(ctx, m) {
		if err != nil {
			w.Fatalf("%s: %v", when, err)
		}
		names = append(names, f.Key)
	}
	for _, key := range names {
		if !w.Has(key) {
			w.Fatalf("%s: manifest %d names %s, which is gone", when, m.Version, key)
		}
	}
}

// A pin that is taken while a compactor prunes either holds all that its version names,
// or is refused. Its requests are made at any two places between those of the
// compactor: the creation at one and the others at a later one, or the creation and the
// swap at one. TestExplore in internal/test/sim goes through every interleaving of all
// requests of the two, with the same code: "a pin against a compactor that merges and
// prunes" for the newest version, and another one for an older one.
//
// guard:mark-before-pins, guard:mark-first.
//
// guard:dropped-mark. Without this check: version 8 names file f, and version 9 drops it; the prune
// mark is 7; a compactor lists the pins; a reader pins version 8, and trusts its pin because the mark
// is below 8; the compactor deletes file f, and the reader does not find it.
func TestPinRacesPrune(t *testing.T) {
	base := unpruned(t)
	stride := test.Of(4, 1)
	for _, version := range []uint64{base.beforeMerge(), 0} {
		good, refused := 0, 0
		// race makes the first requests at request i, and the rest at request j.
		race := func(first, i, j int) (reached bool) {
			w := base.fork(t)
			when := fmt.Sprintf("version %d, %d requests at request %d, the others at request %d", version, first, i, j)
			pin, reached, err := w.pinWhile(version, first, i, j, func(st store.Store) error {
				return w.pass(st, w.Token, nil).prune(context.Background())
			})
			w.holds(when)
			switch {
			case err == nil:
				good++
				w.whole(pin.Manifest(), when)
				w.compact(w.Mem, small())
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
				w.compact(w.Mem, small())
				w.tidy(when)
			}
			return reached && !t.Failed()
		}
		for first := 1; first <= 2; first++ { // the pin is created, or created and swapped
			for i, more := 1, true; more; i++ {
				j := i
				for race(first, i, j) {
					j += stride
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

// A pin that is taken while a compactor folds everything, truncates it and releases it holds also what
// was after the floor of its version, or another version is pinned. guard:pin-after-start.
//
// guard:start-before-pins. A snapshot of the end of the log pins the newest version, and finds the
// records after this version's floor through later manifests. Its reader creates the pin, then reads
// the start, and gives the pin up if the start is after the floor. So either this listing shows the
// pin, or the reader sees the new start. Without this listing: a compactor lists the pins; a reader
// pins version 5, and reads the old start; the compactor publishes the new start, and drops segments
// after version 5's floor; the snapshot lacks their records.
//
// guard:pinned-start. A snapshot of the end of the log finds the records after the floor of its version
// through the newest manifest. Without this bound: a snapshot pins version 5, whose floor is at record
// 100; start rises to 200; a compactor drops the segment with records 100 to 199; the pin keeps this
// segment in the store, but the newest manifest does not name it; the snapshot cannot find these
// records.
func TestPinRacesRetention(t *testing.T) {
	base := newWorld(t, 0, nil)
	base.Lead(3)
	base.compact(base.Mem, nil)
	base.Lead(3)
	base.Token++
	o := &Options{Settle: logtest.Quick, Concurrency: 1, Retain: Retain{Age: 1}}
	behind, later, stride := 0, 0, test.Of(4, 1)
	for i, more := 1, true; more; i++ { // the pin is created and swapped
		for j := i; ; j += stride { // the manifest is read
			w := base.fork(t)
			when := fmt.Sprintf("pinned at request %d, looked at request %d", i, j)
			pin, reached, err := w.pinWhile(0, 2, i, j, func(st store.Store) error {
				_, err := w.once(st, w.Token, o)
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
				m := w.Newest()
				w.whole(m, when)
				if m.Start > from && m.Held() > from {
					t.Fatalf("%s: manifest %d is pinned, whose floor is at %d, and those up to %d were released", when, pin.Version(), from, m.Held())
				}
				w.compact(w.Mem, o)
			}
			if err := pin.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.compact(w.Mem, o)
			}
			if left := w.Keys(layout.SegmentPrefix); len(left) > 0 {
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

// The mark of an earlier pass lands late, after this pass has listed the pins, and a
// pin that came between the two is good. guard:mark-before-pins.
func TestMarkLandsBehindThePins(t *testing.T) {
	w := unpruned(t)
	version := w.beforeMerge()
	token := fence.NewToken(w.Token) // of the pass before, too
	ctx := context.Background()
	p := w.pass(w.Mem, w.Token, small())
	s, err := p.survey(ctx, true)
	if err != nil || s.mark <= version {
		t.Fatalf("mark %d, version %d, %v", s.mark, version, err)
	}
	pin, err := w.logOf(w.Mem).Pin(ctx, &state.PinOptions{Version: version, Name: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	late, err := w.logOf(w.Mem).Updater(layout.Compactor, token)
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

// beforeMerge is the last version with several segments.
func (w *world) beforeMerge() uint64 {
	w.Helper()
	for version := w.Newest().Version; ; version-- {
		m, _, err := w.State.At(context.Background(), version)
		if err != nil {
			w.Fatal(err)
		}
		if len(m.Segments) > 1 {
			return version
		}
	}
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
	log := w.logOf(w.Faulty.Client("pin"))
	go func() {
		defer close(done)
		pin, err = log.Pin(context.Background(), &state.PinOptions{Version: version, Name: "backup", Holder: "test"})
	}()
	<-parked
	if err := work(w.Faulty.Client("c")); err != nil {
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
//
// guard:orphan-dropped. Without this check: a backup pins version 5; version 6 drops a segment of an
// earlier compactor epoch, so no later manifest names it; a compactor deletes the segment as an orphan;
// the backup comes to the segment, and does not find it.
func TestPinHolds(t *testing.T) {
	w := sample(t)
	w.watch(nil)
	var pins []*state.Pin
	for i := range 4 {
		pin, err := w.State.Pin(t.Context(), &state.PinOptions{Name: fmt.Sprint("backup-", i), Holder: "test"})
		if err != nil {
			t.Fatal(err)
		}
		pins = append(pins, pin)
		w.Lead(3)
		w.commit([]string{w.file()}, nil)
		w.compact(w.Faulty, small())
		w.compact(w.Faulty, small())
		for _, pin := range pins {
			w.whole(pin.Manifest(), fmt.Sprint("after round ", i))
		}
	}
	before := w.Keys("")
	for range 3 {
		if r := w.compact(w.Faulty, small()); r.Pruned["segment"]+r.Pruned["data"]+r.Pruned["file"]+r.Pruned["list"] > 0 {
			t.Errorf("there was nothing to prune, and it pruned %v", r.Pruned)
		}
	}
	// Beside the manifests that new holders write.
	if left := len(w.Keys("")); left > len(before)+4 {
		t.Errorf("%d objects have become %d", len(before), left)
	}
	for len(pins) > 0 {
		i := len(pins) / 2
		if err := w.State.Unpin(t.Context(), pins[i].Description().Name); err != nil {
			t.Fatal(err)
		}
		pins = slices.Delete(pins, i, i+1)
		w.compact(w.Faulty, small())
		for _, pin := range pins {
			w.whole(pin.Manifest(), "with fewer pins")
		}
	}
	w.compact(w.Faulty, small())
	w.holds("at the end")
	w.tidy("at the end")
	if left := w.Keys("pin/"); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// On a log where nothing happens but that somebody holds something, nothing is
// written.
func TestPinIdle(t *testing.T) {
	w := unpruned(t)
	if _, err := w.State.Pin(t.Context(), &state.PinOptions{Version: w.Newest().Version - 1, Name: "backup"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := w.once(w.Mem, w.Token, small()); err != nil {
			t.Fatal(err)
		}
	}
	before := w.Keys("")
	for range 3 {
		if _, err := w.once(w.Mem, w.Token, small()); err != nil {
			t.Fatal(err)
		}
	}
	if after := w.Keys(""); !slices.Equal(before, after) {
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
			w.Lead(3)
			w.compact(w.Mem, small())
			pin, err := w.logOf(w.Mem).Pin(t.Context(), &state.PinOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			w.Lead(3)
			mine := &hands{wrong: c.wrong}
			o := small()
			o.Clock = mine
			w.Token++
			comp := w.withToken(told{w.Mem, c.tell}, w.Token, o)
			for i, s := range c.steps {
				h.advance(s.after)
				mine.advance(s.after)
				if s.renew {
					if err := pin.Renew(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				r, err := comp.Once(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if gone := len(w.Keys("pin/")) == 0; gone == s.held || (r.Pruned["pin"] == 1) == s.held {
					t.Fatalf("step %d: gone is %v, %v", i, gone, r.Pruned)
				}
				if s.held {
					w.whole(pin.Manifest(), fmt.Sprint("step ", i))
				}
			}
			if err := pin.Renew(t.Context()); !errors.Is(err, manifest.ErrPinLost) {
				t.Errorf("its holder is told %v", err)
			}
			w.compact(w.Mem, small())
			w.tidy("at the end")
		})
	}
}

// A renewal at any request of the compactor that takes a lapsed pin away either comes in time, and all
// is still there, or its holder is told.
//
// guard:expire-first. Of the swap to expired and a renewal only one is applied. Without this swap: the
// holder of a pin is frozen for an hour, and its clock too; a compactor reads the pin, which has
// lapsed; the holder goes on, and its renewal is applied; the compactor deletes the pin and what it
// held; the holder trusts its pin, and does not find these objects.
func TestRenewalRacesExpiry(t *testing.T) {
	in, out := 0, 0
	for n := 1; ; n++ {
		h := &hands{}
		w := newWorld(t, 0, &memstore.Options{Clock: h})
		w.Lead(3)
		w.compact(w.Mem, small())
		w.Lead(3)
		w.compact(w.Mem, &Options{Settle: logtest.Quick})
		pin, err := w.logOf(w.Mem).Pin(t.Context(), &state.PinOptions{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		w.Lead(3)
		h.advance(time.Hour)
		told := make(chan error, 1)
		w.watch(func(_ context.Context, op faultstore.Op) {
			if op.Client == "c" && op.ClientN == n {
				told <- pin.Renew(t.Context())
			}
		})
		w.compact(w.Faulty.Client("c"), small())
		if len(told) == 0 {
			break
		}
		renewed := <-told
		when := fmt.Sprint("renewed at request ", n)
		switch {
		case renewed == nil:
			in++
			if err := pin.Renew(t.Context()); err != nil {
				t.Errorf("%s, and then it was lost all the same: %v", when, err)
			}
			w.whole(pin.Manifest(), when)
			w.compact(w.Mem, small())
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
	w.Put(key, []byte("junk"))
	before := w.Keys("")
	w.Token++
	_, err := w.once(w.Mem, w.Token, small())
	if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("the error is %v", err)
	}
	for _, key := range before {
		if !w.Has(key) {
			t.Errorf("%s is gone", key)
		}
	}
	w.Remove(key)
	w.compact(w.Mem, small())
	w.tidy("at the end")
}

// The reply to a pin's creation is lost. Before its maker reads the pin, the pin lapses and
// a compactor deletes it, on a log that goes on meanwhile or not. Whatever copies of the
// delete are in flight, none hits the pin that the maker gets in the end.
//
// guard:pin-stillborn. guard:pin-taken.
func TestPinDeletedBeforeItIsKnown(t *testing.T) {
	for name, goesOn := range map[string]bool{"idle": false, "going on": true} {
		t.Run(name, func(t *testing.T) {
			h := &hands{}
			w := newWorld(t, 0, &memstore.Options{Clock: h})
			w.Lead(3)
			w.compact(w.Mem, small())
			o := small()
			o.Clock = h
			comp := &deletes{Store: w.Mem}
			slow := &unanswered{Store: w.Mem}
			slow.meanwhile = func() {
				if goesOn {
					w.Lead(3)
				}
				for range 3 {
					h.advance(time.Hour)
					w.compact(comp, o)
				}
			}
			pin, err := w.logOf(slow).Pin(t.Context(), &state.PinOptions{Name: "backup", Holder: "test"})
			if err != nil {
				t.Fatal(err)
			}
			for _, keys := range comp.pins {
				if err := w.Mem.Delete(t.Context(), keys...); err != nil {
					t.Fatal(err)
				}
			}
			if err := pin.Renew(t.Context()); err != nil {
				t.Errorf("nobody has expired it, and it is told: %v", err)
			}
			w.compact(w.Mem, small())
			w.whole(pin.Manifest(), "with a pin")
			// What was expired before goes when the log has gone on.
			w.Lead(3)
			w.compact(w.Mem, small())
			w.compact(w.Mem, small())
			if left := w.Keys(layout.PinPrefix); len(left) != 1 {
				t.Errorf("%q are left", left)
			}
		})
	}
}

// unanswered applies the first creation of a pin, and does not answer.
type unanswered struct {
	store.Store
	meanwhile func()
}

func (s *unanswered) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := s.Store.Put(ctx, key, body, opts)
	if meanwhile := s.meanwhile; meanwhile != nil && err == nil {
		s.meanwhile = nil
		meanwhile()
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: errors.New("connection reset")}
	}
	return info, err
}

// deletes notes which pins it was told to delete.
type deletes struct {
	store.Store
	pins [][]string
}

func (s *deletes) Delete(ctx context.Context, keys ...string) error {
	if strings.HasPrefix(keys[0], layout.PinPrefix) {
		s.pins = append(s.pins, slices.Clone(keys))
	}
	return s.Store.Delete(ctx, keys...)
}
