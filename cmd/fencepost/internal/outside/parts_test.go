package outside_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// exports reports whether a metric is exported.
func exports(h *outside.Hub, metric string) bool {
	return testutil.CollectAndCount(outside.Collector(h), "fencepost_"+metric) > 0
}

func putPin(t *testing.T, st store.Store, version uint64) {
	t.Helper()
	key := layout.PinKey(uuid.NewString())
	b, err := document.Encode(key, struct {
		Format  int    `json:"format"`
		Version uint64 `json:"version"`
		Holder  string `json:"holder"`
		Name    string `json:"name"`
	}{document.Format, version, "x", "n"})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, st, key, b)
}

func compacts(t *testing.T, st store.Store) {
	t.Helper()
	e, err := leader.New(st, layout.CompactorLockPrefix, &leader.Options{Identity: "cat", Clock: clock.Go(), NoPrune: true})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = term.Resign(context.Background()) })
}

// TestLaterPins: pins that were made after the start are read too. Those that are not read yet hide none that were.
func TestLaterPins(t *testing.T) {
	for _, compactor := range []bool{false, true} {
		logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
			lead(t, l.Mem, "ann").append(t, 50)
			if compactor {
				compacts(t, l.Mem)
			}
			watching(t, 12, &sick{Store: l.Mem, sorted: true}, func(h *outside.Hub, _ *atomic.Int64) {
				time.Sleep(5 * time.Minute)
				for i := range 5 {
					putPin(t, l.Mem, uint64(i+1))
				}
				read := 0
				for range 20 * 60 {
					time.Sleep(time.Second)
					read = 0
					v := state(h).Log
					for _, p := range v.Pins {
						if p.Holder != "" {
							read++
						}
					}
					if exports(h, "log_oldest_pin_version") != (read > 0) {
						t.Fatalf("%d of %d pins were read; the oldest is exported: %t", read, len(v.Pins), read == 0)
					}
				}
				if read != 5 {
					t.Errorf("%d of 5 pins were read", read)
				}
			})
		})
	}
}

// TestOldestPinsAreKept: of too many pins, those that were not written for longest are kept.
func TestOldestPinsAreKept(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		putPin(t, l.Mem, 7)
		time.Sleep(time.Minute)
		for range 300 {
			putPin(t, l.Mem, 9)
		}
		watching(t, 6000, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Minute)
			v := state(h).Log
			oldest := false
			for _, p := range v.Pins {
				oldest = oldest || p.Version == 7
			}
			if !oldest || v.PinCount != 301 || !v.Read.PinVersions {
				t.Errorf("%d pins, all read: %t, the oldest is kept: %t", v.PinCount, v.Read.PinVersions, oldest)
			}
		})
	})
}

// contents are the objects of a store.
func contents(t *testing.T, st store.Store) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		o, err := st.Get(t.Context(), info.Key, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(o.Body)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Key] = b
	}
	return all
}

// TestRestoredInItsPlace: an older state of the same log that takes its place is watched as it is.
func TestRestoredInItsPlace(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		a := lead(t, l.Mem, "ann")
		a.append(t, 5)
		time.Sleep(time.Minute)
		old := contents(t, l.Mem)
		for range 10 {
			a.append(t, 5)
			time.Sleep(15 * time.Second)
		}
		_ = a.w.Close(t.Context())
		_ = a.Resign(t.Context())
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(5*time.Minute + 5*time.Second)
			if s := state(h); s.Err != "" || s.Log.End != 55 {
				t.Fatalf("%+v %+v", s, s.Log)
			}
			empty(t, l.Mem)
			for key, b := range old {
				fixture.Put(t, l.Mem, key, b)
			}
			time.Sleep(5 * time.Minute)
			if s := state(h); s.Err != "" || s.Log.End != 5 || s.Log.Tail != logtest.At(1, 6) || len(s.Log.Manifests) != 1 || len(s.Log.Rates) == 0 || s.Log.Rates[0].Records != 5 {
				t.Errorf("%+v %+v", s, s.Log)
			}
		})
	})
}

// TestHandoverWhileListing: when a leader follows another between the two requests of a look, no seal is lost.
func TestHandoverWhileListing(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		a := lead(t, l.Mem, "ann")
		a.append(t, 50)
		var hook atomic.Pointer[func()]
		st := store.Hooked(l.Mem, store.Hooks{Answered: func(x store.Answer) {
			if f := hook.Load(); f != nil && x.Op == "list" && strings.HasPrefix(x.Key, layout.ManifestPrefix) {
				hook.Store(nil)
				(*f)()
			}
		}}, clock.Go())
		watching(t, 12, &sick{Store: st, sorted: true}, func(h *outside.Hub, _ *atomic.Int64) {
			want := func(after time.Duration, unfolded int) {
				t.Helper()
				time.Sleep(after)
				if v := state(h).Log; left(v).More || left(v).Objects != unfolded {
					t.Errorf("%d are not folded, more %t; want %d", left(v).Objects, left(v).More, unfolded)
				}
			}
			want(2*time.Minute, 51) // with the seal of epoch 0
			var b node
			f := func() {
				_ = a.w.Close(t.Context())
				_ = a.Resign(t.Context())
				b = lead(t, l.Mem, "bob")
			}
			hook.Store(&f)
			want(3*time.Minute, 52)
			b.append(t, 3000)
			want(3*time.Minute, 3052)
			_ = b.w.Close(t.Context())
			_ = b.Resign(t.Context())
			lead(t, l.Mem, "cid").append(t, 10)
			want(10*time.Minute, 3063)
		})
	})
}

// denied is a store in which requests below a prefix are denied.
type denied struct {
	store.Store
	prefix string
	off    atomic.Bool
	count  atomic.Int64
}

func (s *denied) err(key string) error {
	if strings.HasPrefix(key, s.prefix) && !s.off.Load() {
		s.count.Add(1)
		return &store.Error{Op: "get", Key: key, Kind: store.ErrDenied}
	}
	return nil
}

func (s *denied) List(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	if err := s.err(prefix); err != nil {
		return func(yield func(store.Info, error) bool) { yield(store.Info{}, err) }
	}
	return s.Store.List(ctx, prefix, o)
}

func (s *denied) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := s.err(key); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, opts)
}

// TestOneBrokenPart: a part of a log that cannot be read hides no other one, and is not exported as zero.
func TestOneBrokenPart(t *testing.T) {
	metrics := []string{"log_leader_leads", "log_compactor_leads", "log_records", "log_unfolded_objects", "log_manifest_version", "log_pins", "log_oldest_pin_version", "log_published_version"}
	for prefix, c := range map[string]struct {
		missing string
		fine    bool // the look does not fail
	}{
		"nothing":                  {"log_published_version", true},
		layout.DeltaPrefix:         {"log_published_version", true},
		layout.LockPrefix:          {"log_leader_leads log_published_version", false},
		layout.CompactorLockPrefix: {"log_compactor_leads log_published_version", false},
		layout.ManifestPrefix:      {"log_records log_unfolded_objects log_manifest_version log_published_version", false},
		layout.DataPrefix:          {"log_unfolded_objects log_published_version", false},
		layout.PinPrefix:           {"log_pins log_oldest_pin_version log_published_version", false},
	} {
		t.Run(prefix, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var targets []outside.Target
				for i := range 2 { // both use the budget
					l := logtest.New(t, logtest.WithGrace(0), nil)
					for range 5 {
						x := lead(t, l.Mem, "x")
						x.append(t, 2)
						_ = x.w.Close(t.Context())
						_ = x.Resign(t.Context())
					}
					compacts(t, l.Mem)
					putPin(t, l.Mem, 1)
					putPin(t, l.Mem, 2)
					targets = append(targets, outside.Target{URL: fmt.Sprintf("mem://%d", i), Store: &denied{Store: l.Mem, prefix: []string{prefix, "nothing"}[i]}})
				}
				broken := targets[0].Store.(*denied)
				h := outside.New(targets[:1], &outside.Options{Clock: clock.Go()})
				both := outside.New(targets, &outside.Options{Clock: clock.Go()})
				defer running(t, h)()
				defer running(t, both)()
				time.Sleep(2 * time.Hour)
				s := state(h)
				for _, metric := range metrics {
					if want := !strings.Contains(c.missing, metric); exports(h, metric) != want {
						t.Errorf("%s is exported: %t", metric, !want)
					}
				}
				if n := broken.count.Load(); prefix == layout.CompactorLockPrefix && n > 100 { // a look takes 160 s for the one hub, 320 s for the other
					t.Errorf("it asks %d times for what stays broken", n)
				}
				if (s.Err == "") != c.fine || !s.Looked() {
					t.Errorf("looked %t, error %q", s.Looked(), s.Err)
				}
				if prefix == layout.DeltaPrefix && s.Log.PublishedErr == "" {
					t.Error("it does not say that it cannot read what is published")
				}
				for i := range 2 {
					synctest.Wait()
					all, _ := both.States()
					known := 0
					for _, x := range all[i].Log.Terms {
						if x.State != "" {
							known++
						}
					}
					if known != 5 && (i == 1 || prefix != layout.LockPrefix) {
						t.Errorf("%d: %d of 5 leaders", i, known)
					}
				}
			})
		})
	}
}

// TestRotOfAPart: a compactor's lock that is rotten does not hide the rest from one that begins now.
func TestRotOfAPart(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		lead(t, l.Mem, "ann").append(t, 3)
		fixture.Put(t, l.Mem, layout.LockKey(layout.CompactorLockPrefix, 1), []byte("rot"))
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(5 * time.Minute)
			if s := state(h); s.Err == "" || s.Log.End != 3 || !s.Log.Read.Tail || !exports(h, "log_unfolded_objects") || exports(h, "log_compactor_leads") {
				t.Errorf("%+v %+v", s, s.Log)
			}
		})
	})
}

// logs makes targets that are logs with a leader. It is one log for all, since the heartbeats of many take long.
func logs(t *testing.T, n int) []outside.Target {
	t.Helper()
	l := logtest.New(t, logtest.WithGrace(0), nil)
	lead(t, l.Mem, "x").append(t, 2)
	var all []outside.Target
	for i := range n {
		all = append(all, outside.Target{URL: fmt.Sprintf("mem://%d", i), Store: l.Mem})
	}
	return all
}

// TestAFailureOfOneOfMany: with many URLs, one that can be read again does not count as not watched for long.
func TestAFailureOfOneOfMany(t *testing.T) {
	for _, outage := range []time.Duration{0, 6 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			targets := logs(t, 20)
			bad := &sick{Store: targets[0].Store}
			targets[0].Store = bad
			h := outside.New(targets, &outside.Options{Clock: clock.Go()})
			defer running(t, h)()
			time.Sleep(100 * time.Minute) // the next look is none that lists much
			bad.prefix.Store("")
			for bad.failures.Load() < 2 {
				time.Sleep(time.Second)
			}
			time.Sleep(outage)
			bad.prefix.Store("nothing")
			began := time.Now()
			for state(h).Err == "" { // it is told when the look ends
				time.Sleep(time.Second)
			}
			for state(h).Err != "" {
				time.Sleep(time.Second)
			}
			if took := time.Since(began); took > 6*time.Minute && outage == 0 || took > 17*time.Minute { // two ticks
				t.Errorf("after an outage of %v it took %v", outage, took)
			}
		})
	}
}

// TestUpIsNotKnownYet: what was not looked at yet is not told as failed.
func TestUpIsNotKnownYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		h := outside.New(logs(t, n), &outside.Options{Clock: clock.Go()})
		defer running(t, h)()
		last := 0
		for range 15 {
			synctest.Wait()
			all, _ := h.States()
			seen := 0
			for _, s := range all {
				if s.Seen() {
					seen++
				}
			}
			if last = testutil.CollectAndCount(outside.Collector(h), "fencepost_watch_up"); last != seen {
				t.Fatalf("%d are up or not, %d were seen", last, seen)
			}
			time.Sleep(time.Minute)
		}
		if last != n {
			t.Errorf("%d of %d were seen", last, n)
		}
	})
}

// TestGroupWithALongValidity: its store is not told as silent while nothing is asked of it.
func TestGroupWithALongValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		if err := group.Create(t.Context(), mem, &group.Options{Partitions: 3, Validity: time.Hour, Clock: clock.Go(), Probe: &probe.Options{Clients: 2, Rounds: 1, Refusals: 2}}); err != nil {
			t.Fatal(err)
		}
		watching(t, 12, mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(5 * time.Minute)
			for range 3600 {
				time.Sleep(time.Second)
				if s := state(h); s.Now.Sub(s.Asked).Seconds() > s.Silence {
					t.Fatalf("asked %v ago, silence %v s", s.Now.Sub(s.Asked), s.Silence)
				}
			}
		})
	})
}

// stalling is a store whose bodies do not end while it stalls.
type stalling struct {
	store.Store
	stalls atomic.Bool
}

func (s *stalling) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := s.Store.Get(ctx, key, opts)
	if err == nil && s.stalls.Load() {
		obj.Body = io.NopCloser(stalled(ctx.Done()))
	}
	return obj, err
}

type stalled <-chan struct{}

func (s stalled) Read([]byte) (int, error) {
	<-s
	return 0, context.Canceled
}

// TestGroupOfManyIsAway: also with many URLs, that a group's store stalls or hangs is told soon, and it is read again
// soon.
func TestGroupOfManyIsAway(t *testing.T) {
	for _, kind := range []string{"stalls", "hangs", "fails"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				targets := logs(t, 99)
				mem := memstore.New(nil)
				places["group"](t, mem)
				ill, stalls := &sick{Store: mem, hang: kind == "hangs"}, &stalling{}
				stalls.Store = ill
				targets = append([]outside.Target{{URL: "mem://group", Store: stalls}}, targets...)
				h := outside.New(targets, &outside.Options{Clock: clock.Go()})
				defer running(t, h)()
				time.Sleep(3 * time.Hour)
				if s := state(h); s.Err != "" || s.Group == nil {
					t.Fatalf("%+v", s)
				}
				if kind == "stalls" {
					stalls.stalls.Store(true)
				} else {
					ill.prefix.Store("")
				}
				time.Sleep(time.Hour)
				if s := state(h); s.Err == "" {
					t.Errorf("%+v", s)
				}
				stalls.stalls.Store(false)
				ill.prefix.Store("nothing")
				began := time.Now()
				for state(h).Err != "" {
					time.Sleep(time.Second)
				}
				if took := time.Since(began); took > 25*time.Minute {
					t.Errorf("it is read again after %v", took)
				}
			})
		})
	}
}

// TestManyAtAHandover: when a leader has appended more than a look lists, and another follows it, the number of objects that
// are not folded does not fall.
func TestManyAtAHandover(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		a := lead(t, l.Mem, "ann")
		a.append(t, 100)
		watching(t, 12, &sick{Store: l.Mem, sorted: true}, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(2 * time.Minute)
			a.append(t, 7000)
			_ = a.w.Close(t.Context())
			_ = a.Resign(t.Context())
			lead(t, l.Mem, "bob").append(t, 20)
			last := 0
			for range 360 {
				time.Sleep(time.Second)
				v := state(h).Log
				if left(v).Objects < last || left(v).Objects < 7122 && last > 102 && !left(v).More {
					t.Fatalf("%d are not folded after %d, more %t", left(v).Objects, last, left(v).More)
				}
				last = left(v).Objects
			}
			if v := state(h).Log; left(v).More || left(v).Objects != 7122 || v.Tail != logtest.At(2, 21) { // two seals
				t.Errorf("%d are not folded, more %t, tail %v", left(v).Objects, left(v).More, v.Tail)
			}
		})
	})
}
