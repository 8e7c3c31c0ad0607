package runtest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
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

// A store that does not answer is no silence: the first line comes after 5 s, and says which
// store, why and for how long still. Without a Logger it goes to slog.Default, which gets
// warnings and nothing else.
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
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				w.Faulty.SetHook(func(faultstore.Op) faultstore.Fault { return fault })
				n := w.Start("a", runtest.Options("a"), func(context.Context, *fencepost.Session) error { return nil })
				time.Sleep(5500 * time.Millisecond)
				if s := out.String(); !strings.Contains(s, "waiting for the store") || !strings.Contains(s, "store=mem://") || !strings.Contains(s, "for=5s") {
					t.Errorf("after 5.5 s the log says %q", s)
				}
				time.Sleep(time.Hour) // it waits: no bound is set
				w.Faulty.SetHook(nil)
				if err := w.Ends(n); err != nil {
					t.Error(err)
				}
				if s := out.String(); strings.Contains(s, "INFO") {
					t.Errorf("by default the log says more than warnings: %q", s)
				}
				w.Faulty.SetHook(func(faultstore.Op) faultstore.Fault { return fault })
				o := runtest.Options("a")
				o.Contact = 10 * time.Second
				start := time.Now()
				n = w.Start("a", o, func(context.Context, *fencepost.Session) error { return nil })
				if err := w.Ends(n); !errors.Is(err, store.ErrUnreachable) || time.Since(start) != 10*time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
			})
		})
	}
	if err := (&fencepost.Options{Contact: -1}).Validate(); !errors.Is(err, fencepost.ErrOptions) {
		t.Error(err)
	}
}

// Options.Compactor compacts in the same process, also a log that Run makes. It ends with Run.
// A compactor that cannot go on does not stop the writer.
func TestRunCompacts(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		core, logs := observer.New(zap.InfoLevel)
		o := runtest.Options("a")
		o.Logger = zap.New(core)
		o.Compactor = &compactor.Options{MinObjects: 1, Interval: time.Second} // a round may come among the appends
		n := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
			for range 20 {
				if _, err := s.Append(ctx, [][]byte{[]byte("x")}); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		time.Sleep(time.Minute)
		if m := w.Newest(); m.Floor.Offset != 20 {
			t.Errorf("the floor is at %v", m.Floor)
		}
		start := time.Now()
		n.Cancel(runtest.ErrStop)
		if err := w.Ends(n); err != nil || time.Since(start) > time.Second {
			t.Errorf("it ended after %v with %v", time.Since(start), err)
		}
		if logs.FilterMessageSnippet("nothing is compacted").Len() != 0 {
			t.Error("it says that the compactor failed")
		}
		w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Prefix: "compactor-lock/", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
		n = w.Start("a", o, func(context.Context, *fencepost.Session) error {
			time.Sleep(time.Minute)
			return nil
		})
		if err := w.Ends(n); err != nil {
			t.Error(err)
		}
		if n := logs.FilterMessageSnippet("nothing is compacted").Len(); n != 1 {
			t.Errorf("%d lines that the compactor failed", n)
		}
		o.Compactor = &compactor.Options{MinObjects: -1}
		if err := o.Validate(); !errors.Is(err, fencepost.ErrOptions) || !strings.Contains(err.Error(), "Compactor") {
			t.Error(err)
		}
	})
}

// A leader is cut off, loses its term, and contends again. The cause is said once, and that its
// writer stops is no line of its own.
func TestRunSaysOnce(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		core, logs := observer.New(zap.InfoLevel)
		o := runtest.Options("a")
		o.Logger = zap.New(core)
		a := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
			for ctx.Err() == nil {
				_ = runtest.AppendAsync(ctx, s, "x")
				time.Sleep(time.Second)
			}
			return context.Cause(ctx)
		})
		time.Sleep(time.Minute)
		heal := a.Store.Pause()
		time.Sleep(time.Minute)
		heal()
		time.Sleep(time.Minute)
		a.Cancel(runtest.ErrStop)
		_ = w.Ends(a)
		said := 0
		for _, l := range logs.All() {
			if err, _ := l.ContextMap()["error"].(string); strings.Contains(err, "the term expired") {
				said++
			}
			if l.Message == "stopped" || l.Level == zap.WarnLevel && strings.Contains(l.Message, "contending") {
				t.Errorf("%s: %s %v", l.Level, l.Message, l.ContextMap())
			}
		}
		if said != 1 {
			t.Errorf("the end of the term is said %d times", said)
		}
	})
}
