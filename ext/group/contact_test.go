package group_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// lines is written to by a logger while a test looks.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Run says what it waits for, and gives up after its Contact.
func TestRunFirstContact(t *testing.T) {
	var out lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	for name, fault := range map[string]faultstore.Fault{
		"refuses": {Drop: true, Err: faultstore.ErrUnavailable},
		"hangs":   {Drop: true, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := faultstore.New(memstore.New(&memstore.Options{Clock: clock.Go()}), &faultstore.Options{Clock: clock.Go()})
				run := func(ctx context.Context, contact time.Duration) error {
					o := &group.RunOptions{Group: &group.Options{Partitions: 1, Clock: clock.Go()}, Contact: contact}
					return group.Run(ctx, st, o, func(context.Context, *group.Session) error { return nil })
				}
				st.SetHook(func(faultstore.Op) faultstore.Fault { return fault })
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan error)
				go func() { ended <- run(ctx, 0) }()
				time.Sleep(5500 * time.Millisecond)
				if s := out.String(); !strings.Contains(s, "waiting for the store") || !strings.Contains(s, "store=mem://") || !strings.Contains(s, "for=5s") {
					t.Errorf("after 5.5 s the log says %q", s)
				}
				time.Sleep(time.Hour) // it waits: no bound is set
				st.SetHook(nil)
				time.Sleep(time.Minute)
				cancel(errStop)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				st.SetHook(func(faultstore.Op) faultstore.Fault { return fault })
				bound, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				start := time.Now()
				if err := run(bound, 10*time.Second); !errors.Is(err, store.ErrUnreachable) || time.Since(start) != 10*time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
			})
		})
	}
	if err := (&group.RunOptions{Contact: -1}).Validate(); !errors.Is(err, group.ErrOptions) {
		t.Error(err)
	}
}

// Join waits for a store that does not answer. It says so at the second failure, and every 5 s.
func TestJoinSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faultstore.New(memstore.New(nil), &faultstore.Options{Clock: clock.Go()})
		st.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
		core, logs := observer.New(zap.WarnLevel)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Minute, errStop)
		defer cancel()
		if _, err := group.Join(ctx, st, &group.Options{Clock: clock.Go(), Logger: zap.New(core)}); err == nil {
			t.Error("Join has joined a group in a store that does not answer")
		}
		said := logs.FilterMessageSnippet("the store does not answer").All()
		if len(said) < 1 || len(said) > 121 {
			t.Fatalf("%d lines in ten minutes, want one at the second failure and one every 5 s at most", len(said))
		}
		if why := said[0].ContextMap()["error"]; !strings.Contains(why.(string), "no answer within") {
			t.Errorf("the first line says %q, want why the store is not reached", why)
		}
	})
}
