package leader_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

func TestFirstLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		term := w.campaign(a)
		if term.Epoch() != 1 || uint64(term.Token().Epoch()) != 1 || term.Check(time.Second) != nil {
			w.Fatalf("epoch %v, token %v, %v", term.Epoch(), term.Token(), term.Check(0))
		}
		time.Sleep(10 * time.Minute)
		if err := term.Check(time.Second); err != nil {
			w.Fatalf("the term did not last: %v", err)
		}
		w.resign(term)
		if f := w.file(1); f["expired"] != true || f["state"] != "expired" || f["reason"] != "resigned" || f["expired_by"] != "a" {
			w.Fatalf("lock file %v", f)
		}
		if cause := context.Cause(term.Context()); !errors.Is(cause, leader.ErrResigned) || !errors.Is(cause, leader.ErrLost) {
			w.Fatalf("cause %v", cause)
		}
	})
}

func TestCrashFailover(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.node("a"), w.node("b")
		ta := w.campaign(a)
		won := w.campaigning(b)
		time.Sleep(40 * time.Second)
		w.faulty.ResetCounts()
		time.Sleep(time.Minute)
		c := w.faulty.Counts()
		w.Logf("puts %d gets %d lists %d", c.Of(faultstore.Put, ""), c.Of(faultstore.Get, ""), c.Of(faultstore.List, ""))
		a.st.Crash()
		crashed := time.Now()
		tb := <-won
		w.Logf("took %v", time.Since(crashed))
		if tb.Epoch() != 2 {
			w.Fatal(tb.Epoch())
		}
		w.resign(tb)
		<-ta.Context().Done()
	})
}
