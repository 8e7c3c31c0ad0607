package runtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// Run refuses wrong options at once, also while another process leads. It sends no
// request and spends no epoch.
func TestRunRefusesAtOnce(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		leading := make(chan struct{})
		leads := w.Start("a", runtest.Options("a"), func(ctx context.Context, _ *fencepost.Session) error {
			close(leading)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		<-leading
		idle := func(context.Context, *fencepost.Session) error { return nil }
		second := faultstore.New(w.Mem, &faultstore.Options{Clock: clock.Go()})
		for says, c := range map[string]struct {
			bend func(o *fencepost.Options)
			work runtest.Work
		}{
			"Concurrency -3": {func(o *fencepost.Options) { o.Writer.Concurrency = -3 }, idle},
			"Hedge 5":        {func(o *fencepost.Options) { o.Writer.Hedge = 5 }, idle},
			"manifests of -5": {func(o *fencepost.Options) {
				o.Writer.Init = &manifest.InitOptions{Limits: fence.Limits{Manifest: -5}}
			}, idle},
			"Validity 1µs must be":                        {func(o *fencepost.Options) { o.Leader.Validity = time.Microsecond }, idle},
			"Leader: leader: invalid options: StallAfter": {func(o *fencepost.Options) { o.Leader.StallAfter, o.Writer.Concurrency = -1, -1 }, idle}, // and the writer's beside it
			"work is nil":                                 {func(*fencepost.Options) {}, nil},
		} {
			o := runtest.Options("b")
			c.bend(o)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := fencepost.Run(ctx, second, o, c.work); !errors.Is(err, fencepost.ErrOptions) || !strings.Contains(err.Error(), says) {
				t.Errorf("Run says %v, want %q", err, says)
			}
			cancel()
		}
		if n := second.Counts(); n.Of("", "") != 0 {
			t.Errorf("requests were made: %v", n)
		}
		leads.Cancel(runtest.ErrStop)
		if err := w.Ends(leads); err != nil {
			t.Error(err)
		}
	})
}

// For each way in which Run ends while the term lasts: what Run returns, that the lock is
// free at once, and that the log holds what Run says it holds.
func TestRunEnds(t *testing.T) {
	mine := errors.New("my own")
	for name, c := range map[string]struct {
		work  runtest.Work
		hook  faultstore.Hook
		check func(err error) bool
		holds []string
	}{
		"done": {
			work:  func(ctx context.Context, s *fencepost.Session) error { return runtest.AppendAsync(ctx, s, "a") },
			check: func(err error) bool { return err == nil }, holds: []string{"a"},
		},
		"done, nothing appended": {
			work:  func(context.Context, *fencepost.Session) error { return nil },
			check: func(err error) bool { return err == nil },
		},
		"its own error": {
			work: func(ctx context.Context, s *fencepost.Session) error {
				return errors.Join(runtest.AppendAsync(ctx, s, "a"), mine)
			},
			check: func(err error) bool { return errors.Is(err, mine) }, holds: []string{"a"},
		},
		"closed by the work": {
			work: func(ctx context.Context, s *fencepost.Session) error {
				if err := errors.Join(runtest.AppendAsync(ctx, s, "a"), s.Close(ctx)); err != nil {
					return err
				}
				return ctx.Err() // closing the writer does not end ctx
			},
			check: func(err error) bool { return err == nil }, holds: []string{"a"},
		},
		"closed by the work, its own error": {
			work: func(ctx context.Context, s *fencepost.Session) error {
				return errors.Join(runtest.AppendAsync(ctx, s, "a"), s.Close(ctx), mine)
			},
			check: func(err error) bool { return errors.Is(err, mine) }, holds: []string{"a"},
		},
		"an append failed, unnoticed": {
			work: func(ctx context.Context, s *fencepost.Session) error { return runtest.AppendAsync(ctx, s, "a") },
			hook: faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool {
				return errors.Is(err, writer.ErrNotCommitted) && errors.Is(err, store.ErrDenied)
			},
		},
		"an append failed, noticed": {
			work: func(ctx context.Context, s *fencepost.Session) error {
				_ = runtest.AppendAsync(ctx, s, "a")
				<-ctx.Done()
				return context.Cause(ctx)
			},
			hook:  faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool { return errors.Is(err, store.ErrDenied) },
		},
		"no outcome": {
			work:  func(ctx context.Context, s *fencepost.Session) error { return runtest.AppendAsync(ctx, s, "a") },
			hook:  faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}}),
			check: func(err error) bool { return errors.Is(err, writer.ErrUnknown) },
		},
		"no permission to elect": {
			work:  func(context.Context, *fencepost.Session) error { return mine },
			hook:  faultstore.Script(faultstore.Rule{Prefix: "lock/", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool { return errors.Is(err, store.ErrDenied) },
		},
		"no permission to open": {
			work:  func(context.Context, *fencepost.Session) error { return mine },
			hook:  faultstore.Script(faultstore.Rule{Prefix: "data/", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}),
			check: func(err error) bool { return errors.Is(err, store.ErrDenied) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				w.Faulty.SetHook(c.hook)
				n := w.Start("a", runtest.Options("a"), c.work)
				if err := w.Ends(n); !c.check(err) {
					t.Errorf("it ended with %v", err)
				}
				if n.Calls.Load() > 1 {
					t.Errorf("work was called %d times", n.Calls.Load())
				}
				if len(w.Keys("lock/")) > 0 {
					w.Free()
				}
				w.Holds(c.holds...)
			})
		})
	}
}

func TestRunRefuses(t *testing.T) {
	never := func(context.Context, *fencepost.Session) error { return errors.New("work was called") }
	for name, c := range map[string]struct {
		harm func(w *runtest.World, o *fencepost.Options)
		want error
	}{
		"options of the leader": {func(_ *runtest.World, o *fencepost.Options) { o.Leader.Validity = time.Nanosecond }, leader.ErrOptions},
		"a junk lock": {func(w *runtest.World, _ *fencepost.Options) {
			w.Put("lock/"+layout.FormatNumber(7)+".json", []byte("junk"))
		}, leader.ErrCorrupt},
		"a newer log": {func(w *runtest.World, _ *fencepost.Options) {
			w.Put(layout.FormatKey, document.Sum(layout.FormatKey, []byte(`{"format":99}`)))
		}, fence.ErrFormat},
		"a damaged log": {func(w *runtest.World, _ *fencepost.Options) { w.Put(layout.DataKey(frame.Genesis()), []byte("junk")) }, fence.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				o := runtest.Options("a")
				c.harm(w, o)
				if err := w.Ends(w.Start("a", o, never)); !errors.Is(err, c.want) {
					t.Errorf("it ended with %v, want %v", err, c.want)
				}
			})
		})
	}
}

// Work that opens an epoch past the election is fenced in each of its terms, and is called again
// each time. From the second term on a warning says so.
func TestRunSaysWhoIsFencedAgainAndAgain(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		core, logs := observer.New(zap.WarnLevel)
		o := runtest.Options("a")
		o.Logger = zap.New(core)
		n := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
			other, err := writer.Open(ctx, w.Mem, fence.NewToken(s.Epoch()+1), &writer.Options{Clock: clock.Go()})
			if err != nil {
				return err
			}
			// The writer may know that it is fenced before the append. Then nothing was appended, and nil would be the end.
			if err = runtest.AppendAsync(ctx, s, "x"); err == nil {
				<-ctx.Done()
			}
			return errors.Join(err, other.Close(context.WithoutCancel(ctx)))
		})
		for n.Calls.Load() < 4 {
			select {
			case <-n.Ended:
				t.Fatalf("Run ended in term %d: %v\n%v", n.Calls.Load(), n.Err, logs.All())
			case <-time.After(time.Second):
			}
		}
		n.Cancel(runtest.ErrStop)
		_ = w.Ends(n)
		said := logs.FilterMessageSnippet("although this process held the lock").All()
		if len(said) < 2 || said[0].ContextMap()["terms_in_a_row"] != int64(2) {
			t.Errorf("%v", logs.All())
		}
	})
}
