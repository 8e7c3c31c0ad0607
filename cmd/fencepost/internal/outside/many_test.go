package outside_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

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

// join starts a worker. What it returns ends it, and waits for that.
func join(t *testing.T, st store.Store, name string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g, err := group.Join(ctx, st, &group.Options{Partitions: 8, Identity: name, Clock: clock.Go(), Probe: &probe.Options{Clients: 2, Rounds: 1, Refusals: 2}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Run(ctx, func(ctx context.Context, _ *group.Partition) error {
			<-ctx.Done()
			return nil
		})
	}()
	return func() { cancel(); <-done }
}

// ofMany makes a hub watch a store, and n-1 logs beside it.
func ofMany(t *testing.T, n int, st store.Store) (h *outside.Hub, end func()) {
	t.Helper()
	targets := append([]outside.Target{{URL: "mem://first", Store: st}}, logs(t, n-1)...)
	h = outside.New(targets, &outside.Options{Clock: clock.Go()})
	return h, running(t, h)
}

// TestMembersOfOneOfMany: a look at a group waits for the budget. It takes nobody that is live for lapsed.
func TestMembersOfOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		for i := range 3 {
			defer join(t, mem, fmt.Sprint("worker ", i))()
		}
		time.Sleep(time.Minute)
		h, end := ofMany(t, 10, mem)
		defer end()
		seen := 0
		for range 2 * 3600 {
			time.Sleep(time.Second)
			g := state(h).Group
			if g == nil {
				continue
			}
			seen = len(g.Members)
			for _, m := range g.Members {
				if m.State == "lapsed" {
					t.Fatalf("%+v", g.Members)
				}
			}
		}
		if seen != 3 {
			t.Errorf("%d of 3 members", seen)
		}
	})
}

// TestDeadMemberOfOneOfMany: one that is dead is taken for lapsed.
func TestDeadMemberOfOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		var away atomic.Bool
		defer join(t, &stopped{Store: mem, away: &away}, "ann")()
		time.Sleep(time.Minute)
		h, end := ofMany(t, 10, mem)
		defer end()
		time.Sleep(time.Hour)
		if g := state(h).Group; len(g.Members) != 1 || g.Members[0].State == "lapsed" {
			t.Fatalf("%+v", g)
		}
		away.Store(true)
		time.Sleep(15 * time.Minute)
		if g := state(h).Group; len(g.Members) != 1 || g.Members[0].State != "lapsed" {
			t.Errorf("%+v", g)
		}
	})
}

// stopped is a store that takes nothing while it is away.
type stopped struct {
	store.Store
	away *atomic.Bool
}

func (s *stopped) Put(ctx context.Context, key string, b []byte, opts *store.PutOptions) (store.Info, error) {
	if s.away.Load() {
		return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Put(ctx, key, b, opts)
}

// TestRestartBetweenLooks: with many URLs, that the only writer is started again is not told as if nobody led for as long
// as the alert waits.
func TestRestartBetweenLooks(t *testing.T) {
	rounds := 60
	if testing.Short() { // make modules
		rounds = 20
	}
	for n, bound := range map[int]int{1: 120, 6: 120, 15: 200, 40: 420} { // with 15, some requests wait; with 40, each may wait a minute
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := logtest.New(t, logtest.WithGrace(0), nil)
				a := lead(t, l.Mem, "ann")
				h, end := ofMany(t, n, l.Mem)
				defer end()
				time.Sleep(2 * time.Hour)
				var free, longest, times int
				second := func() {
					time.Sleep(time.Second)
					if free++; state(h).Log.Terms[0].Leads {
						free = 0
					}
					if free == 1 {
						times++
					}
					longest = max(longest, free)
				}
				for round := 0; round < rounds || times == 0; round++ {
					_ = a.w.Close(t.Context())
					_ = a.Resign(t.Context())
					for range 30 {
						second()
					}
					a = lead(t, l.Mem, "ann")
					for range 10*60 + 7 {
						second()
					}
				}
				if longest >= bound {
					t.Errorf("nobody led for up to %d s, %d times", longest, times)
				}
			})
		})
	}
}

// TestNobodyLeadsManyLogs: logs that nobody leads get no more requests than the others for long.
func TestNobodyLeadsManyLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 30
		var targets []outside.Target
		for range n {
			l := logtest.New(t, logtest.WithGrace(0), nil)
			x := lead(t, l.Mem, "x")
			_ = x.w.Close(t.Context())
			_ = x.Resign(t.Context())
			targets = append(targets, outside.Target{URL: fmt.Sprint("mem://", len(targets)), Store: l.Mem})
		}
		h := outside.New(targets, &outside.Options{Clock: clock.Go()})
		defer running(t, h)()
		time.Sleep(4 * time.Hour)
		before := state(h).Requests
		time.Sleep(4 * time.Hour)
		if got := state(h).Requests - before; got > 11*4*60 {
			t.Errorf("%d requests in four hours", got)
		}
	})
}

// TestCompactorBetweenLooks: with many URLs, a compactor that comes after the look that found none is seen soon.
func TestCompactorBetweenLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := logtest.New(t, logtest.WithGrace(0), nil)
		lead(t, l.Mem, "ann").append(t, 3)
		e, err := leader.New(l.Mem, layout.CompactorLockPrefix, &leader.Options{Identity: "dog", Clock: clock.Go(), NoPrune: true})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err == nil {
			err = term.Resign(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		h, end := ofMany(t, 15, l.Mem)
		defer end()
		for state(h).Log == nil || !state(h).Log.Read.Compactor {
			time.Sleep(time.Second)
		}
		if c := state(h).Log.Compactor; c.Leads {
			t.Fatalf("%+v", c)
		}
		compacts(t, l.Mem)
		began := time.Now()
		for !state(h).Log.Compactor.Leads {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took > 12*time.Minute {
			t.Errorf("it was seen after %v", took)
		}
	})
}

// TestWorkersBetweenLooks: with many URLs, that workers come after looks that found none is seen soon.
func TestWorkersBetweenLooks(t *testing.T) {
	for _, after := range []time.Duration{0, time.Minute, 150 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(nil)
				leave := join(t, mem, "ann")
				h, end := ofMany(t, 15, mem)
				defer end()
				time.Sleep(time.Hour) // the first looks at all take many requests
				owned := func() (n int) {
					for _, o := range state(h).Group.Owners {
						if o >= 0 {
							n++
						}
					}
					return n
				}
				leave()
				for began := time.Now(); owned() > 0 && time.Since(began) < time.Hour; {
					time.Sleep(time.Second)
				}
				time.Sleep(after)
				defer join(t, mem, "bob")()
				began := time.Now()
				for owned() < 8 && time.Since(began) < time.Hour {
					time.Sleep(time.Second)
				}
				if took := time.Since(began); took > 4*time.Minute+after {
					t.Errorf("they were seen after %v", took)
				}
			})
		})
	}
}

// TestGroupFailsNowAndThen: a failure long ago makes the pause after the next one no longer.
func TestGroupFailsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(nil)
		places["group"](t, mem)
		st := &denied{Store: mem}
		st.off.Store(true)
		h, end := ofMany(t, 40, st)
		defer end()
		time.Sleep(2 * time.Hour)
		for i := range 8 {
			st.off.Store(false)
			for state(h).Err == "" {
				time.Sleep(time.Second)
			}
			st.off.Store(true)
			began := time.Now()
			for state(h).Err != "" {
				time.Sleep(time.Second)
			}
			if took := time.Since(began); took > 8*time.Minute {
				t.Errorf("after failure %d it took %v", i+1, took)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// TestPinsThatAreOver: pins that are over and that nobody marks keep no past leader from being read. That they were
// marked is seen.
func TestPinsThatAreOver(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		for range 20 {
			x := lead(t, l.Mem, "x")
			_ = x.w.Close(t.Context())
			_ = x.Resign(t.Context())
		}
		lead(t, l.Mem, "ann").append(t, 3)
		pin := func(id string, expired bool) {
			t.Helper()
			key := layout.PinKey(id)
			b, err := document.Encode(key, map[string]any{
				"format": document.Format, "version": 1, "holder": "x", "name": "n", "ttl": "1m0s", "created": time.Now(), "renewed": time.Now(), "expired": expired,
			})
			if err != nil {
				t.Fatal(err)
			}
			fixture.Put(t, l.Mem, key, b)
		}
		id := ""
		for range 40 {
			id = uuid.NewString()
			pin(id, false)
		}
		watching(t, 12, l.Mem, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(90 * time.Minute)
			known := 0
			for _, x := range state(h).Log.Terms {
				if x.State != "" {
					known++
				}
			}
			if known != 21 {
				t.Errorf("%d of 21 leaders", known)
			}
			pin(id, true)
			time.Sleep(10 * time.Minute)
			for _, p := range state(h).Log.Pins {
				if p.Expired != (p.ID == id) {
					t.Errorf("%+v", p)
				}
			}
		})
	})
}

// onlyFormat is a store in which nothing but the format of a log can be read.
type onlyFormat struct{ store.Store }

func (s *onlyFormat) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if key != layout.FormatKey {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrDenied}
	}
	return s.Store.Get(ctx, key, opts)
}

func (s *onlyFormat) List(_ context.Context, prefix string, _ *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		yield(store.Info{}, &store.Error{Op: "list", Key: prefix, Kind: store.ErrDenied})
	}
}

// TestNothingRead: a log of which no part can be read was not looked at. That the parts which had nothing to read did
// not fail says nothing.
func TestNothingRead(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(0), func(t *testing.T, l *logtest.Log) {
		watching(t, 12, &onlyFormat{l.Mem}, func(h *outside.Hub, _ *atomic.Int64) {
			time.Sleep(time.Hour)
			if s := state(h); s.Looked() || s.Err == "" {
				t.Errorf("looked: %t, error %q", s.Looked(), s.Err)
			}
		})
	})
}
