package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// format is that of every test's log: made once, because the store is probed
// before.
var format = sync.OnceValue(func() []byte {
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: -1})
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return body
})

// world is a log in virtual time, and the processes that want to lead it.
type world struct {
	*testing.T
	mem    *memstore.Store
	faulty *faultstore.Store
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	body := format()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		w := &world{T: t, mem: mem, faulty: faultstore.New(mem, &faultstore.Options{Clock: clock.Go()})}
		w.put(layout.FormatKey, body)
		f(t, w)
	})
}

func (w *world) put(key string, body []byte) {
	w.Helper()
	if _, err := w.mem.Put(context.Background(), key, body, nil); err != nil {
		w.Fatal(err)
	}
}

func (w *world) keys(prefix string) []string {
	w.Helper()
	var all []string
	for info, err := range w.mem.List(context.Background(), prefix, nil) {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, info.Key)
	}
	return all
}

func options(name string) *fencepost.Options {
	return &fencepost.Options{
		Leader: &leader.Options{Identity: name, Clock: clock.Go()},
		Writer: &writer.Options{Clock: clock.Go(), Settle: &store.SettleOptions{Reads: 3, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}},
	}
}

type work = func(ctx context.Context, w *writer.Writer) error

// node is a process in Run.
type node struct {
	cancel context.CancelCauseFunc
	ended  chan struct{}
	err    error
	calls  atomic.Int64
}

var errStop = errors.New("the process is told to stop")

func (w *world) run(name string, opts *fencepost.Options, f work) *node {
	ctx, cancel := context.WithCancelCause(context.Background())
	n := &node{cancel: cancel, ended: make(chan struct{})}
	st := w.faulty.Client(name)
	go func() {
		defer close(n.ended)
		n.err = fencepost.Run(ctx, st, opts, func(ctx context.Context, wr *writer.Writer) error {
			n.calls.Add(1)
			return f(ctx, wr)
		})
	}()
	return n
}

// ends waits for a day at most.
func (w *world) ends(n *node) error {
	w.Helper()
	select {
	case <-n.ended:
		return n.err
	case <-time.After(24 * time.Hour):
		n.cancel(errStop)
		<-n.ended
		w.Errorf("Run does not end by itself; stopped, it says %v", n.err)
		return n.err
	}
}

func (w *world) elector() *leader.Elector {
	w.Helper()
	e, err := leader.New(w.mem, fencepost.LockPrefix, &leader.Options{Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// free fails the test unless the newest lock is expired.
func (w *world) free() leader.Record {
	w.Helper()
	rec, err := w.elector().Leader(context.Background())
	if !errors.Is(err, leader.ErrNoLeader) || rec.State != leader.Expired {
		w.Errorf("the lock is %+v, %v", rec, err)
	}
	return rec
}

func (w *world) contents() []string {
	w.Helper()
	r, err := reader.Open(context.Background(), w.mem, &reader.Options{Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for rec, err := range r.Read(context.Background(), 0) {
		if err != nil || rec.Offset != uint64(len(all)) {
			w.Fatalf("record %d after %d: %v", rec.Offset, len(all), err)
		}
		all = append(all, string(rec.Value))
	}
	return all
}

func (w *world) holds(want ...string) {
	w.Helper()
	if got := w.contents(); !slices.Equal(got, want) {
		w.Errorf("the log holds %q, want %q", got, want)
	}
}

func appendAsync(ctx context.Context, wr *writer.Writer, value string) error {
	_, err := wr.AppendAsync(ctx, [][]byte{[]byte(value)})
	return err
}

// What is wrong is said before anybody is elected, though another leads: not after
// a wait for its end, and not with an epoch spent.
func TestRunRefusesAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		leading := make(chan struct{})
		leads := w.run("a", options("a"), func(ctx context.Context, _ *writer.Writer) error {
			close(leading)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		<-leading
		idle := func(context.Context, *writer.Writer) error { return nil }
		second := faultstore.New(w.mem, &faultstore.Options{Clock: clock.Go()})
		for says, c := range map[string]struct {
			bend func(o *fencepost.Options)
			work work
		}{
			"InFlight is -3": {func(o *fencepost.Options) { o.Writer.InFlight = -3 }, idle},
			"Hedge is 5":     {func(o *fencepost.Options) { o.Writer.Hedge = 5 }, idle},
			"manifests of -5": {func(o *fencepost.Options) {
				o.Writer.Init = &manifest.InitOptions{Limits: manifest.Limits{Manifest: -5}}
			}, idle},
			"Validity 1µs must be": {func(o *fencepost.Options) { o.Leader.Validity = time.Microsecond }, idle},
			"no work":              {func(*fencepost.Options) {}, nil},
		} {
			o := options("b")
			c.bend(o)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := fencepost.Run(ctx, second, o, c.work); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("Run says %v, want %q", err, says)
			}
			cancel()
		}
		if n := second.Counts(); n.Of("", "") != 0 {
			t.Errorf("requests were made: %v", n)
		}
		leads.cancel(errStop)
		if err := w.ends(leads); !errors.Is(err, errStop) {
			t.Error(err)
		}
	})
}

// Each way in which Run ends while the term stands: what it returns, that the lock
// is free at once, and that what was appended is in the log where it says so.
func TestRunEnds(t *testing.T) {
	mine := errors.New("my own")
	for name, c := range map[string]struct {
		work  work
		hook  faultstore.Hook
		check func(err error) bool
		holds []string
	}{
		"done": {
			work:  func(ctx context.Context, wr *writer.Writer) error { return appendAsync(ctx, wr, "a") },
			check: func(err error) bool { return err == nil }, holds: []string{"a"},
		},
		"done, nothing appended": {
			work:  func(context.Context, *writer.Writer) error { return nil },
			check: func(err error) bool { return err == nil },
		},
		"its own error": {
			work: func(ctx context.Context, wr *writer.Writer) error {
				return errors.Join(appendAsync(ctx, wr, "a"), mine)
			},
			check: func(err error) bool { return errors.Is(err, mine) }, holds: []string{"a"},
		},
		"closed by the work": {
			work: func(ctx context.Context, wr *writer.Writer) error {
				if err := errors.Join(appendAsync(ctx, wr, "a"), wr.Close(ctx)); err != nil {
					return err
				}
				return ctx.Err() // closing it is no reason to stop
			},
			check: func(err error) bool { return err == nil }, holds: []string{"a"},
		},
		"closed by the work, its own error": {
			work: func(ctx context.Context, wr *writer.Writer) error {
				return errors.Join(appendAsync(ctx, wr, "a"), wr.Close(ctx), mine)
			},
			check: func(err error) bool { return errors.Is(err, mine) }, holds: []string{"a"},
		},
		"an append failed, unnoticed": {
			work: func(ctx context.Context, wr *writer.Writer) error { return appendAsync(ctx, wr, "a") },
			hook: faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool {
				return errors.Is(err, writer.ErrNotCommitted) && errors.Is(err, store.ErrDenied)
			},
		},
		"an append failed, noticed": {
			work: func(ctx context.Context, wr *writer.Writer) error {
				_ = appendAsync(ctx, wr, "a")
				<-ctx.Done()
				return context.Cause(ctx)
			},
			hook:  faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool { return errors.Is(err, store.ErrDenied) },
		},
		"no outcome": {
			work:  func(ctx context.Context, wr *writer.Writer) error { return appendAsync(ctx, wr, "a") },
			hook:  faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}}),
			check: func(err error) bool { return errors.Is(err, writer.ErrUnknown) },
		},
		"no permission to elect": {
			work:  func(context.Context, *writer.Writer) error { return mine },
			hook:  faultstore.Script(faultstore.Rule{Prefix: "lock/", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool { return errors.Is(err, store.ErrDenied) },
		},
		"no permission to open": {
			work:  func(context.Context, *writer.Writer) error { return mine },
			hook:  faultstore.Script(faultstore.Rule{Prefix: "data/", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool { return errors.Is(err, store.ErrDenied) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.faulty.SetHook(c.hook)
				n := w.run("a", options("a"), c.work)
				if err := w.ends(n); !c.check(err) {
					t.Errorf("it ended with %v", err)
				}
				if n.calls.Load() > 1 {
					t.Errorf("work was called %d times", n.calls.Load())
				}
				if len(w.keys("lock/")) > 0 {
					w.free()
				}
				w.holds(c.holds...)
			})
		})
	}
}

func TestRunRefuses(t *testing.T) {
	never := func(context.Context, *writer.Writer) error { return errors.New("work was called") }
	for name, c := range map[string]struct {
		harm func(w *world, o *fencepost.Options)
		want error
	}{
		"options of the leader": {func(_ *world, o *fencepost.Options) { o.Leader.Validity = time.Nanosecond }, leader.ErrOptions},
		"a junk lock":           {func(w *world, _ *fencepost.Options) { w.put("lock/"+layout.FormatNumber(7)+".json", []byte("junk")) }, leader.ErrCorrupt},
		"a newer log":           {func(w *world, _ *fencepost.Options) { w.put(layout.FormatKey, []byte(`{"format":99}`)) }, fence.ErrFormat},
		"a damaged log":         {func(w *world, _ *fencepost.Options) { w.put(layout.DataKey(frame.Genesis()), []byte("junk")) }, fence.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				o := options("a")
				c.harm(w, o)
				if err := w.ends(w.run("a", o, never)); !errors.Is(err, c.want) {
					t.Errorf("it ended with %v, want %v", err, c.want)
				}
			})
		})
	}
}

// When ctx ends, what is under way is settled before the lock is freed, and then
// the next candidate leads at once, not after the validity.
func TestRunDrains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow := faultstore.Fault{Delay: 2 * time.Second}
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: slow}))
		leading := make(chan struct{})
		a := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error {
			for i := range 20 {
				if err := appendAsync(ctx, wr, fmt.Sprint(i)); err != nil {
					return err
				}
			}
			close(leading)
			<-ctx.Done()
			if err := context.Cause(ctx); !errors.Is(err, errStop) || !errors.Is(err, leader.ErrResigned) {
				w.Errorf("work was stopped because of %v", err)
			}
			return context.Cause(ctx)
		})
		<-leading
		var began time.Time
		b := w.run("b", options("b"), func(_ context.Context, wr *writer.Writer) error {
			began = time.Now()
			if wr.Recovered().Offset != 20 {
				w.Errorf("the next leader recovered %+v", wr.Recovered())
			}
			return nil
		})
		time.Sleep(time.Second)
		a.cancel(errStop)
		if err := w.ends(a); err != errStop { //nolint:errorlint // the cause itself
			t.Errorf("it ended with %v", err)
		}
		ended := time.Now()
		if err := w.ends(b); err != nil {
			t.Error(err)
		}
		if took := began.Sub(ended); took > 3*time.Second {
			t.Errorf("the next leader began %v after the end of the one before", took)
		}
	})
}

// A store that settles nothing does not keep Run from ending.
func TestRunDrainIsBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}}))
		n := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error {
			if err := appendAsync(ctx, wr, "a"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Minute)
		n.cancel(errStop)
		start := time.Now()
		if err := w.ends(n); !errors.Is(err, errStop) || time.Since(start) > 16*time.Second {
			t.Errorf("it ended after %v with %v", time.Since(start), err)
		}
		w.free()
	})
}

// T18, T19: a leader that is deposed stops its work and waits for it, contends
// again, and goes on where the history ends.
func TestRunContendsAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var returned time.Time
		n := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error {
			at := wr.Recovered().Offset
			if err := appendAsync(ctx, wr, fmt.Sprint(at)); err != nil {
				return err
			}
			if err := wr.Flush(ctx); err != nil {
				return err
			}
			if at == 3 {
				return nil
			}
			<-ctx.Done()
			if err := context.Cause(ctx); !errors.Is(err, leader.ErrDeposed) {
				w.Errorf("work was stopped because of %v", err)
			}
			time.Sleep(time.Second) // it takes its time
			returned = time.Now()
			return ctx.Err()
		})
		e := w.elector()
		for i := range int64(3) {
			time.Sleep(time.Minute)
			if n.calls.Load() != i+1 {
				t.Fatalf("work was called %d times", n.calls.Load())
			}
			if _, err := e.StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.ends(n); err != nil || n.calls.Load() != 4 {
			t.Errorf("it ended with %v after %d terms", err, n.calls.Load())
		}
		if returned.IsZero() || time.Since(returned) < 0 {
			t.Error("work was not waited for")
		}
		w.holds("0", "1", "2", "3")
		if rec := w.free(); rec.Epoch != 4 {
			t.Errorf("the last epoch is %v", rec.Epoch)
		}
	})
}

// A lost term cuts the writer off: what the store does not settle is not waited
// for.
func TestRunCutsOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if _, ok := layout.ParseDataKey(op.Key); ok && op.Kind == faultstore.Put && op.Size > frame.HeaderSize { // not a seal
				return faultstore.Fault{Drop: true, Hang: true}
			}
			return faultstore.Fault{}
		})
		var second time.Time
		n := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error {
			if wr.Epoch() > 1 {
				second = time.Now()
				return nil
			}
			f, err := wr.AppendAsync(ctx, [][]byte{[]byte("a")})
			if err != nil {
				return err
			}
			_, err = f.Wait(context.Background())
			if !errors.Is(err, writer.ErrUnknown) || !errors.Is(err, leader.ErrDeposed) {
				t.Errorf("the append was told %v", err)
			}
			return err
		})
		time.Sleep(time.Minute)
		if _, err := w.elector().StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
			t.Fatal(err)
		}
		deposed := time.Now()
		if err := w.ends(n); err != nil {
			t.Error(err)
		}
		if took := second.Sub(deposed); took < 0 || took > 10*time.Second {
			t.Errorf("it led again %v after it was deposed", took)
		}
		w.holds()
	})
}

// Work that had done it all before the term was lost is done.
func TestRunDoneInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error {
			if _, err := wr.Append(ctx, [][]byte{[]byte("a")}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Minute)
		if _, err := w.elector().StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
			t.Fatal(err)
		}
		if err := w.ends(n); err != nil || n.calls.Load() != 1 {
			t.Errorf("it ended with %v after %d terms", err, n.calls.Load())
		}
		w.holds("a")
	})
}

// A leader whose heartbeats hang loses its term by its own clock, before another
// one leads; when it is back it contends again. What it tried meanwhile is in the
// log once or not at all.
func TestRunFrozenHeartbeats(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var frozen atomic.Bool
		w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Client == "a" && op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "lock/") && frozen.Load() {
				return faultstore.Fault{Drop: true, Hang: true}
			}
			return faultstore.Fault{}
		})
		var leading atomic.Int64
		do := func(name string) work {
			return func(ctx context.Context, wr *writer.Writer) error {
				if others := leading.Add(1); others != 1 {
					w.Errorf("%s leads beside another", name)
				}
				defer leading.Add(-1)
				for i := 0; ctx.Err() == nil; i++ {
					if _, err := wr.Append(ctx, [][]byte{fmt.Appendf(nil, "%s.%d.%d", name, wr.Epoch(), i)}); err != nil {
						return err
					}
					_ = clock.Sleep(ctx, clock.Go(), time.Second)
				}
				return ctx.Err()
			}
		}
		a := w.run("a", options("a"), do("a"))
		time.Sleep(10 * time.Second)
		b := w.run("b", options("b"), do("b"))
		time.Sleep(10 * time.Second)
		frozen.Store(true)
		time.Sleep(time.Minute)
		if a.calls.Load() != 1 || b.calls.Load() != 1 {
			t.Errorf("a led %d times, b %d times", a.calls.Load(), b.calls.Load())
		}
		frozen.Store(false)
		b.cancel(errStop)
		if err := w.ends(b); !errors.Is(err, errStop) {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if a.calls.Load() != 2 {
			t.Errorf("a led %d times", a.calls.Load())
		}
		a.cancel(errStop)
		if err := w.ends(a); !errors.Is(err, errStop) {
			t.Error(err)
		}
		var leaders []string
		seen := map[string]bool{}
		for _, v := range w.contents() {
			if seen[v] {
				t.Errorf("%q is there twice", v)
			}
			seen[v] = true
			if who := v[:1]; len(leaders) == 0 || leaders[len(leaders)-1] != who {
				leaders = append(leaders, who)
			}
		}
		if !slices.Equal(leaders, []string{"a", "b", "a"}) {
			t.Errorf("the log was written by %q", leaders)
		}
	})
}

// If the log knows later epochs than the election, since the locks were lost, or
// tokens came from elsewhere, the election goes on behind them, with one term in
// vain and not many.
func TestRunBehindTheLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		open := func(epoch uint64, value string) *writer.Writer {
			wr, err := writer.Open(t.Context(), w.mem, fence.NewToken(epoch), options("x").Writer)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wr.Append(t.Context(), [][]byte{[]byte(value)}); err != nil {
				t.Fatal(err)
			}
			return wr
		}
		if err := open(40, "0").Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ended, fenced := make(chan time.Duration, 1), make(chan struct{})
		n := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error {
			switch wr.Recovered().Offset {
			case 1:
				ended <- time.Since(start)
				if wr.Epoch() != 41 {
					w.Errorf("it leads in epoch %d", wr.Epoch())
				}
				if _, err := wr.Append(ctx, [][]byte{[]byte("1")}); err != nil {
					return err
				}
				<-fenced // somebody with a token from elsewhere has taken over
				_ = appendAsync(ctx, wr, "never")
				<-ctx.Done()
				return errors.New("stopped, for whatever reason")
			case 3:
				if wr.Epoch() != 71 {
					w.Errorf("then it leads in epoch %d", wr.Epoch())
				}
				return appendAsync(ctx, wr, "3")
			}
			return fmt.Errorf("recovered %+v", wr.Recovered())
		})
		if took := <-ended; took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Second)
		other := open(70, "2")
		close(fenced)
		if err := w.ends(n); err != nil {
			t.Error(err)
		}
		_ = other.Close(t.Context())
		w.holds("0", "1", "2", "3")
		if locks := len(w.keys("lock/")); locks > 5 {
			t.Errorf("there were %d terms", locks)
		}
	})
}

// A store that fails for a while as the writer is opened does not end Run: the
// token is spent, and another term opens it.
func TestRunOutlivesFailures(t *testing.T) {
	for _, prefix := range []string{"", "manifest/", "data/", "lock/"} {
		inWorld(t, func(t *testing.T, w *world) {
			var down atomic.Bool
			down.Store(true)
			w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if strings.HasPrefix(op.Key, prefix) && down.Load() {
					return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
				}
				return faultstore.Fault{}
			})
			n := w.run("a", options("a"), func(ctx context.Context, wr *writer.Writer) error { return appendAsync(ctx, wr, "a") })
			time.Sleep(5 * time.Minute)
			down.Store(false)
			if err := w.ends(n); err != nil || n.calls.Load() != 1 {
				t.Errorf("%q fails: it ended with %v after %d terms", prefix, err, n.calls.Load())
			}
			w.holds("a")
			w.free()
		})
	}
}

// Work that panics, or ends its goroutine, leaves neither a lock nor anything that
// still runs.
func TestRunPanics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = fencepost.Run(t.Context(), w.faulty, options("a"), func(ctx context.Context, wr *writer.Writer) error {
				if err := appendAsync(ctx, wr, "a"); err != nil {
					return err
				}
				panic("oops")
			})
		}()
		w.free()
	})
}

// Several processes copy one source into the log, each going on where the cursor
// says, while at random they lose their terms, freeze, and are replaced: each
// record is there once, and in order.
func TestRunsCompete(t *testing.T) {
	for seed := range uint64(6) {
		inWorld(t, func(t *testing.T, w *world) {
			const total = 400
			rng := rand.New(rand.NewPCG(seed, 0))
			w.faulty.SetRates(faultstore.Rates{MaxDelay: 40 * time.Millisecond, LoseReply: 0.02, Echo: 0.01, Late: 0.01, Fail: 0.02})
			copying := func(ctx context.Context, wr *writer.Writer) error {
				next, _ := strconv.Atoi(string(wr.Recovered().Cursor))
				for ; next < total; next++ {
					cursor := writer.Cursor([]byte(strconv.Itoa(next + 1)))
					if _, err := wr.AppendAsync(ctx, [][]byte{[]byte(strconv.Itoa(next))}, cursor); err != nil {
						return err
					}
					if err := clock.Sleep(ctx, clock.Go(), 100*time.Millisecond); err != nil {
						return err
					}
				}
				return wr.Flush(ctx)
			}
			nodes := map[string]*node{}
			for _, name := range []string{"a", "b", "c"} {
				nodes[name] = w.run(name, options(name), copying)
			}
			e := w.elector()
			for range 12 {
				time.Sleep(time.Duration(1+rng.IntN(8)) * time.Second)
				switch rng.IntN(3) {
				case 0:
					_, _ = e.StepDown(w.Context(), &leader.StepDownOptions{Immediate: rng.IntN(2) == 0})
				case 1: // all heartbeats are lost for a while
					w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
						if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "lock/") {
							return faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}
						}
						return faultstore.Fault{}
					})
					time.Sleep(20 * time.Second)
					w.faulty.SetHook(nil)
				case 2: // a process is replaced
					name := string("abc"[rng.IntN(3)])
					nodes[name].cancel(errStop)
					if err := w.ends(nodes[name]); err != nil && !errors.Is(err, errStop) {
						w.Errorf("seed %d: %s ended with %v", seed, name, err)
					}
					nodes[name] = w.run(name, options(name), copying)
				}
			}
			for name, n := range nodes {
				if err := w.ends(n); err != nil && !errors.Is(err, writer.ErrUnknown) {
					w.Errorf("seed %d: %s ended with %v", seed, name, err)
				}
			}
			w.faulty.SetRates(faultstore.Rates{})
			w.faulty.Release(context.Background(), nil)
			var want []string
			for i := range total {
				want = append(want, strconv.Itoa(i))
			}
			if got := w.contents(); !slices.Equal(got, want) {
				w.Errorf("seed %d: %d records %q", seed, len(got), got)
			}
		})
	}
}
