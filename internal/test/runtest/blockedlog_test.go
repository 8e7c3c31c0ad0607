package runtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store/faultstore"
)

// badLog is where a log goes that cannot be written: write blocks, fails or panics, until it is open.
type badLog struct {
	open  chan struct{}
	write func(open <-chan struct{}) error
}

func (b *badLog) Write(p []byte) (int, error) { return len(p), b.write(b.open) }
func (b *badLog) Sync() error                 { return nil }

var badLogs = map[string]func(open <-chan struct{}) error{
	"blocks": func(open <-chan struct{}) error { <-open; return nil },
	"fails":  func(<-chan struct{}) error { return io.ErrShortWrite },
	"panics": func(open <-chan struct{}) error {
		select {
		case <-open:
			return nil
		default:
			panic("a log that panics")
		}
	},
}

// loggers have the sink b, by way of zap, and of slog.
var loggers = map[string]func(b *badLog) *zap.Logger{
	"zap": func(b *badLog) *zap.Logger {
		return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"}), b, zap.DebugLevel))
	},
	"slog": func(b *badLog) *zap.Logger {
		return sink.FromSlog(slog.NewJSONHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	},
}

// withBadLogs runs f in a world of each kind. What f waits for comes within an hour, or fails the test.
func withBadLogs(t *testing.T, f func(t *testing.T, w *runtest.World, log func() *zap.Logger, within func(what string, c <-chan struct{}))) {
	for fault, write := range badLogs {
		for name, logger := range loggers {
			t.Run(name+" "+fault, func(t *testing.T) {
				runtest.In(t, func(t *testing.T, w *runtest.World) {
					b := &badLog{open: make(chan struct{}), write: write}
					opened := false
					open := func() {
						if !opened {
							opened = true
							close(b.open)
						}
					}
					defer open() // or the goroutine that writes would outlive the world
					f(t, w, func() *zap.Logger { return logger(b) }, func(what string, c <-chan struct{}) {
						select {
						case <-c:
						case <-time.After(time.Hour):
							t.Errorf("%s: not within an hour", what)
							open()
							<-c
						}
					})
				})
			})
		}
	}
}

// refused makes the requests of one client fail.
func refused(client string) faultstore.Hook {
	return func(op faultstore.Op) (f faultstore.Fault) {
		if op.Client == client {
			f = faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
		}
		return f
	}
}

// Run's log cannot be written, and Run does all it does otherwise: it leads, appends, compacts, loses the lead in time,
// and ends.
func TestRunWithABlockedLog(t *testing.T) {
	withBadLogs(t, func(t *testing.T, w *runtest.World, log func() *zap.Logger, within func(string, <-chan struct{})) {
		opts := func(name string) *fencepost.Options {
			o := runtest.Options(name)
			o.Logger = log() // one each: virtual time stands still while a process waits for another one's lock in slog
			o.Compactor = &compactor.Options{MinObjects: 2, Interval: time.Second, Clock: clock.Go(), Settle: o.Writer.Settle}
			return o
		}
		lost, appended, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		work := func(said chan struct{}) runtest.Work {
			return func(ctx context.Context, s *fencepost.Session) error {
				for n := range 10 {
					if err := runtest.AppendAsync(ctx, s, fmt.Sprint(s.Epoch(), "/", n)); err != nil {
						return err
					}
				}
				close(said)
				<-ctx.Done()
				if err := s.Check(0); err == nil {
					t.Error("the check of a lost session says that it leads")
				}
				ended <- context.Cause(ctx)
				return context.Cause(ctx)
			}
		}
		a := w.Start("a", opts("a"), work(appended))
		within("a leads and appends", appended)
		appended = make(chan struct{})
		b := w.Start("b", opts("b"), work(appended))
		time.Sleep(time.Minute)
		// guard log-beside: a's heartbeats fail, each of them with a line of the log.
		w.Faulty.SetHook(refused("a"))
		go func() {
			if err := <-ended; !errors.Is(err, leader.ErrExpired) {
				t.Errorf("a's work is ended because of %v", err)
			}
			close(lost)
		}()
		within("a's term ends at its deadline", lost)
		within("b leads and appends", appended)
		time.Sleep(time.Minute)
		if m := w.Newest(); m.Floor.Offset < 10 {
			t.Errorf("nothing is folded: the floor is at %v", m.Floor)
		}
		for _, n := range []*runtest.Node{a, b} {
			n.Cancel(runtest.ErrStop)
			within("Run ends", n.Ended)
		}
		if got := w.Contents(); len(got) != 20 {
			t.Errorf("the log holds %q", got)
		}
		w.Free()
	})
}

// An election of its own, without a log: the lock of a leader whose log is blocked lapses, and its elector campaigns again.
func TestElectionWithABlockedLog(t *testing.T) {
	withBadLogs(t, func(t *testing.T, w *runtest.World, log func() *zap.Logger, within func(string, <-chan struct{})) {
		st := w.Faulty.Client("a")
		e, err := leader.New(st, layout.LockPrefix, &leader.Options{Clock: clock.Go(), Logger: log()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		led, lost, again, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			first := true
			for ctx.Err() == nil {
				_ = e.Run(ctx, func(ctx context.Context, term *leader.Term) error {
					if !first {
						close(again)
					} else {
						close(led)
					}
					<-ctx.Done()
					if err := term.Check(0); err == nil {
						t.Error("the check of a lost term says that it leads")
					}
					if first {
						close(lost)
					}
					first = false
					return context.Cause(ctx)
				})
			}
		}()
		within("it leads", led)
		st.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
		within("the term ends at its deadline", lost)
		st.SetHook(nil)
		within("it leads again", again)
		cancel(runtest.ErrStop)
		within("it ends", ended)
		w.Free()
	})
}
