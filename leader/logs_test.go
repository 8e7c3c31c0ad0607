package leader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// A process that finds out that it was paused says so, and for how long: once, with the end of
// its term if the pause has ended that.
func TestLogPaused(t *testing.T) {
	for pause, over := range map[time.Duration]bool{6 * time.Second: false, 30 * time.Second: true} {
		inWorld(t, func(w *world) {
			core, logs := observer.New(zap.InfoLevel)
			a := w.node("a", func(o *leader.Options) { o.Logger = zap.New(core) })
			term := w.campaign(a)
			time.Sleep(time.Minute)
			if n := logs.FilterMessageSnippet("paused").Len(); n != 0 {
				w.Errorf("%d lines about a pause that there was not", n)
			}
			time.Sleep(2 * time.Second)
			a.clock.suspend(pause)
			_ = term.Check(0) // it finds out before any timer does
			time.Sleep(10 * time.Second)
			var said []time.Duration
			for _, l := range logs.All() {
				if d, ok := l.ContextMap()["paused"].(time.Duration); ok {
					said = append(said, d)
				} else if err, _ := l.ContextMap()["error"].(string); strings.Contains(err, "paused for ") {
					_, after, _ := strings.Cut(err, "paused for ")
					d, _ := time.ParseDuration(strings.TrimSuffix(strings.Fields(after)[0], ","))
					said = append(said, d)
				}
			}
			if len(said) != 1 || said[0] > pause+time.Millisecond || said[0] < pause-5*time.Second {
				w.Errorf("paused for %v, it says %v", pause, said)
			}
			if ended := term.Context().Err() != nil; ended != over {
				w.Errorf("after a pause of %v the term is over: %v", pause, ended)
			}
			if !over {
				w.resign(term)
			}
		})
	}
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

// A leader that is deposed says by whom and why, as a warning, and not what a request was
// answered. A candidate says that it waits until the deposed leader has stopped.
func TestLogDeposed(t *testing.T) {
	inWorld(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		log := func(o *leader.Options) { o.Logger = zap.New(core).Named(o.Identity) }
		a := w.campaign(w.node("a", log))
		won := w.campaigning(w.node("b", log))
		time.Sleep(time.Minute)
		if _, err := w.node("operator").StepDown(w.Context(), &leader.StepDownOptions{Reason: "maintenance"}); err != nil {
			w.Fatal(err)
		}
		<-a.Context().Done()
		if s := context.Cause(a.Context()).Error(); !strings.HasSuffix(s, "(epoch 1): stepped down: maintenance, by operator") {
			w.Errorf("the term ended with %q", s)
		}
		b := <-won
		over := logs.FilterMessage("term over").All()
		if len(over) != 1 || over[0].Level != zap.WarnLevel {
			w.Errorf("%v", over)
		}
		waits := logs.FilterMessageSnippet("was deposed").All()
		if len(waits) != 1 || waits[0].LoggerName != "b" || waits[0].ContextMap()["at_most"] != 15*time.Second {
			w.Errorf("%v", waits)
		}
		w.resign(b)
		if over := logs.FilterMessage("term over").All(); len(over) != 2 || over[1].Level != zap.InfoLevel || over[1].ContextMap()["error"] != nil || over[1].ContextMap()["reason"] == nil {
			w.Errorf("%v", over)
		}
	})
}

// A lock that is reclaimed has not lapsed.
func TestLogReclaimed(t *testing.T) {
	inWorld(t, func(w *world) {
		core, logs := observer.New(zap.InfoLevel)
		a := w.node("a")
		dead := w.campaign(a)
		time.Sleep(time.Minute)
		a.st.Crash()
		w.resign(w.campaign(w.node("a", func(o *leader.Options) { o.Reclaim, o.Logger = true, zap.New(core) })))
		<-dead.Context().Done()
		if logs.FilterMessageSnippet("dead process of this identity").Len() != 1 || logs.FilterMessageSnippet("lapsed").Len() != 0 {
			w.Errorf("%v", logs.All())
		}
	})
}

// A lock that cannot be released is said to be so, and nothing says that a heartbeat fails. What the store rejects
// is not tried again.
func TestLogRelease(t *testing.T) {
	for fault, says := range map[error]string{
		faultstore.ErrUnavailable: "not released yet",
		faultstore.ErrDenied:      "could not be released",
	} {
		inWorld(t, func(w *world) {
			core, logs := observer.New(zap.InfoLevel)
			a := w.campaign(w.node("a", func(o *leader.Options) { o.Logger = zap.New(core) }))
			w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Err: fault} })
			if err := a.Resign(w.Context()); !errors.Is(err, leader.ErrNotReleased) {
				w.Error(err)
			}
			if logs.FilterMessageSnippet(says).Len() == 0 || logs.FilterMessageSnippet("could not be released").Len() != 1 || logs.FilterMessageSnippet("heartbeat").Len() != 0 {
				w.Errorf("%v: %v", fault, logs.All())
			}
		})
	}
}
