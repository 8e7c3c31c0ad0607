package probe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// quick is a probe that does not upload much, for use in a bubble.
func quick() *probe.Options { return &probe.Options{UploadSize: 64 << 10, Clock: clock.Go()} }

func empty(t *testing.T, st *memstore.Store) {
	t.Helper()
	if n, _ := st.Len(); n != 0 {
		t.Errorf("the probe left %d objects behind", n)
	}
}

func TestHonestStoreIsAccepted(t *testing.T) {
	for name, opts := range map[string]*memstore.Options{"random versions": nil, "content versions": {ContentVersions: true}} {
		t.Run(name, func(t *testing.T) {
			inner := memstore.New(opts)
			report, err := probe.Run(t.Context(), inner, &probe.Options{UploadSize: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			empty(t, inner)
			all := []string{probe.Create, probe.Swap, probe.SwapMissing, probe.OneVersion, probe.Ranges,
				probe.ReadWrite, probe.ListWrite, probe.CreateAtomic, probe.SwapAtomic, probe.Pages, probe.Uploads, probe.Stays}
			if !reflect.DeepEqual(report.Kept, all) {
				t.Errorf("kept %q", report.Kept)
			}
			if report.CreateRaces != 25 || report.SwapRaces != 25 || report.Unknown != 0 || report.Echoes != 0 || report.Leftover != 0 {
				t.Errorf("%+v", report)
			}
			if !report.ConditionalUpload || !report.NotModified || !report.StoreClock || report.ContentVersions != (opts != nil) {
				t.Errorf("%+v", report)
			}
			if report.Put.Requests < 50 || report.Put.Requests > 100 || report.Get.P50 <= 0 || report.List.Max < report.List.P50 {
				t.Errorf("latencies %+v %+v %+v", report.Put, report.Get, report.List)
			}
		})
	}
}

func TestReportIsJSONAndText(t *testing.T) {
	report, err := probe.Run(t.Context(), unconditionalUpload(memstore.New(nil)), &probe.Options{UploadSize: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if report.ConditionalUpload {
		t.Error("uploads are said to be conditional, and are not")
	}
	raw, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	var back probe.Report
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(*report, back) {
		t.Errorf("%v\n%+v\n%+v", err, *report, back)
	}
	text := report.String()
	for _, want := range []string{"mem://", probe.SwapAtomic, "8 clients: 25 creates, 25 swaps", "uploads ignore conditions", "the store tells its time"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

// refusal probes a store that breaks a promise.
func refusal(t *testing.T, breakIt func(store.Store) store.Store, promise, observed string) {
	t.Helper()
	inner := memstore.New(nil)
	// No chase, which could find something else first: see TestChaseIsForStoresInMemory.
	slow := tooSlow{clock.System(), new(atomic.Int64)}
	report, err := probe.Run(t.Context(), breakIt(inner), &probe.Options{UploadSize: 64 << 10, Refusals: 1, Clock: slow})
	var e *probe.Error
	if !errors.Is(err, probe.ErrRefused) || !errors.As(err, &e) {
		t.Fatalf("not refused: %v\n%v", err, report)
	}
	if e.Promise != promise || !strings.Contains(e.Observed, observed) || e.Hint == "" || e.Store != "mem://" {
		t.Errorf("refused for %q, observed %q, hint %q, store %q", e.Promise, e.Observed, e.Hint, e.Store)
	}
	for _, part := range []string{e.Promise, e.Observed, e.Hint} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if slices.Contains(report.Kept, promise) {
		t.Errorf("%q is broken and said to be kept", promise)
	}
	if report.Leftover != 0 {
		t.Errorf("%d objects left behind", report.Leftover)
	}
	empty(t, inner)
}

func TestT10_IgnoredConditionIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		broken            func(store.Store) store.Store
		promise, observed string
	}{
		"all ignored":            {ignoreAll, probe.Create, "was acknowledged"},
		"If-None-Match ignored":  {ignoreCreate, probe.Create, "was acknowledged"},
		"If-Match ignored":       {ignoreSwap, probe.Swap, "was acknowledged"},
		"If-Match creates":       {swapCreates, probe.SwapMissing, "was acknowledged"},
		"412, and overwritten":   {refusesButWrites, probe.Create, "took place all the same"},
		"overwritten much later": {lateOverwrite, probe.Stays, "changed by the end"},
	} {
		t.Run(name, func(t *testing.T) { refusal(t, c.broken, c.promise, c.observed) })
	}
}

func TestT11_ConditionInTwoStepsIsRefused(t *testing.T) {
	t.Run("create", func(t *testing.T) {
		refusal(t, twoStepCreate, probe.CreateAtomic, "creators raced for one key, ")
	})
	t.Run("swap", func(t *testing.T) { refusal(t, twoStepSwap, probe.SwapAtomic, "swappers raced for one key, ") })
	t.Run("nobody wins", func(t *testing.T) { refusal(t, allLose, probe.CreateAtomic, "all were told that they lost") })
	t.Run("a loser creates", func(t *testing.T) {
		refusal(t, loserOverwrites("creators"), probe.CreateAtomic, "does not hold its bytes")
	})
	t.Run("a loser swaps", func(t *testing.T) {
		refusal(t, loserOverwrites("swappers"), probe.SwapAtomic, "does not hold its bytes")
	})
}

func TestT14_VersionThatDoesNotComeBackIsRefused(t *testing.T) {
	t.Run("quoted here, not there", func(t *testing.T) {
		refusal(t, func(st store.Store) store.Store { return quotes{st} }, probe.OneVersion, "the listing")
	})
	t.Run("quoted when read", func(t *testing.T) {
		refusal(t, seen(func(obj *store.Object, b []byte, _ int) []byte {
			obj.Version = `"` + obj.Version + `"`
			return b
		}), probe.OneVersion, "the read")
	})
	t.Run("never matches", func(t *testing.T) {
		refusal(t, func(st store.Store) store.Store { return quotesNotStripped{quotes{st}} }, probe.Swap, "was refused")
	})
}

func TestOtherBrokenPromisesAreRefused(t *testing.T) {
	unsupported := &store.Error{Op: "put", Kind: store.ErrUnsupported, Status: 501}
	for name, c := range map[string]struct {
		broken            func(store.Store) store.Store
		promise, observed string
	}{
		"501 on create":         {answers(unsupported, isCreate), probe.Create, "not supported"},
		"501 on swap":           {answers(unsupported, isSwap), probe.Swap, "not supported"},
		"every create refused":  {answers(precondition("k"), isCreate), probe.Create, "was refused"},
		"stale listings":        {staleList(1), probe.ListWrite, "missing from a listing"},
		"stale listings later":  {staleList(5), probe.ListWrite, "missing from a listing"},
		"deleted is listed":     {remembersDeleted, probe.ListWrite, "listed after it was deleted"},
		"missing is remembered": {remembersMissing, probe.ReadWrite, "shows the old object"},
		"ranges ignored":        {ignoresRange, probe.Ranges, "bytes 3 to 7"},
		"reads are cached":      {firstSeen, probe.ReadWrite, "shows the old object"},
		"missing can be read":   {seesGhosts, probe.ReadWrite, "holds something else"},
		"deleted can be read":   {func(st store.Store) store.Store { return keepsOne{st} }, probe.ReadWrite, "after it was deleted"},
		"reads garbage": {seen(func(_ *store.Object, b []byte, _ int) []byte {
			return append(b, "garbage"...)
		}), probe.ReadWrite, "bytes that nobody wrote"},
		"far too much is read": {seen(func(_ *store.Object, b []byte, _ int) []byte {
			return append(b, make([]byte, 2<<20)...)
		}), probe.ReadWrite, "bytes that nobody wrote"},
		"readers do not agree": {seen(func(obj *store.Object, b []byte, n int) []byte {
			if strings.Contains(string(b), "race of creators") && n%2 == 0 {
				obj.Version += "x"
			}
			return b
		}), probe.ReadWrite, "do not agree"},
		"half an upload visible": {losesTail, probe.Uploads, "does not hold them"},
	} {
		t.Run(name, func(t *testing.T) { refusal(t, c.broken, c.promise, c.observed) })
	}
}

// A proxy sends each create or each delete twice. Wherever the second copy lands, the store is
// not to blame. With a copy of each create, a deleted key comes back in each try.
// Copies of a create and of the swap after it, in this order, bring back what was swapped on
// stores where equal bytes are equal versions: that is for chance, and the number of tries.
func TestLateCopies(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.Put, faultstore.Delete} {
		for ops := 1; ops <= 24; ops += test.Of(3, 1) {
			for _, content := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					inner := memstore.New(&memstore.Options{ContentVersions: content, Clock: clock.Go()})
					st := faultstore.New(inner, &faultstore.Options{Clock: clock.Go(), Hook: func(op faultstore.Op) (f faultstore.Fault) {
						if op.Kind == kind && !isSwap(op.Cond) {
							f.Late = &faultstore.Late{Ops: ops}
						}
						return f
					}})
					if _, err := probe.Run(t.Context(), st, quick()); err != nil {
						t.Errorf("a copy of each %s, %d requests later: %v", kind, ops, err)
					}
				})
			}
		}
	}
}

// Answers that say nothing of the promises are no reason to refuse.
func TestStoreErrorsComeThrough(t *testing.T) {
	always := func(store.Condition) bool { return true }
	for _, kind := range []error{store.ErrDenied, store.ErrNoBucket, store.ErrInvalid} {
		st := answers(&store.Error{Op: "put", Kind: kind}, always)(memstore.New(nil))
		_, err := probe.Run(t.Context(), st, nil)
		if !errors.Is(err, kind) || errors.Is(err, probe.ErrRefused) || errors.Is(err, probe.ErrInconclusive) || !strings.Contains(err.Error(), "(") {
			t.Errorf("%v: %v", kind, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for _, fault := range []faultstore.Fault{{Drop: true, Err: faultstore.ErrUnavailable}, {Drop: true, Hang: true}} {
			st := faultstore.New(memstore.New(nil), &faultstore.Options{Clock: clock.Go(), Hook: func(faultstore.Op) faultstore.Fault { return fault }})
			_, err := probe.Run(t.Context(), st, quick())
			if !errors.Is(err, probe.ErrInconclusive) || errors.Is(err, probe.ErrRefused) || !strings.Contains(err.Error(), "reachable") {
				t.Errorf("%v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		inner := memstore.New(nil)
		st := faultstore.New(inner, &faultstore.Options{Clock: clock.Go(), Before: func(_ context.Context, op faultstore.Op) {
			if op.N == 300 {
				cancel()
			}
		}})
		if _, err := probe.Run(ctx, st, quick()); !errors.Is(err, context.Canceled) || errors.Is(err, probe.ErrRefused) {
			t.Errorf("cancelled: %v", err)
		}
		empty(t, inner)
	})
}

// Races in which too little is answered count for nothing, neither for the store
// nor against it.
func TestInconclusiveRaces(t *testing.T) {
	for name, flaky := range map[string]func(who string) func(store.Store) store.Store{
		"no answers": allFail, "losers told before the winner failed": winnerFails, "only the winner told": mostFail,
	} {
		for _, who := range []string{"creators", "swappers"} {
			t.Run(name+", "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					report, err := probe.Run(t.Context(), flaky(who)(memstore.New(nil)), quick())
					if !errors.Is(err, probe.ErrInconclusive) || errors.Is(err, probe.ErrRefused) || !strings.Contains(err.Error(), "100 races of "+who+" had 0 results") {
						t.Errorf("%v", err)
					}
					if report.SwapRaces != 0 || (report.CreateRaces == 0) != (who == "creators") {
						t.Errorf("%+v", report)
					}
				})
			})
		}
	}
}

// A store that keeps its promises is accepted although it loses, repeats and
// delays requests, and one that does not is found out all the same.
func TestFlakyStore(t *testing.T) {
	rates := faultstore.Rates{Fail: .1, LoseReply: .1, Echo: .05, Late: .05, Duplicate: .05, Break: .05, LateOps: 40}
	seeds := test.Of(uint64(8), 16)
	t.Run("honest", func(t *testing.T) {
		unknown, echoes := 0, 0
		for seed := range seeds {
			for _, content := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					inner := memstore.New(&memstore.Options{ContentVersions: content, Clock: clock.Go()})
					st := faultstore.New(inner, &faultstore.Options{Seed: seed, Rates: rates, Clock: clock.Go()})
					report, err := probe.Run(t.Context(), st, quick())
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					unknown += report.Unknown
					echoes += report.Echoes
					if n := st.OpenBodies(); n != 0 {
						t.Errorf("%d bodies are open", n)
					}
				})
			}
		}
		if unknown < 30*int(seeds) || echoes == 0 {
			t.Errorf("%d unknown, %d echoes: the store was not flaky", unknown, echoes)
		}
	})
	for name, broken := range map[string]func(store.Store) store.Store{
		"ignores all": ignoreAll, "ignores swaps": ignoreSwap, "ignores creates": ignoreCreate, "swap creates": swapCreates,
		"two-step create": twoStepCreate, "two-step swap": twoStepSwap, "stale lists": staleList(1),
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds / 2 {
				synctest.Test(t, func(t *testing.T) {
					st := faultstore.New(broken(memstore.New(nil)), &faultstore.Options{Seed: seed, Rates: rates, Clock: clock.Go()})
					if _, err := probe.Run(t.Context(), st, quick()); !errors.Is(err, probe.ErrRefused) {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
		})
	}
}

// sometimes does something else than a store should in one of n calls on average.
func sometimes(n int, seed uint64) func() bool {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n) == 0
	}
}

// TestOdds: stores that break a promise rarely are found as often as docs/stores.md says.
func TestOdds(t *testing.T) {
	ignores := func(n int, which func(store.Condition) bool) func(store.Store, uint64) store.Store {
		return func(st store.Store, seed uint64) store.Store {
			now := sometimes(n, seed)
			return &putter{st, ignore(func(c store.Condition) bool { return which(c) && now() })}
		}
	}
	misses := func(n int) func(store.Store, uint64) store.Store {
		return func(st store.Store, seed uint64) store.Store {
			now := sometimes(n, seed)
			return &lister{st, func(all []store.Info) []store.Info {
				return slices.DeleteFunc(all, func(store.Info) bool { return now() })
			}}
		}
	}
	runs := test.Of(10, 40)
	for name, tt := range map[string]struct {
		broken func(store.Store, uint64) store.Store
		least  int // found, of the runs: four deviations below what is expected
	}{
		"If-None-Match ignored once in 500": {ignores(500, isCreate), 28},
		"If-Match ignored once in 500":      {ignores(500, isSwap), 28},
		"a key missing once in 200":         {misses(200), 38},
		"a key missing once in 1,000":       {misses(1000), 25},
	} {
		t.Run(name, func(t *testing.T) {
			found, requests := 0, 0
			for seed := range uint64(runs) {
				counts := faultstore.New(tt.broken(memstore.New(nil), seed), nil)
				_, err := probe.Run(t.Context(), counts, &probe.Options{UploadSize: 64 << 10, Clock: tooSlow{clock.System(), new(atomic.Int64)}})
				if errors.Is(err, probe.ErrRefused) {
					found++
				} else {
					requests = counts.Counts().Of("", "")
				}
			}
			t.Logf("found in %d of %d; the whole probe takes %d requests", found, runs, requests)
			if test.Whole() && found < tt.least || found == 0 {
				t.Errorf("found in %d of %d runs, want %d of 40", found, runs, tt.least)
			}
		})
	}
}

// TestT11_OddsInMemory: how often a single probe refuses a store in memory that checks first and
// writes afterwards. What it prints for one processor and for two is in the package comment. It
// asserts little, since another program may have the processors.
func TestT11_OddsInMemory(t *testing.T) {
	runs := test.Of(4, 10)
	nothing := func([]byte) {}
	for name, broken := range map[string]func(store.Store) store.Store{
		"create at once": inTwoSteps(isCreate, nothing), "swap at once": inTwoSteps(isSwap, nothing),
		"create after a copy": inTwoSteps(isCreate, copies), "swap after a copy": inTwoSteps(isSwap, copies),
		"create after a sleep": inTwoSteps(isCreate, sleeps), "swap after a sleep": inTwoSteps(isSwap, sleeps),
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for range runs {
				inner := memstore.New(nil)
				if _, err := probe.Run(t.Context(), broken(inner), &probe.Options{UploadSize: 1}); errors.Is(err, probe.ErrRefused) {
					found++
				} else if err != nil {
					t.Error(err)
				}
				empty(t, inner)
			}
			t.Logf("refused in %d of %d probes, with GOMAXPROCS %d", found, runs, runtime.GOMAXPROCS(0))
			if test.Whole() && found == 0 && runtime.GOMAXPROCS(0) > 1 {
				t.Errorf("refused in none of %d probes", runs)
			}
		})
	}
}

// tooSlow is a clock by which each request takes a millisecond.
type tooSlow struct {
	clock.Clock
	n *atomic.Int64
}

func (c tooSlow) Now() clock.Instant {
	return c.Clock.Now().Add(time.Duration(c.n.Add(1)) * time.Millisecond)
}

// TestChaseIsForStoresInMemory: a store that may cost money gets no request for it.
func TestChaseIsForStoresInMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		clock  clock.Clock
		rounds int
		chased bool
	}{
		"microseconds": {clock.System(), 10, true}, "milliseconds": {tooSlow{clock.System(), new(atomic.Int64)}, 25, false},
		"a short probe": {clock.System(), 9, false},
	} {
		counts := faultstore.New(memstore.New(nil), nil)
		report, err := probe.Run(t.Context(), counts, &probe.Options{UploadSize: 1, Clock: tt.clock, Rounds: tt.rounds})
		requests := counts.Counts().Of("", "")
		if err != nil || (report.Chased > 0) != tt.chased || !tt.chased && requests > 3000 {
			t.Errorf("%s: %v; %d requests, %d chased, %d overtaken", name, err, requests, report.Chased, report.Overtaken)
		}
		if strings.Contains(report.String(), "without a pause") != tt.chased {
			t.Errorf("%s:\n%s", name, report)
		}
	}
}

// TestReportIsCurrent for a month, and for this version of the probe.
func TestReportIsCurrent(t *testing.T) {
	report, err := probe.Run(t.Context(), memstore.New(nil), quick())
	if err != nil {
		t.Fatal(err)
	}
	older, partial := *report, *report
	older.Version--
	partial.Kept = partial.Kept[1:]
	for name, tt := range map[string]struct {
		report *probe.Report
		after  time.Duration
		want   bool
	}{
		"now": {report, 0, true}, "29 days later": {report, 29 * 24 * time.Hour, true}, "31 days later": {report, 31 * 24 * time.Hour, false},
		"by a clock that is years slow": {report, -3 * 365 * 24 * time.Hour, false},
		"another version":               {&older, 0, false}, "a promise is missing": {&partial, 0, false}, "none": {nil, 0, false},
	} {
		if got := tt.report.Current(report.At.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A store that takes one write of a name a second is not pressed: nothing is
// turned away but the losers of races, and the second is not waited for in each
// of them.
//
// guard:probe-pace. Without this pause: the probe creates a key in a GCS bucket, and at once lets its
// clients race to swap it; the store takes one write of a key per second, and answers 429 to all of
// them; too few races have a winner, so the probe of a good store ends without a result.
func TestT34_OneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, early := memstore.New(&memstore.Options{Clock: clock.Go()}), 0
		slow := unhurried{inner, clock.Go(), new(sync.Mutex), map[string]clock.Instant{}, &early}
		start := clock.Go().Now()
		report, err := probe.Run(t.Context(), slow, quick())
		if err != nil {
			t.Fatal(err)
		}
		if losers := 50 * 7; early != losers || report.Unknown != losers {
			t.Errorf("%d requests were turned away, %d had no outcome; the races have %d losers", early, report.Unknown, losers)
		}
		if report.CreateRaces != 25 || report.SwapRaces != 25 || report.Leftover != 0 {
			t.Errorf("%+v", report)
		}
		if took := clock.Go().Now().Sub(start); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		empty(t, inner)
	})
	// And one that is not atomic is found out.
	synctest.Test(t, func(t *testing.T) {
		early := 0
		slow := unhurried{ignoreAll(memstore.New(nil)), clock.Go(), new(sync.Mutex), map[string]clock.Instant{}, &early}
		if _, err := probe.Run(t.Context(), slow, quick()); !errors.Is(err, probe.ErrRefused) {
			t.Error(err)
		}
	})
}

type closingStore struct {
	store.Store
	used, closed *atomic.Int64
}

func (c closingStore) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	c.used.Add(1)
	return c.Store.Put(ctx, key, body, opts)
}

func (c closingStore) Close() error { c.closed.Add(1); return nil }

func TestSeparateClients(t *testing.T) {
	inner := memstore.New(nil)
	var closed atomic.Int64
	var used []*atomic.Int64
	opts := &probe.Options{Clients: 4, Rounds: 2, UploadSize: 1, Open: func(context.Context) (store.Store, error) {
		used = append(used, new(atomic.Int64))
		return closingStore{inner, used[len(used)-1], &closed}, nil
	}}
	if _, err := probe.Run(t.Context(), inner, opts); err != nil {
		t.Fatal(err)
	}
	if len(used) != 3 || closed.Load() != 3 {
		t.Errorf("%d opened, %d closed", len(used), closed.Load())
	}
	for i, n := range used {
		if n.Load() < 4 {
			t.Errorf("client %d made %d writes", i, n.Load())
		}
	}
	broken := errors.New("no connection")
	n := 0
	opts.Open = func(context.Context) (store.Store, error) {
		if n++; n == 2 {
			return nil, broken
		}
		return closingStore{inner, new(atomic.Int64), &closed}, nil
	}
	if _, err := probe.Run(t.Context(), inner, opts); !errors.Is(err, broken) || closed.Load() != 4 {
		t.Errorf("%v, %d closed", err, closed.Load())
	}
}

// Other people's objects below tmp/ are neither listed into memory nor deleted.
func TestForeignObjectsStay(t *testing.T) {
	inner := memstore.New(nil)
	for i := range 10 {
		if _, err := inner.Put(t.Context(), fmt.Sprintf("tmp/%d", i), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := probe.Run(t.Context(), inner, &probe.Options{UploadSize: 1}); err != nil {
		t.Fatal(err)
	}
	if n, _ := inner.Len(); n != 10 {
		t.Errorf("%d of 10 objects are left", n)
	}
}

func TestLeftoversAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		st := faultstore.New(inner, &faultstore.Options{Clock: clock.Go(), Hook: func(op faultstore.Op) faultstore.Fault {
			if op.Kind == faultstore.Delete && len(op.Keys) > 1 {
				return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
			}
			return faultstore.Fault{}
		}})
		report, err := probe.Run(t.Context(), st, quick())
		if n, _ := inner.Len(); err != nil || n == 0 || report.Leftover < n || !strings.Contains(report.String(), "could not be deleted") {
			t.Errorf("%v: %d left, report says %d", err, n, report.Leftover)
		}
	})
}

// A store whose clock is unset or wild is used without it.
func TestStoreClock(t *testing.T) {
	w := &wildClock{Clock: clock.System()}
	report, err := probe.Run(t.Context(), memstore.New(&memstore.Options{Clock: w}), &probe.Options{UploadSize: 1})
	if err != nil || report.StoreClock {
		t.Errorf("%v, clock %v", err, report.StoreClock)
	}
}

// wildClock jumps an hour ahead with each look.
type wildClock struct {
	clock.Clock
	n atomic.Int64
}

func (w *wildClock) Wall() time.Time {
	return time.Unix(0, 0).Add(time.Duration(w.n.Add(1)) * time.Hour)
}
