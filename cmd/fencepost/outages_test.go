package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// timed keeps lines with the time at which they came.
type timed struct {
	mu    sync.Mutex
	lines []string
	at    []time.Time
}

func (w *timed) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(string(b)) {
		w.lines, w.at = append(w.lines, line), append(w.at, time.Now())
	}
	return len(b), nil
}

// find returns the lines with a text, and when the first came.
func (w *timed) find(text string) (n int, first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, line := range w.lines {
		if strings.Contains(line, text) {
			if n++; n == 1 {
				first = w.at[i]
			}
		}
	}
	return n, first
}

// outage makes requests of one kind fail.
type outage struct {
	mu     sync.Mutex
	op     string // "": none
	first  time.Time
	failed int
}

func (o *outage) hook(op faultstore.Op) (f faultstore.Fault) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.op == "" || string(op.Kind) != o.op {
		return f
	}
	if o.failed++; o.failed == 1 {
		o.first = time.Now()
	}
	return faultstore.Fault{Drop: true, Err: &store.Error{Op: o.op, Key: op.Key, Err: syscall.ENOSPC}}
}

func (o *outage) set(op string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.op = op
}

func (o *outage) began() (time.Time, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first, o.failed
}

// typist types a line each second.
type typist struct {
	n    int
	done <-chan struct{}
}

func (y *typist) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
	case <-y.done:
		runtime.Goexit()
	}
	y.n++
	return copy(p, fmt.Sprintf("line %d\n", y.n)), nil
}

// TestOutages: requests of one kind fail, and all others work. Whoever waits is told for what, since when and why: after
// 5 s, and then less and less often. The store is back only when what has failed works.
func TestOutages(t *testing.T) {
	const reason = "no space left on device"
	var waited sync.Map
	for _, c := range []struct {
		verb  string
		ops   string // the requests that it needs meanwhile
		fresh bool   // the outage is there before the verb
		rival bool   // somebody else leads
	}{
		{verb: "append", ops: "put list"}, {verb: "append", ops: "get", rival: true}, {verb: "append", ops: "put", fresh: true},
		{verb: "cat --follow", ops: "get list"}, {verb: "compact --watch --interval 1s", ops: "get put list"}, {verb: "compact --watch", ops: "get", rival: true},
		{verb: "publish --watch", ops: "get list"}, {verb: "status --watch", ops: "get list"}, {verb: "backup", ops: "put list", fresh: true},
		{verb: "verify", ops: "list", fresh: true}, {verb: "truncate --before 1", ops: "put list", fresh: true}, {verb: "pin --name x", ops: "put list", fresh: true},
		{verb: "doctor", ops: "list", fresh: true}, {verb: "init", ops: "put", fresh: true}, {verb: "step-down", ops: "list", fresh: true},
	} {
		for op := range strings.FieldsSeq(c.ops) {
			t.Run(fmt.Sprintf("%s/%v/%v/%s", c.verb, c.fresh, c.rival, op), func(t *testing.T) {
				url := memURL(t)
				if args := strings.Fields(c.verb); c.fresh && (args[0] == "append" || args[0] == "init") {
					openStore(t, url)
				} else {
					must(t, "a\nb\n", "append", newLog(t, url))
				}
				synctest.Test(t, func(t *testing.T) {
					ctx, stop := context.WithCancel(t.Context())
					var all sync.WaitGroup
					defer time.Sleep(time.Minute) // until the typist has noticed
					defer all.Wait()
					defer stop()
					var o outage
					start := func(errs io.Writer, open func(context.Context, string) (store.Store, error)) <-chan time.Time {
						typing, silent := context.WithCancel(ctx)
						a := &kit.Kit{In: &typist{done: typing.Done()}, Out: io.Discard, Err: errs, Open: open}
						ended := make(chan time.Time, 1)
						args := append(strings.Fields(c.verb), url)
						if args[0] == "backup" {
							args = append(args, url+"-copy")
						}
						all.Go(func() {
							defer silent()
							runWith(ctx, a, args)
							ended <- time.Now()
						})
						return ended
					}
					if c.rival {
						start(io.Discard, store.Open)
						time.Sleep(3 * time.Second)
					}
					if c.fresh {
						o.set(op)
					}
					errs := &timed{}
					ended := start(errs, func(ctx context.Context, url string) (store.Store, error) {
						st, err := store.Open(ctx, url)
						f := faultstore.New(st, nil)
						f.SetHook(o.hook)
						return f, err
					})
					if !c.fresh {
						time.Sleep(3 * time.Second)
						o.set(op)
					}
					time.Sleep(90 * time.Second)
					first, failed := o.began()
					if failed < 2 {
						t.Fatalf("%d requests failed, so this shows nothing", failed)
					}
					over, lasted := len(ended) > 0, 90*time.Second
					if over {
						lasted = (<-ended).Sub(first)
					}
					again, _ := errs.find("answers again")
					_, at := errs.find(reason)
					n, _ := errs.find("has not answered")
					switch {
					case lasted < 6*time.Second: // it has given up, and said why
						return
					case n < 1 || at.Sub(first) > 7*time.Second || again > 0 || n > 15 || n < 4 && lasted > time.Minute:
						t.Errorf("%d lines, the first after %v, and %d that it answers again: %q", n, at.Sub(first), again, errs.lines)
					}
					if m, _ := errs.find(op + " "); m == 0 {
						t.Errorf("nobody says what is waited for: %q", errs.lines)
					}
					waited.Store(c.verb+op, true)
					if o.set(""); over {
						return
					}
					time.Sleep(90 * time.Second)
					if again, _ := errs.find("answers again"); again != 1 {
						t.Errorf("%d lines that it answers again: %q", again, errs.lines)
					}
				})
			})
		}
	}
	for _, key := range []string{"appendput", "appendget", "appendlist", "cat --followget", "compact --watch --interval 1sput", "status --watchlist"} {
		if _, ok := waited.Load(key); !ok {
			t.Errorf("%s never waited", key)
		}
	}
}
