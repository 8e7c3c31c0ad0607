package contact_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// A store that refuses or hangs: Reach says every 5 s whom it tries, why and for how long
// still, and gives up in time with the reason. Any answer ends it.
func TestReach(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"refuses": {Drop: true, Err: faultstore.ErrUnavailable},
		"hangs":   {Drop: true, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := faultstore.New(memstore.New(&memstore.Options{Name: "mem://here"}), &faultstore.Options{Clock: clock.Go()})
				st.SetHook(func(faultstore.Op) faultstore.Fault { return fault })
				var lines []string
				opts := &contact.Options{Timeout: 12 * time.Second, Clock: clock.Go(), Waiting: func(w contact.Waiting) { lines = append(lines, w.String()) }}
				start := time.Now()
				err := contact.Reach(t.Context(), st, "format.json", opts)
				if !errors.Is(err, store.ErrUnreachable) || time.Since(start) != 12*time.Second || !strings.Contains(err.Error(), "mem://here") {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if len(lines) != 2 || !strings.Contains(lines[0], "mem://here has not answered for 5s") || !strings.HasSuffix(lines[0], "trying for 7s more") {
					t.Errorf("%q", lines)
				}
				// Without a bound it waits, and ends soon after the store is back.
				opts.Timeout = -1
				time.AfterFunc(time.Hour, func() { st.SetHook(nil) })
				start = time.Now()
				if err := contact.Reach(t.Context(), st, "format.json", opts); err != nil || time.Since(start) > time.Hour+7*time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if n := len(lines); n < 700 || strings.Contains(lines[n-1], "more") {
					t.Errorf("%d lines, the last %q", n, lines[n-1])
				}
				// The caller may give up before.
				st.SetHook(func(faultstore.Op) faultstore.Fault { return fault })
				mine := errors.New("mine")
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(mine) })
				if err := contact.Reach(ctx, st, "format.json", opts); !errors.Is(err, mine) {
					t.Error(err)
				}
			})
		})
	}
	if err := contact.Reach(t.Context(), memstore.New(nil), "x", &contact.Options{Every: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	st := faultstore.New(memstore.New(nil), nil)
	st.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	if err := contact.Reach(t.Context(), st, "format.json", nil); !errors.Is(err, store.ErrDenied) {
		t.Error(err)
	}
}

// What a line says of a failure is short, and names neither the request nor the store again.
func TestBrief(t *testing.T) {
	for want, err := range map[string]error{
		"connection refused":  &store.Error{Op: "get", Key: "k", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
		"status 503 SlowDown": &store.Error{Op: "get", Key: "k", Status: 503, Code: "SlowDown"},
		"status 502":          &store.Error{Op: "get", Key: "k", Status: 502},
		"mine":                errors.New("mine"),
	} {
		if got := contact.Brief(fmt.Errorf("x: %w", err)); got != want && want != "mine" || want == "mine" && got != "x: mine" {
			t.Errorf("%q, want %q", got, want)
		}
	}
	st := faultstore.New(memstore.New(nil), nil)
	st.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
	_, _, err := store.Read(t.Context(), st, "k", &store.ReadOptions{Limit: 1, Settle: &store.SettleOptions{Attempt: time.Millisecond, Reads: 1}})
	if got := contact.Brief(err); got != "no answer within 1ms" {
		t.Errorf("%q", got)
	}
}
