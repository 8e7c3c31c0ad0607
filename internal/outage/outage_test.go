package outage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// One failure is no outage. An outage has a line at its second failure, and then one in 5 s
// at most, with the time since it began. After an answer, or a long time, another one begins.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := New(zap.New(core), memstore.New(&memstore.Options{Name: "mem://here"}), clock.Go())
		fails := errors.New("refused")
		l.Failed(fails)
		l.Answered()
		l.Failed(fails)
		if logs.Len() != 0 {
			t.Fatalf("%v", logs.All())
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			l.Failed(fails)
		}
		lines := logs.TakeAll()
		if len(lines) != 2 || lines[0].ContextMap()["store"] != "mem://here" || lines[0].ContextMap()["error"] != "refused" || lines[1].ContextMap()["for"] != 5100*time.Millisecond {
			t.Fatalf("%v", lines)
		}
		if !l.Told() {
			t.Error("it does not know that it has told")
		}
		l.Answered()
		l.Answered()
		if l.Told() {
			t.Error("the outage is over")
		}
		if lines := logs.TakeAll(); len(lines) != 1 || lines[0].ContextMap()["after"] != 10*time.Second {
			t.Fatalf("%v", lines)
		}
		l.Failed(fails)
		time.Sleep(time.Hour)
		l.Failed(fails)
		if logs.Len() != 0 {
			t.Errorf("failures an hour apart are one outage: %v", logs.All())
		}
	})
}

// A user whose requests are refused for a moment now and then has no line before 5 s, then one a
// minute. Whoever stops waiting meanwhile learns what the store has answered.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		l := Stalled(zap.New(core), memstore.New(nil), clock.Go(), "nothing is done")
		fails, over := errors.New("refused"), errors.New("the time is over")
		also := 0
		settle := l.Settle(&store.SettleOptions{Retrying: func(error) { also++ }})
		if err := l.Explain(over); err.Error() != over.Error() {
			t.Errorf("without an outage: %v", err)
		}
		fail := func(n int) {
			for range n {
				settle.Retrying(fails)
				time.Sleep(time.Second)
			}
		}
		fail(5)
		if logs.Len() != 0 {
			t.Fatalf("%v", logs.All())
		}
		fail(120)
		if lines := logs.FilterMessageSnippet("nothing is done").TakeAll(); len(lines) != 2 || lines[1].ContextMap()["for"] != 65*time.Second || also != 125 {
			t.Fatalf("%v, after %d failures", lines, also)
		}
		time.Sleep(time.Hour) // a request without an answer
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		if err := l.Cause(ctx); !errors.Is(err, over) || !errors.Is(err, fails) {
			t.Error(err)
		}
		l.Answered()
		if err := l.Cause(ctx); errors.Is(err, fails) {
			t.Errorf("after the outage: %v", err)
		}
		l.Settle(nil).Retrying(fails)
		if err := l.Explain(over); !errors.Is(err, fails) {
			t.Error("the failure is not known")
		}
	})
}
