package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// faulty runs a command on a store with faults, in virtual time.
func faulty(t *testing.T, hook func(faultstore.Op) faultstore.Fault, args ...string) (status int, errs string, took time.Duration) {
	t.Helper()
	url := newLog(t, memURL(t))
	synctest.Test(t, func(t *testing.T) {
		var out, err buffer
		start := time.Now()
		a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &err, Open: func(ctx context.Context, url string) (store.Store, error) {
			st, err := store.Open(ctx, url)
			f := faultstore.New(st, nil)
			f.SetHook(hook)
			return f, err
		}}
		status = runWith(t.Context(), a, append(args, url))
		errs, took = err.String(), time.Since(start)
		time.Sleep(time.Minute) // until the last timer has fired
	})
	return status, errs, took
}

// Every verb ends after the time of the first contact if the store does not answer. Until then
// it says whom it tries, and for how long still.
func TestFirstContact(t *testing.T) {
	hang := func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} }
	for _, verb := range []string{"append", "cat", "files", "status", "init", "compact", "compact --watch", "truncate --before 1", "pin --name x", "pins", "verify", "probe", "step-down", "group status"} {
		t.Run(verb, func(t *testing.T) {
			status, errs, took := faulty(t, hang, strings.Fields(verb)...)
			if status != 69 || took != 10*time.Second || !strings.Contains(errs, " has not answered for 5s; trying for 5s more\n") || !strings.Contains(errs, "did not answer within 10s") {
				t.Errorf("status %d after %v: %s", status, took, errs)
			}
		})
	}
	if status, errs, took := faulty(t, hang, "cat", "--timeout", "1m"); status != 69 || took != time.Minute || strings.Count(errs, "\n") != 12 {
		t.Errorf("status %d after %v: %s", status, took, errs)
	}
}

// A store that stops to answer in the middle is no silence either.
func TestStoreStopsAnswering(t *testing.T) {
	var requests atomic.Int64
	_, errs, _ := faulty(t, func(op faultstore.Op) faultstore.Fault {
		if n := requests.Add(1); n < 3 || n > 4 {
			return faultstore.Fault{}
		}
		return faultstore.Fault{Drop: true, Hang: true}
	}, "status")
	if !strings.Contains(errs, " has not answered for 25s: ") || !strings.Contains(errs, " answers again") {
		t.Error(errs)
	}
}

// whileUp opens stores that fail while down is set.
func whileUp(down *atomic.Bool) func(context.Context, string) (store.Store, error) {
	return func(ctx context.Context, url string) (store.Store, error) {
		st, err := store.Open(ctx, url)
		faulty := faultstore.New(st, nil)
		faulty.SetHook(func(op faultstore.Op) (f faultstore.Fault) {
			if down.Load() {
				f = faultstore.Fault{Drop: true, Err: &store.Error{Op: "get", Key: op.Key, Err: errors.New("out of order")}}
			}
			return f
		})
		return faulty, err
	}
}

// TestStatusThroughAnOutage: status --watch says that the store fails, and goes on.
func TestStatusThroughAnOutage(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	ctx, cancel := context.WithCancel(t.Context())
	var down atomic.Bool
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: whileUp(&down)}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"status", "--watch", "--json", "--interval", "10ms", url}) }()
	eventually(t, "the first state", func() bool { return strings.Count(out.String(), "\n") == 1 })
	down.Store(true)
	eventually(t, "it says so", func() bool { return strings.Contains(errs.String(), "out of order; looking again in 10ms") })
	must(t, "b\n", "append", url)
	down.Store(false)
	eventually(t, "another state", func() bool { return strings.Count(out.String(), "\n") > 1 })
	cancel()
	<-ended
}
