package leader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
)

// working campaigns and returns the term of a work that ends when end is closed, whatever its
// context says.
func (w *world) working(n *node, end <-chan struct{}) (t *leader.Term, stop context.CancelFunc, ran <-chan error) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	terms, ended := make(chan *leader.Term, 1), make(chan error, 1)
	go func() {
		ended <- n.Run(ctx, func(_ context.Context, t *leader.Term) error {
			terms <- t
			<-end
			return nil
		})
	}()
	return <-terms, cancel, ended
}

// A resigned leader's work takes a minute to end. All the time Held says that nobody else can
// lead, and nobody does.
func TestHeldWhileTheWorkEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		end := make(chan struct{})
		term, resign, ran := w.working(w.node("a"), end)
		if held, left := term.Held(), term.Remaining(); held != left || held < 10*time.Second {
			w.Errorf("held %v, remaining %v", held, left)
		}
		won := w.campaigning(w.node("b"))
		resign()
		<-term.Context().Done()
		for range 60 {
			time.Sleep(time.Second)
			if held := term.Held(); held < 7*time.Second || held > 13500*time.Millisecond || term.Remaining() != 0 {
				w.Fatalf("held %v, remaining %v", held, term.Remaining())
			}
		}
		select {
		case <-won:
			w.Error("b leads while a's work runs")
		default:
		}
		close(end)
		if err := <-ran; err != nil {
			w.Error(err)
		}
		next := <-won
		if held := term.Held(); held != 0 {
			w.Errorf("held %v after the release", held)
		}
		w.resign(next)
	})
}

// Deposed with a wait, the work has what was left of its term. Deposed without, it has nothing.
//
// guard:held-ends. Held says how long no successor can lead. Without this: A has 10 s left; an operator
// deposes A, and lets B lead at once; A's heartbeat is refused; A's work takes long to stop, and asks
// Held how long it may still run; Held says 10 s, and A's work runs beside B's.
func TestHeldWhenDeposed(t *testing.T) {
	for _, immediate := range []bool{false, true} {
		inWorld(t, func(w *world) {
			end := make(chan struct{})
			term, _, ran := w.working(w.node("a"), end)
			before := term.Held()
			began := time.Now()
			if _, err := w.node("op").StepDown(w.Context(), &leader.StepDownOptions{Immediate: immediate}); err != nil {
				w.Fatal(err)
			}
			<-term.Context().Done()
			held := term.Held()
			if immediate != (held == 0) {
				w.Errorf("immediate %v: held %v", immediate, held)
			}
			if !immediate && held != before-time.Since(began) {
				w.Errorf("held %v, before %v, %v ago", held, before, time.Since(began))
			}
			close(end)
			if err := <-ran; !errors.Is(err, leader.ErrDeposed) {
				w.Error(err)
			}
		})
	}
}
