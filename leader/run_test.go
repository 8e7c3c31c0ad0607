package leader_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/leader"
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
