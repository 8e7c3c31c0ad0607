package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// beginSignals lets the runtime make the channels of its signal handler, which it does at the first call. They must not
// belong to a bubble.
func beginSignals() {
	outside := make(chan os.Signal, 1)
	signal.Notify(outside, syscall.SIGUSR2)
	signal.Stop(outside)
}

// If the store does not answer, exec ends after the time of the first contact, and says meanwhile whom it tries. A
// signal ends that wait at once: exec has another handler for the time in which the command runs.
func TestExecFirstContact(t *testing.T) {
	beginSignals()
	for _, group := range []string{"", "--group", "--partitions 2"} {
		for _, c := range []struct {
			flags  string
			signal time.Duration // when it comes; 0: it does not
			took   time.Duration
			status int
			says   []string
		}{
			{"", 0, 10 * time.Second, 69, []string{" has not answered for 5s; trying for 5s more\n", "did not answer within 10s"}},
			{"--timeout 20s", 0, 20 * time.Second, 69, []string{" has not answered for 15s; trying for 5s more\n", "did not answer within 20s"}},
			{"", 6 * time.Second, 6 * time.Second, 143, []string{" has not answered for 5s; trying for 5s more\n"}},
		} {
			t.Run(fmt.Sprintf("exec %s %s, signal %v", group, c.flags, c.signal), func(t *testing.T) {
				url := memURL(t)
				synctest.Test(t, func(t *testing.T) {
					var out, errs buffer
					begun := time.Now()
					a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(ctx context.Context, url string) (store.Store, error) {
						st, err := store.Open(ctx, url)
						f := faultstore.New(st, nil)
						f.SetHook(func(faultstore.Op) faultstore.Fault {
							if time.Since(begun) > time.Hour { // so that a wait without a bound ends too
								return faultstore.Fault{Drop: true, Err: &store.Error{Op: "get", Key: "x", Kind: store.ErrDenied}}
							}
							return faultstore.Fault{Drop: true, Hang: true}
						})
						return f, err
					}}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if c.signal > 0 { // as main does
						time.AfterFunc(c.signal, func() { cancel(&kit.InterruptedError{Signal: syscall.SIGTERM}) })
					}
					args := strings.Fields("exec " + group + " " + c.flags)
					status := runWith(ctx, a, append(args, url, "--", "true"))
					if took := time.Since(begun); status != c.status || took != c.took {
						t.Errorf("status %d after %v, want %d after %v: %s", status, took, c.status, c.took, errs.String())
					}
					for _, says := range c.says {
						if !strings.Contains(errs.String(), says) {
							t.Errorf("it does not say %q: %s", says, errs.String())
						}
					}
					time.Sleep(time.Minute) // until the last timer has fired
				})
			})
		}
	}
}

// A signal came just before exec listened to signals, and main passes it on just after that. So exec hears of it
// only through its context. The store has answered once, and does not answer again.
func TestExecSignalBeforeItListens(t *testing.T) {
	beginSignals()
	for _, flags := range []string{"", "--restart", "--wait 30m", "--group"} {
		t.Run("exec "+flags, func(t *testing.T) {
			url := memURL(t)
			synctest.Test(t, func(t *testing.T) {
				var out, errs buffer
				begun := time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var requests atomic.Int64
				a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(ctx context.Context, url string) (store.Store, error) {
					st, err := store.Open(ctx, url)
					f := faultstore.New(st, nil)
					f.SetHook(func(faultstore.Op) faultstore.Fault {
						switch n := requests.Add(1); {
						case n == 1:
							return faultstore.Fault{}
						case time.Since(begun) > time.Hour: // so that a wait without a bound ends too
							return faultstore.Fault{Drop: true, Err: &store.Error{Op: "get", Key: "x", Kind: store.ErrDenied}}
						case n == 2:
							cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
						}
						return faultstore.Fault{Drop: true, Hang: true}
					})
					return f, err
				}}
				status := runWith(ctx, a, append(strings.Fields("exec "+flags), url, "--", "true"))
				if took := time.Since(begun); status != 143 || took > time.Minute {
					t.Errorf("status %d after %v, want 143 at once: %s", status, took, errs.String())
				}
				time.Sleep(time.Minute) // until the last timer has fired
			})
		})
	}
}
