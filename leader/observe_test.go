package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
)

// watch collects what an observer sees, as "epoch holder state".
func (w *world) watch(n *node) (events func() []string, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var all []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rec, err := range n.Observe(ctx) {
			s := fmt.Sprintf("%v %s %s", rec.Epoch, rec.Holder, rec.State)
			if rec.Lapsed {
				s += " lapsed"
			}
			if err != nil {
				s = err.Error()
			}
			mu.Lock()
			all = append(all, s)
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}, func() { cancel(); <-done }
}

func TestObserve(t *testing.T) {
	inWorld(t, func(w *world) {
		events, stop := w.watch(w.node("o"))
		time.Sleep(time.Minute)
		a, b := w.node("a"), w.node("b")
		ta := w.campaign(a)
		time.Sleep(time.Minute)
		won := w.campaigning(b)
		time.Sleep(time.Minute)
		a.st.Crash()
		tb := <-won
		time.Sleep(time.Minute)
		w.resign(tb)
		time.Sleep(time.Minute)
		got := events()
		stop()
		// The observer may see the deposed and the lapsed lock in passing, or not at all.
		got = slices.DeleteFunc(got, func(s string) bool { return s == "1 a expired" || s == "1 a held lapsed" })
		if want := []string{"0  ", "1 a held", "2 b held", "2 b expired"}; !slices.Equal(got, want) {
			w.Errorf("got  %q\nwant %q", got, want)
		}
		<-ta.Context().Done()
	})
}

// A waiting candidate logs once whom it waits for, and once that it takes over.
func TestCandidateLogsWhomItWaitsFor(t *testing.T) {
	inWorld(t, func(w *world) {
		core, logs := observer.New(zap.DebugLevel)
		a, b := w.node("a"), w.node("b", func(o *leader.Options) { o.Logger = zap.New(core) })
		ta := w.campaign(a)
		won := w.campaigning(b)
		time.Sleep(time.Minute)
		a.st.Crash()
		tb := <-won
		var got []string
		for _, e := range logs.All() {
			m := e.ContextMap()
			got = append(got, fmt.Sprintln(e.Level, e.Message, m["epoch"], m["holder"], m["at_most"]))
		}
		if want := []string{
			"info waiting until the holder releases its lock or stops renewing it 1 a 15s\n",
			"info the lock has lapsed; taking over 1 a <nil>\n",
			"info elected 2 b <nil>\n",
		}; !slices.Equal(got, want) {
			w.Errorf("got  %q\nwant %q", got, want)
		}
		w.resign(tb)
		<-ta.Context().Done()
	})
}

// A leader crashes and has no successor: observers see its lock lapse.
func TestObserveLapse(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		ta := w.campaign(a)
		events, stop := w.watch(w.node("o"))
		time.Sleep(time.Minute)
		if _, err := w.node("p").Leader(w.Context()); err != nil {
			w.Errorf("Leader: %v", err)
		}
		a.st.Crash()
		time.Sleep(28 * time.Second)
		if got, want := events(), []string{"1 a held", "1 a held lapsed"}; !slices.Equal(got, want) {
			w.Errorf("got %q, want %q", got, want)
		}
		// A new observer knows from the store's clock.
		if rec, err := w.node("p").Leader(w.Context()); !errors.Is(err, leader.ErrNoLeader) || rec.Holder != "a" || !rec.Lapsed {
			w.Errorf("Leader: %+v, %v", rec, err)
		}
		stop()
		<-ta.Context().Done()
	})
}

// Between an observer's listing and its read, the lock that it saw as the newest is
// released, succeeded and pruned, and a late request puts a lock into the hole. The
// observer must not report that one.
func TestObserverIsNotFooledByAHole(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, o := w.node("a"), w.node("b"), w.node("o")
		ta := w.campaign(a)
		old, _, err := store.Read(w.Context(), w.mem, key(1), &store.ReadOptions{Limit: 1 << 20})
		if err != nil {
			w.Fatal(err)
		}
		var tb *leader.Term
		w.faulty.BeforeFirst(func(op faultstore.Op) bool {
			return op.Client == "o" && op.Kind == faultstore.Get
		}, func(context.Context) {
			w.resign(ta)
			tb = w.campaign(b)
			w.prune(leader.PruneOptions{Keep: 1})
			if _, err := w.mem.Put(w.Context(), key(1), old, &store.PutOptions{If: store.IfAbsent()}); err != nil {
				w.Error(err)
			}
		})
		rec, err := o.Leader(w.Context())
		if err != nil || rec.Holder != "b" || rec.Epoch != 2 {
			w.Errorf("named %q of epoch %v, %v", rec.Holder, rec.Epoch, err)
		}
		w.resign(tb)
	})
}

func TestJunkUnderLock(t *testing.T) {
	inWorld(t, func(w *world) {
		put := func(key, body string) {
			if _, err := w.mem.Put(w.Context(), key, []byte(body), nil); err != nil {
				w.Fatal(err)
			}
		}
		// Objects with other names are not locks, and are never deleted.
		strange := []string{"lock/README", "lock/7.json", "lock/00000000000000000009.json.bak", "lock/99999999999999999999.json", "lock/x/00000000000000000009.json", key(0)}
		for _, k := range strange {
			put(k, "mine")
		}
		a := w.node("a")
		w.resign(w.campaign(a))
		w.prune(leader.PruneOptions{Keep: 1, For: 1})
		if n, _ := w.mem.Len(); n != len(strange)+1 {
			w.Errorf("%d objects are left", n)
		}

		junk := map[string]error{
			"":              leader.ErrCorrupt,
			"not json":      leader.ErrCorrupt,
			"{}":            leader.ErrCorrupt,
			`{"format": 1}`: leader.ErrCorrupt,
			`{"format": 1, "epoch": 9, "state": "expired", "expired": true, "nonce": "0123456789abcdef0123456789abcdef", "validity_ms": 9, "renew_ms": 9, "next": 9}`: leader.ErrCorrupt,
			`{"format": 1, "epoch": 9, "state": "held", "nonce": "0123456789abcdef0123456789abcdef", "validity_ms": 9, "renew_ms": 9, "next": 10}`:                    leader.ErrCorrupt,
			`{"format": 2, "anything": []}`: leader.ErrFormat,
			`{"format": 1, "epoch": 8}`:     leader.ErrCorrupt,
			`{"format": 1, "epoch": 9, "state": "held", "nonce": "0123456789abcdef0123456789abcdeg", "validity_ms": 9, "renew_ms": 9}`: leader.ErrCorrupt,
			strings.Repeat(" ", 70<<10) + "{}": leader.ErrCorrupt,
		}
		for body, want := range junk {
			put(key(9), string(document.Sum(key(9), []byte(body))))
			_, err := a.Campaign(w.Context())
			also := map[error]error{leader.ErrCorrupt: fence.ErrCorrupt, leader.ErrFormat: fence.ErrFormat}[want]
			if !errors.Is(err, want) || !errors.Is(err, also) || !strings.Contains(err.Error(), key(9)) {
				w.Errorf("%.20q: Campaign: %v", body, err)
			}
			if _, err := a.Leader(w.Context()); !errors.Is(err, want) {
				w.Errorf("%.20q: Leader: %v", body, err)
			}
			if _, err := a.StepDown(w.Context(), nil); !errors.Is(err, want) {
				w.Errorf("%.20q: StepDown: %v", body, err)
			}
			_, err = a.StepDown(w.Context(), &leader.StepDownOptions{Force: true, Immediate: true})
			if errors.Is(want, leader.ErrFormat) {
				if !errors.Is(err, want) {
					w.Errorf("a lock of a newer format was overwritten: %v", err)
				}
				continue
			}
			if err != nil {
				w.Errorf("%.20q: StepDown with Force: %v", body, err)
			}
			term := w.campaign(a)
			if term.Epoch() != 10 {
				w.Errorf("%.20q: epoch %v", body, term.Epoch())
			}
			w.resign(term)
			if err := w.mem.Delete(w.Context(), key(10)); err != nil {
				w.Error(err)
			}
		}
	})
}

func TestHistory(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 50 {
			n := w.node(fmt.Sprintf("n%d", i), func(o *leader.Options) { o.NoPrune = true })
			term := w.campaign(n)
			time.Sleep(time.Minute)
			w.resign(term)
		}
		read := func() (holders []string) {
			for rec, err := range w.node("a").History(w.Context()) {
				if err != nil {
					rec.Holder = "error"
				}
				holders = append(holders, rec.Holder)
			}
			return holders
		}
		if got := read(); len(got) != 50 || got[0] != "n49" || got[49] != "n0" {
			w.Errorf("history %q", got)
		}
		// Nobody led with a held lock below the newest. A corrupt one is an error.
		held, _, err := store.Read(w.Context(), w.mem, key(50), &store.ReadOptions{Limit: 1 << 20})
		if err != nil {
			w.Fatal(err)
		}
		stray := strings.NewReplacer(`"epoch": 50`, `"epoch": 48`, `"state": "expired"`, `"state": "held"`, `"expired": true`, `"expired": false`, "n49", "stray").Replace(string(held))
		for k, body := range map[string]string{key(48): string(document.Sum(key(48), []byte(stray))), key(47): "junk"} {
			if _, err := w.mem.Put(w.Context(), k, []byte(body), nil); err != nil {
				w.Fatal(err)
			}
		}
		if got := read()[:4]; !slices.Equal(got, []string{"n49", "n48", "error", "n45"}) {
			w.Errorf("history %q", got)
		}
	})
}

func TestPrune(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 20 {
			n := w.node(fmt.Sprintf("n%d", i), func(o *leader.Options) { o.NoPrune = true })
			w.resign(w.campaign(n))
			time.Sleep(24 * time.Hour)
		}
		prune := func(o leader.PruneOptions, want int) {
			w.Helper()
			if n := w.prune(o); n != want {
				w.Errorf("%+v: deleted %d, want %d", o, n, want)
			}
		}
		prune(leader.PruneOptions{}, 0)
		prune(leader.PruneOptions{Keep: 15}, 5)
		prune(leader.PruneOptions{For: 10*24*time.Hour + time.Hour}, 5)
		prune(leader.PruneOptions{Keep: 1}, 9)
		prune(leader.PruneOptions{For: time.Nanosecond}, 0) // never the newest
		w.file(20)
		// A listing that breaks off may lack the newest lock: nothing is deleted.
		w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			return faultstore.Fault{Cut: true, Err: faultstore.ErrDenied}
		})
		if _, err := w.node("p").Prune(w.Context()); !errors.Is(err, store.ErrDenied) {
			w.Errorf("got %v", err)
		}
	})
}

// By default the newest 1,000 locks of the last 90 days are kept.
func TestPruneDefaults(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 1005 {
			if _, err := w.mem.Put(w.Context(), key(i+1), nil, &store.PutOptions{If: store.IfAbsent()}); err != nil {
				w.Fatal(err)
			}
		}
		for _, c := range []struct {
			after   time.Duration
			deleted int
		}{{0, 5}, {89 * 24 * time.Hour, 0}, {2 * 24 * time.Hour, 999}} {
			time.Sleep(c.after)
			if n := w.prune(leader.PruneOptions{}); n != c.deleted {
				w.Errorf("%v later: deleted %d, want %d", c.after, n, c.deleted)
			}
		}
	})
}

// Candidates and observers survive an outage that is longer than any lease.
func TestOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.faulty.SetRates(faultstore.Rates{Fail: 1})
		won := w.campaigning(w.node("a"))
		events, stop := w.watch(w.node("o"))
		time.Sleep(time.Hour)
		if n := w.faulty.Counts().Of("", ""); n > 60*60 {
			w.Errorf("%d requests in an hour of outage", n)
		}
		w.faulty.SetRates(faultstore.Rates{})
		term := <-won
		time.Sleep(time.Minute)
		if got := events(); !slices.Equal(got[len(got)-1:], []string{"1 a held"}) {
			w.Errorf("observed %q", got)
		}
		stop()
		w.resign(term)
	})
}

func TestPermanentErrorsEndTheCampaign(t *testing.T) {
	for _, kind := range []faultstore.Kind{faultstore.List, faultstore.Put} {
		inWorld(t, func(w *world) {
			w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: kind, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
			a := w.node("a")
			if _, err := a.Campaign(w.Context()); !errors.Is(err, store.ErrDenied) {
				w.Errorf("%s: %v", kind, err)
			}
			w.faulty.SetHook(nil)
			w.resign(w.campaign(a)) // and it may try again
		})
	}
}
