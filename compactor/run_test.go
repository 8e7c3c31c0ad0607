package compactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// inBubble gives a log in virtual time.
func inBubble(t *testing.T, grace time.Duration, f func(t *testing.T, w *world)) {
	t.Helper()
	logtest.Bubble(t, logtest.WithGrace(grace), func(t *testing.T, l *logtest.Log) { f(t, worldOf(l)) })
}

func running(opts *Options) *Options {
	o := *opts
	o.Clock = clock.Go()
	if o.Settle == nil {
		o.Settle = &store.SettleOptions{Clock: clock.Go(), Reads: 3, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}
	}
	return &o
}

// run starts a compactor. The function returned stops it and returns what Run
// returned.
func (w *world) run(client string, opts *Options) (stop func() error, done <-chan error) {
	w.Helper()
	c, err := New(w.Faulty.Client(client), running(opts))
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() error {
		cancel(errStopped)
		return <-ended
	}, ended
}

var errStopped = errors.New("stopped")

func (w *world) elector() *leader.Elector {
	w.Helper()
	e, err := leader.New(w.Mem, layout.CompactorLockPrefix, &leader.Options{Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// Run folds when enough objects wait, or one for long enough; and leaves at once
// when it is told to, with the lock free.
func TestRun(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		stop, _ := w.run("c", &Options{MinObjects: 5, MaxAge: time.Minute, Interval: time.Second})
		time.Sleep(2 * time.Second)
		w.Lead(7) // and a seal
		time.Sleep(2 * time.Second)
		if m := w.Newest(); m.Floor.Offset != 7 || len(w.Keys(layout.DataPrefix)) != 1 {
			t.Errorf("the floor is at %v; left are %q", m.Floor, short(w.Keys("")))
		}
		w.Lead(1)
		time.Sleep(58 * time.Second)
		if m := w.Newest(); m.Floor.Offset != 7 {
			t.Error("folded one object")
		}
		time.Sleep(4 * time.Second)
		if m := w.Newest(); m.Floor.Offset != 8 {
			t.Errorf("an object has waited for more than a minute; the floor is at %v", m.Floor)
		}
		if err := stop(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		if rec, err := w.elector().Leader(t.Context()); !errors.Is(err, leader.ErrNoLeader) || rec.State != leader.Expired {
			t.Errorf("the lock is %+v, %v", rec, err)
		}
		w.holds("at the end")
	})
}

// A compactor that loses its term stops, contends again, and goes on; the other
// one works meanwhile, and never both.
func TestRunLosesItsTerm(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		stopA, _ := w.run("a", &Options{MinObjects: 2, Interval: time.Second, Leader: &leader.Options{Identity: "a"}})
		stopB, _ := w.run("b", &Options{MinObjects: 2, Interval: time.Second, Leader: &leader.Options{Identity: "b"}})
		e := w.elector()
		var last fence.Epoch
		for range 6 {
			time.Sleep(20 * time.Second)
			rec, err := e.StepDown(t.Context(), nil)
			if err != nil || rec.Epoch <= last {
				t.Fatalf("epoch %v after %v, %v", rec.Epoch, last, err)
			}
			last = rec.Epoch
			w.Lead(3)
			time.Sleep(40 * time.Second)
			if m := w.Newest(); m.Floor.Offset != uint64(len(w.History())) || m.Roles[layout.Compactor].Epoch <= last {
				t.Errorf("nobody has gone on: the floor is at %v, the role is %+v after epoch %d", m.Floor, m.Roles[layout.Compactor], last)
			}
		}
		for _, stop := range []func() error{stopA, stopB} {
			if err := stop(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		}
		w.holds("at the end")
		w.tidy("at the end")
	})
}

// A store that fails for a while, for any request, ends nothing.
func TestRunOutlivesFailures(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		var down atomic.Bool
		down.Store(true)
		w.Faulty.SetHook(func(faultstore.Op) faultstore.Fault {
			if down.Load() {
				return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
			}
			return faultstore.Fault{}
		})
		w.Lead(5)
		stop, done := w.run("c", &Options{MinObjects: 1, Interval: time.Second})
		for range 3 {
			time.Sleep(time.Minute)
			select {
			case err := <-done:
				t.Fatalf("it ended with %v", err)
			default:
			}
			down.Store(false)
			time.Sleep(time.Minute)
			if m := w.Newest(); m.Floor.Offset != uint64(len(w.History())) {
				t.Errorf("the store is back, and the floor is at %v", m.Floor)
			}
			w.Lead(5)
			down.Store(true)
		}
		if err := stop(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}

// What waiting cannot mend ends Run, and says why.
func TestRunEnds(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(w *world)
		want error
	}{
		"damage":    {func(w *world) { w.Put(layout.DataKey(logtest.At(1, 1)), []byte("junk")) }, fence.ErrCorrupt},
		"denied":    {func(w *world) { w.Faulty.SetHook(always(faultstore.ErrDenied)) }, store.ErrDenied},
		"junk lock": {func(w *world) { w.Put("compactor-lock/"+layout.FormatNumber(5)+".json", []byte("junk")) }, leader.ErrCorrupt},
		"newer":     {func(w *world) { w.Put(layout.FormatKey, document.Sum(layout.FormatKey, []byte(`{"format": 99}`))) }, fence.ErrFormat},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, func(t *testing.T, w *world) {
				w.Lead(3)
				c.harm(w)
				stop, done := w.run("c", &Options{MinObjects: 1, Interval: time.Second})
				time.Sleep(time.Hour)
				select {
				case err := <-done:
					if !errors.Is(err, c.want) {
						t.Errorf("it ended with %v, want %v", err, c.want)
					}
				default:
					t.Errorf("it goes on; stopped, it says %v", stop())
				}
			})
		})
	}
}

func always(err error) faultstore.Hook {
	return func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Err: err} }
}

// Epochs of the compactor's election go on after those that the log knows, also
// if the locks are lost; otherwise each term would be fenced at once.
func TestRunAfterLostLocks(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.Token = 40
		w.Lead(2)
		w.compact(w.Mem, nil)
		w.Lead(2)
		c, err := New(w.Mem, running(&Options{}))
		if err != nil {
			t.Fatal(err)
		}
		for want := fence.Epoch(42); want < 45; want++ {
			r, err := c.Once(t.Context())
			if got := w.Newest().Roles[layout.Compactor].Epoch; err != nil || got != want {
				t.Errorf("epoch %d, %+v, %v; want epoch %d", got, r, err, want)
			}
			w.Remove(w.Keys("compactor-lock/")...)
		}
		w.holds("at the end")
	})
}

// With a token from elsewhere Run holds no election, touches no lock, and ends when a later
// token takes over.
func TestRunWithToken(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.Lead(3)
		w.Put("lock/"+layout.FormatNumber(1)+".json", []byte("somebody's"))
		o := &Options{Token: fence.NewToken(7), MinObjects: 1, Interval: time.Second, Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 1}}}
		_, done := w.run("c", o)
		time.Sleep(time.Minute)
		if m := w.Newest(); m.Floor.Offset != 3 || m.Roles[layout.Compactor].Epoch != 7 || len(w.Keys(layout.LockPrefix)) != 1 || len(w.Keys(layout.CompactorLockPrefix)) != 0 {
			t.Errorf("the floor is at %v; left are %q", m.Floor, short(w.Keys("")))
		}
		w.Token = 7
		w.compact(w.Mem, nil)
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			if !errors.Is(err, ErrFenced) {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("a zombie goes on")
		}
	})
}

// Once prunes the locks of both elections, but what is to be kept, and the
// report says how many.
func TestOncePrunesLocks(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		e, err := leader.New(w.Mem, layout.LockPrefix, &leader.Options{Clock: clock.Go(), NoPrune: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := e.Run(t.Context(), func(context.Context, *leader.Term) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		o := running(&Options{Leader: &leader.Options{Prune: leader.PruneOptions{Keep: 2}}})
		w.Lead(1)
		c := mustNew(t, w.Mem, o)
		for i, want := range []int{3, 0, 1, 1} { // its own come to three with the third
			r, err := c.Once(t.Context())
			if err != nil || r.Pruned["lock"] != want {
				t.Errorf("time %d: %+v, %v", i, r.Pruned, err)
			}
		}
		if len(w.Keys("lock/")) != 2 || len(w.Keys("compactor-lock/")) != 2 {
			t.Errorf("locks are %q", short(w.Keys("")))
		}
		// By age they go by the compactor's clock where the store has none.
		c = mustNew(t, told{w.Mem, noDate}, running(&Options{}))
		if r, err := c.Once(t.Context()); err != nil || r.Pruned["lock"] != 0 {
			t.Errorf("young locks are pruned: %+v, %v", r.Pruned, err)
		}
		time.Sleep(91 * 24 * time.Hour)
		if r, err := c.Once(t.Context()); err != nil || r.Pruned["lock"] != 4 {
			t.Errorf("three months later: %+v, %v", r.Pruned, err)
		}
	})
}

// One Logger serves the compactor and its election, and the lines tell which is which.
func TestLogNames(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.Lead(1)
		core, logs := observer.New(zap.InfoLevel)
		if _, err := mustNew(t, w.Mem, running(&Options{Logger: zap.New(core)})).Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, e := range logs.All() {
			names[e.LoggerName] = true
		}
		if len(names) != 2 || !names["compactor"] || !names["compactor.leader"] {
			t.Errorf("the lines are of %v", names)
		}
	})
}

// T30: an idle log costs next to nothing.
func TestT30_IdleCost(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		w.Lead(70)
		stop, _ := w.run("c", &Options{})
		time.Sleep(2 * time.Hour) // all is folded and pruned
		before := w.Newest().Version
		w.Faulty.ResetCounts()
		time.Sleep(time.Hour)
		n := w.Faulty.Counts()
		// A look each 10 s (LIST of manifests, GET of the floor), a prune each 5 min
		// (10 LISTs), a heartbeat each 6 s.
		if n.Of(faultstore.List, "") > 360+12*11+1 || n.Of(faultstore.Get, "") > 361 || n.Of(faultstore.Put, "") > 601 || n.Of(faultstore.Delete, "") > 0 {
			t.Errorf("an hour costs %v", n)
		}
		if after := w.Newest().Version; after != before {
			t.Errorf("nothing happens, and the manifest went from %d to %d", before, after)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A compactor that cannot keep up with the writer prunes all the same.
func TestPrunesWhileBehind(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(50)
	var uploads, early atomic.Int64
	w.watch(func(_ context.Context, op faultstore.Op) {
		switch {
		case op.Kind == faultstore.Upload:
			uploads.Add(1)
		case op.Kind == faultstore.Delete && strings.HasPrefix(op.Key, layout.DataPrefix) && uploads.Load() == 1:
			early.Add(1)
		}
	})
	w.compact(w.Faulty, &Options{Settle: logtest.Quick, SegmentBytes: 50, NoCompress: true})
	if uploads.Load() < 4 || early.Load() != 1 {
		t.Errorf("%d segments, %d deletes after the first", uploads.Load(), early.Load())
	}
	w.holds(fmt.Sprint("after ", uploads.Load(), " uploads"))
}

// The first call is stopped while its fold is on the way; the fold lands during the second call. Nobody
// else has the token.
//
// guard:same-updater. Without this: call 1 is stopped while its update is in flight; call 2 makes a
// second updater for the same token, which begins with the same number; the update of call 1 is
// applied; call 2 finds its number with another nonce, and reports that another process has its token.
func TestSameTokenAgain(t *testing.T) {
	synctest.Test(t, sameTokenAgain)
}

func sameTokenAgain(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(3)
	if _, err := w.once(w.Mem, 1, nil); err != nil {
		t.Fatal(err)
	}
	w.Lead(3)
	ctx, cancel := context.WithCancel(context.Background())
	w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.ManifestPrefix, Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{}}}))
	defer cancel()
	updates := func(f func()) func(context.Context, faultstore.Op) {
		return func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.ManifestPrefix) {
				f()
			}
		}
	}
	w.Faulty.SetBefore(updates(func() { time.AfterFunc(10*time.Millisecond, cancel) })) // it hangs until then
	c := w.withToken(w.Faulty, 1, small())
	_, err := c.Once(ctx)
	if err == nil {
		t.Fatal("it was not stopped")
	}
	w.Faulty.SetHook(nil)
	var landed atomic.Int64
	w.Faulty.SetBefore(updates(func() { landed.Add(int64(w.Faulty.Release(context.Background(), nil))) }))
	// Making a plan in between changes nothing.
	if _, err := c.Plan(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err = c.Once(context.Background())
	if err != nil {
		t.Errorf("again: %v", err)
	}
	if landed.Load() != 1 {
		t.Errorf("%d updates landed late", landed.Load())
	}
}

// Before there is a log, Run waits for it, and says so. After a while it asks whether this is
// the right place.
func TestRunWaitsForALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		st := memstore.New(&memstore.Options{Name: "mem://here", Clock: clock.Go()})
		c, err := New(st, running(&Options{Logger: zap.New(core)}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Minute)
		if n := logs.FilterMessageSnippet("waiting for it").Len(); n != 1 {
			t.Errorf("%d lines that it waits", n)
		}
		time.Sleep(10 * time.Minute)
		if n := logs.FilterMessageSnippet("right place").FilterField(zap.String("store", "mem://here")).Len(); n != 2 {
			t.Errorf("%d reminders", n)
		}
		if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probed: logtest.Format().Probe}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if logs.FilterMessageSnippet("elected").Len() != 1 {
			t.Error("it did not begin when there was a log")
		}
		cancel(errStopped)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// The hooks are told each fold, and each pass with its error.
func TestHooksTellFoldsAndPasses(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	l.Lead(5)
	var folds []Fold
	var passes []Pass
	c, err := New(l.Faulty, &Options{Token: fence.NewToken(3), Hooks: Hooks{
		Folded: func(f Fold) { folds = append(folds, f) },
		Passed: func(p Pass) { passes = append(passes, p) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(folds) != 1 || folds[0].Epoch != 3 || folds[0].Records != 5 || folds[0].Objects != r.Folded || folds[0].Bytes != r.Bytes || folds[0].Floor != r.Floor {
		t.Errorf("folds: %+v; report %+v", folds, r)
	}
	if len(passes) != 1 || passes[0].Err != nil || passes[0].Epoch != 3 || passes[0].Report.Records != 5 {
		t.Errorf("passes: %+v", passes)
	}
	// Nothing to fold is a pass, and so is one that fails.
	if _, err := c.Once(t.Context()); err != nil || len(folds) != 1 || len(passes) != 2 {
		t.Errorf("%v; %d folds, %d passes", err, len(folds), len(passes))
	}
	l.Faulty.SetHook(faultstore.Script(faultstore.Rule{Prefix: layout.ManifestPrefix, Fault: faultstore.Fault{Err: &store.Error{Op: "list", Kind: store.ErrDenied}}}))
	if _, err := c.Once(t.Context()); !errors.Is(err, store.ErrDenied) || len(passes) != 3 || !errors.Is(passes[2].Err, store.ErrDenied) {
		t.Errorf("%v; %+v", err, passes)
	}
}
