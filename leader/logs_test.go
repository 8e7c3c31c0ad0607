package leader_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// A leader says that a heartbeat fails as soon as the first request has failed, with the
// time that is left, and not when the term is over. It does not repeat that at each retry.
func TestLogFailedHeartbeat(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"refused": {Drop: true, Err: faultstore.ErrUnavailable},
		"hangs":   {Drop: true, Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				core, logs := observer.New(zap.InfoLevel)
				a := w.node("a", func(o *leader.Options) { o.Logger = zap.New(core) })
				term := w.campaign(a)
				w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return f })
				time.Sleep(6*time.Second + 3*time.Second + 200*time.Millisecond) // a heartbeat, and one request's time
				failed := logs.FilterMessageSnippet("heartbeat failed")
				if failed.Len() == 0 || term.Check(0) != nil {
					w.Fatalf("%d lines; the term: %v", failed.Len(), term.Check(0))
				}
				if left, ok := failed.All()[0].ContextMap()["remaining"].(time.Duration); !ok || left < 3*time.Second {
					w.Errorf("the first line says that %v remain", left)
				}
				<-term.Context().Done()
				time.Sleep(time.Minute)
				if n := logs.FilterMessageSnippet("heartbeat failed").Len(); n > 9 {
					w.Errorf("%d lines about one outage of 8 s", n)
				}
			})
		})
	}
}

// A process that finds out that it was paused says so, and for how long.
func TestLogPaused(t *testing.T) {
	inWorld(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		a := w.node("a", func(o *leader.Options) { o.Logger = zap.New(core) })
		term := w.campaign(a)
		time.Sleep(time.Minute)
		if n := logs.FilterMessageSnippet("paused").Len(); n != 0 {
			w.Errorf("%d lines about a pause that there was not", n)
		}
		a.clock.suspend(30 * time.Second)
		_ = term.Check(0) // it finds out before any timer does
		<-term.Context().Done()
		time.Sleep(time.Second)
		lines := logs.FilterMessageSnippet("paused").All()
		if len(lines) != 1 {
			w.Fatalf("%d lines about the pause", len(lines))
		}
		if d, ok := lines[0].ContextMap()["paused"].(time.Duration); !ok || d < 20*time.Second || d > 31*time.Second {
			w.Errorf("it was paused for %v", d)
		}
	})
}

// A candidate that cannot reach the store says so within a heartbeat, every 5 s and not at
// each retry, and says when it is over: before it has seen a lock, and while it waits.
func TestLogOutageOfACandidate(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{
		"refused": {Drop: true, Err: faultstore.ErrUnavailable},
		"hangs":   {Drop: true, Hang: true},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", waiting ", waits), func(t *testing.T) {
				inWorld(t, func(w *world) {
					core, logs := observer.New(zap.InfoLevel)
					a := w.campaign(w.node("a"))
					b := w.node("b", func(o *leader.Options) { o.Logger = zap.New(core) })
					fault := func() { w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return f }) }
					if !waits {
						fault()
					}
					won := w.campaigning(b)
					time.Sleep(time.Minute)
					fault()
					time.Sleep(13500 * time.Millisecond) // a heartbeat, and two requests' time
					failed := logs.FilterMessageSnippet("does not answer")
					if failed.Len() == 0 {
						w.Fatal("not a word")
					}
					if m := failed.All()[0].ContextMap(); m["error"] == nil || m["store"] == nil {
						w.Errorf("the first line says %v", m)
					}
					time.Sleep(time.Minute)
					if n := logs.FilterMessageSnippet("does not answer").Len(); n > 28 || n < 8 {
						w.Errorf("%d lines", n)
					}
					w.faulty.SetHook(nil)
					term := <-won
					if n := logs.FilterMessageSnippet("answers again").Len(); n != 1 {
						w.Errorf("%d lines that it is over", n)
					}
					w.resign(term)
					_ = a
				})
			})
		}
	}
}

// One request that fails is not worth a line.
func TestLogNoOutage(t *testing.T) {
	inWorld(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		a := w.campaign(w.node("a"))
		b := w.node("b", func(o *leader.Options) { o.Logger = zap.New(core) })
		won := w.campaigning(b)
		time.Sleep(time.Minute)
		for range 10 {
			w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Get, Prefix: "lock/0", Times: 1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}}))
			time.Sleep(30 * time.Second)
		}
		w.resign(a)
		w.resign(<-won)
		if n := logs.FilterMessageSnippet("answer").Len(); n != 0 {
			w.Errorf("%d lines", n)
		}
	})
}
