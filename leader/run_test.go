package leader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// What Run returns.
func TestRunVerdicts(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name  string
		work  func(context.Context, context.CancelFunc, *node, *leader.Term) error
		wants []error
	}{
		{"done", func(context.Context, context.CancelFunc, *node, *leader.Term) error { return nil }, nil},
		{"failed", func(context.Context, context.CancelFunc, *node, *leader.Term) error { return boom }, []error{boom}},
		{"cancelled", func(ctx context.Context, cancel context.CancelFunc, _ *node, _ *leader.Term) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		}, nil},
		{"cancelled, and at once", func(_ context.Context, cancel context.CancelFunc, _ *node, _ *leader.Term) error {
			cancel()
			return context.Canceled
		}, nil},
		{"cancelled and failed", func(ctx context.Context, cancel context.CancelFunc, _ *node, _ *leader.Term) error {
			cancel()
			<-ctx.Done()
			return boom
		}, []error{boom}},
		{"cancelled elsewhere", func(context.Context, context.CancelFunc, *node, *leader.Term) error {
			return context.Canceled
		}, []error{context.Canceled}},
		{"cancelled and content", func(ctx context.Context, cancel context.CancelFunc, _ *node, _ *leader.Term) error {
			cancel()
			<-ctx.Done()
			return nil
		}, nil},
		{"resigned", func(ctx context.Context, _ context.CancelFunc, _ *node, t *leader.Term) error {
			_ = t.Resign(ctx) // with the work's own context the work may call it
			<-ctx.Done()
			return ctx.Err()
		}, nil},
		{"lost", func(ctx context.Context, _ context.CancelFunc, n *node, _ *leader.Term) error {
			n.st.Crash()
			<-ctx.Done()
			return nil
		}, []error{leader.ErrExpired, leader.ErrLost}},
		{"lost and failed", func(ctx context.Context, _ context.CancelFunc, n *node, _ *leader.Term) error {
			n.st.Crash()
			<-ctx.Done()
			return boom
		}, []error{leader.ErrExpired, boom}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a := w.node("a")
				ctx, cancel := context.WithCancel(w.Context())
				err := a.Run(ctx, func(ctx context.Context, t *leader.Term) error { return c.work(ctx, cancel, a, t) })
				if (err == nil) != (len(c.wants) == 0) {
					w.Errorf("got %v", err)
				}
				for _, want := range c.wants {
					if !errors.Is(err, want) {
						w.Errorf("got %v, want %v", err, want)
					}
				}
				if f := w.file(1); !a.st.Crashed() && f["state"] != "expired" {
					w.Errorf("the lock was not released: %v", f)
				}
			})
		})
	}
}

// A candidate that is told to end before it leads ends with nil, unless the store did not work.
func TestRunNeverLed(t *testing.T) {
	for _, down := range []bool{false, true} {
		inWorld(t, func(w *world) {
			a, b := w.node("a"), w.node("b")
			held := w.campaign(a)
			stop := errors.New("the process is told to stop")
			ctx, cancel := context.WithCancelCause(w.Context())
			ended := make(chan error)
			go func() {
				ended <- b.Run(ctx, func(context.Context, *leader.Term) error { return errors.New("it leads") })
			}()
			time.Sleep(5 * time.Second)
			if down {
				w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout} })
				time.Sleep(time.Minute)
			}
			cancel(stop)
			if err := <-ended; (err != nil) != down || down && !errors.Is(err, stop) {
				w.Errorf("down %t: %v", down, err)
			}
			w.faulty.SetHook(nil)
			_ = held.Resign(w.Context())
		})
	}
}

// If work panics, the lock is released before the panic goes on.
func TestRunReleasesOnPanic(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		func() {
			defer func() {
				if r := recover(); r != "boom" {
					w.Errorf("recovered %v", r)
				}
			}()
			_ = a.Run(w.Context(), func(context.Context, *leader.Term) error { panic("boom") })
		}()
		if f := w.file(1); f["state"] != "expired" {
			w.Errorf("lock %v", f)
		}
	})
}
