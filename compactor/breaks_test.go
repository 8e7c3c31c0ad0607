package compactor

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// What must not break a log, and the tests that show it; here and in the packages named:
//
//	killed at each request        TestCrashAtEveryRequest, TestCrashWhileGivingUp, TestFaultAtEveryRequest
//	two compactors                TestInterleavedAtEveryRequest (a successor, a predecessor), TestZombieIsFenced,
//	                              TestRunLosesItsTerm; manifest: TestSameTokenTwice, TestFoldLandsLate
//	a month late                  TestInterleavedAtEveryRequest (a month, junk in its way), TestT37_JunkHorizon;
//	                              reader: TestAMonthLate; TestReaderMonthLate
//	a reader anywhere             TestReaderOvertaken; reader: TestMovedAtEveryRecord, TestMovedAtEveryRequest,
//	                              TestMergedInTheMiddle, TestSnapshotAtEveryRequest
//	a pin and a prune             TestPinRacesPrune, TestPinRacesRetention, TestMarkLandsBehindThePins, TestRenewalRacesExpiry;
//	                              manifest: TestPinRacesPrune, TestPinRacesTruncate, TestPinCreatedTwice, TestPinSwappedTwice
//	a writer that opens meanwhile TestT2_OpenerBesidePruning
//	holes                         TestT1_SealsStay, TestT37_JunkInHoles, TestT37_NothingBeforeItsTime; manifest: TestFencedInAHole,
//	                              TestAppliedThoughRefused, TestT37_CountingUpwards; reader: TestT1_JunkSealAtTheTail
//	listings                      TestBrokenListing, TestRepeatedListing, TestFaultAtEveryRequest (breaks off); manifest:
//	                              TestListingThatIsNotAtomic, TestUpdateOnStaleListing, TestT36_ManifestsDeleted
//	clocks                        TestClockIsSet, TestGrace, TestPinLapses, TestRetain (an hour fast, an hour slow)

// A compactor that dies at any of its requests while it gives up history, before or
// after the request was applied, or so that it lands when all is over, loses nothing that
// is kept, and nothing that a pin holds; the next one finishes it.
func TestCrashWhileGivingUp(t *testing.T) {
	base := newWorld(t, 0, nil)
	base.Lead(3)
	base.compact(base.Mem, nil)
	pin, err := base.State.Pin(t.Context(), &state.PinOptions{Name: "backup", Holder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	base.Lead(3)
	base.compact(base.Mem, nil)
	base.Lead(3)
	floor := pin.Manifest().Floor.Offset
	o := small()
	o.Retain = Retain{Records: 2}
	for i, c := range crashes {
		t.Run(c.name, func(t *testing.T) {
			fault := c.fault
			places := base.everywhere(base.Token+1, o)
			tried := test.Square(len(crashes), len(places))
			for j, at := range places {
				if !tried(i, j) {
					continue
				}
				w := base.fork(t)
				fault.Crash = true
				reached := w.faultAt("dies", at, fault)
				w.Token++
				_, _ = w.once(w.Faulty.Client("dies"), w.Token, o)
				if !reached.Load() {
					t.Fatalf("%v: it never came there", at)
				}
				look := func(when string) {
					m := w.Newest()
					w.whole(m, when)
					w.whole(pin.Manifest(), when)
					if m.Held() > floor {
						t.Fatalf("%s: what follows %d is pinned, and those up to %d were released", when, floor, m.Held())
					}
					w.first()
				}
				when := fmt.Sprintf("crashed at %v", at)
				look(when)
				next := w.Faulty.Client("next")
				w.compact(next, o)
				look(when + ", finished by the next")
				if first := w.Newest().First(); first < 6 {
					t.Errorf("%s: the log begins at %d", when, first)
				}
				if w.Faulty.Release(context.Background(), nil) > 0 {
					look(when + ", and then the late ones landed")
				}
				if err := w.State.Unpin(t.Context(), "backup"); err != nil {
					t.Fatal(err)
				}
				w.compact(next, o)
				w.compact(next, o)
				if m := w.Newest(); m.Held() < 6 || len(w.Keys(layout.SegmentPrefix)) != len(m.Segments) {
					t.Fatalf("%s: in the end %d are held, and there are %q", when, m.Held(), w.Keys(layout.SegmentPrefix))
				}
				w.first()
			}
			t.Logf("%d requests", len(places))
		})
	}
}

// doubled is a store whose listings say everything twice, the second time backwards, as if
// they had begun again without telling.
type doubled struct{ store.Store }

func (d doubled) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		var all []store.Info
		for info, err := range d.Store.List(ctx, prefix, opts) {
			if err != nil {
				yield(info, err)
				return
			}
			all = append(all, info)
		}
		again := slices.Clone(all)
		slices.Reverse(again)
		for _, info := range append(all, again...) {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// A listing that repeats itself changes nothing in what is done and told.
func TestRepeatedListing(t *testing.T) {
	base := sample(t)
	want := base.fork(t)
	first, second := want.compact(want.Mem, small()), want.compact(want.Mem, small())
	w := base.fork(t)
	for i, want := range []Report{first, second} {
		w.watch(nil)
		r := w.compact(doubled{w.Faulty}, small())
		if fmt.Sprint(r.Folded, r.Records, r.Segments, r.Merged, r.Pruned) != fmt.Sprint(want.Folded, want.Records, want.Segments, want.Merged, want.Pruned) {
			t.Errorf("pass %d: %+v, want %+v", i, r, want)
		}
		w.holds("listed twice")
	}
	w.tidy("listed twice")
	plan, err := mustNew(t, doubled{base.Mem}, small()).Plan(t.Context())
	if err != nil || plan.Version != base.Newest().Version {
		t.Errorf("%+v, %v", plan, err)
	}
}

// The machine's time of day is set forward and back by an hour before each request:
// nothing is pruned or taken from its holder before its time, and all of it then. What
// retention makes of clocks is in TestRetain.
func TestClockIsSet(t *testing.T) {
	const grace, ttl = 10 * time.Second, time.Minute
	for name, tell := range map[string]func(store.Info) store.Info{"exact": exactly, "whole seconds": inSeconds, "no date": noDate} {
		t.Run(name, func(t *testing.T) {
			h := &hands{}
			w := newWorld(t, grace, &memstore.Options{Clock: h})
			mine := &hands{}
			jump := func(context.Context, faultstore.Op) {
				mine.mu.Lock()
				defer mine.mu.Unlock()
				if mine.wrong = -mine.wrong; mine.wrong == 0 {
					mine.wrong = time.Hour
				}
			}
			w.watch(jump)
			o := small()
			o.Clock = mine
			c := w.withToken(told{w.Faulty, tell}, 1, o)
			pass := func(after time.Duration) Report {
				t.Helper()
				h.advance(after)
				mine.advance(after)
				r, err := c.Once(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			w.Lead(5)
			pass(0)
			pin, err := w.State.Pin(t.Context(), &state.PinOptions{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			w.Lead(5)
			for _, after := range []time.Duration{time.Second, time.Second, 6 * time.Second} {
				if r := pass(after); r.Pruned["data"]+r.Pruned["manifest"]+r.Pruned["segment"]+r.Pruned["pin"] > 0 {
					t.Errorf("within the grace period: %+v", r)
				}
				w.holds("within the grace period")
			}
			if r := pass(grace + 3*time.Second); r.Pruned["data"] == 0 || r.Pruned["pin"] > 0 {
				t.Errorf("after the grace period: %+v", r)
			}
			w.whole(pin.Manifest(), "within the pin's time")
			w.holds("after the grace period")
			if r := pass(ttl + 6*time.Second); r.Pruned["pin"] != 1 {
				t.Errorf("after the pin's time: %+v", r)
			}
			w.holds("at the end")
		})
	}
}
