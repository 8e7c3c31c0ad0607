package leader_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

func TestHooks(t *testing.T) {
	inWorld(t, func(w *world) {
		var beats []leader.Heartbeat
		var ends []leader.End
		var elections []leader.Election
		a := w.node("a", func(o *leader.Options) {
			o.Hooks = leader.Hooks{
				Elected:   func(e leader.Election) { elections = append(elections, e) },
				Ended:     func(e leader.End) { ends = append(ends, e) },
				Heartbeat: func(h leader.Heartbeat) { beats = append(beats, h) },
			}
		})
		term := w.campaign(a)
		time.Sleep(time.Minute)
		w.resign(term)
		if len(elections) != 1 || elections[0].Epoch != 1 || elections[0].Took <= 0 {
			w.Errorf("elections %+v", elections)
		}
		if len(ends) != 1 || !errors.Is(ends[0].Cause, leader.ErrResigned) || ends[0].Led < time.Minute {
			w.Errorf("ends %+v", ends)
		}
		if len(beats) < 9 {
			w.Fatalf("%d heartbeats", len(beats))
		}
		for _, h := range beats {
			if h.Err != nil || h.Took <= 0 || h.Late < h.Took || h.Remaining < 13*time.Second {
				w.Errorf("heartbeat %+v", h)
			}
		}
	})
}

// A term ends while its beginning is still being told. Its end is told after that.
func TestEndedAfterElected(t *testing.T) {
	inWorld(t, func(w *world) {
		var told []string
		var mu sync.Mutex
		tell := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, what)
		}
		a := w.node("a", func(o *leader.Options) {
			o.Hooks = leader.Hooks{
				Elected: func(leader.Election) {
					w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
					time.Sleep(20 * time.Second)
					tell("elected")
				},
				Ended: func(leader.End) { tell("ended") },
			}
		})
		term := w.campaign(a)
		synctest.Wait()
		if err := term.Check(0); !errors.Is(err, leader.ErrExpired) || !slices.Equal(told, []string{"elected", "ended"}) {
			w.Errorf("%v; told %v", err, told)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_ = term.Resign(ctx)
	})
}

// Run returns only when the last hook has.
func TestRunWaitsForItsHooks(t *testing.T) {
	inWorld(t, func(w *world) {
		var told atomic.Bool
		a := w.node("a", func(o *leader.Options) {
			o.Hooks.Ended = func(leader.End) { time.Sleep(time.Minute); told.Store(true) } // longer than the release
		})
		ctx, cancel := context.WithCancel(w.Context())
		_ = a.Run(ctx, func(ctx context.Context, t *leader.Term) error {
			cancel()
			<-ctx.Done()
			return t.Check(0)
		})
		if !told.Load() {
			w.Error("Run has returned, and Hooks.Ended is still running")
		}
	})
}

// Hooks run outside all locks: they may use the term.
func TestHooksMayUseTheTerm(t *testing.T) {
	inWorld(t, func(w *world) {
		var term atomic.Pointer[leader.Term]
		var called atomic.Int32
		use := func() {
			if t := term.Load(); t != nil {
				called.Add(1)
				t.Progress()
				_, _ = t.Remaining(), t.Check(0)
			}
		}
		a := w.node("a", func(o *leader.Options) {
			o.StallAfter = time.Minute
			o.Hooks = leader.Hooks{
				Elected: func(leader.Election) { use() }, Ended: func(leader.End) { use() },
				Heartbeat: func(leader.Heartbeat) { use() }, Leader: func(leader.Record) { use() },
			}
		})
		term.Store(w.campaign(a))
		time.Sleep(20 * time.Second)
		w.resign(term.Load())
		if n := called.Load(); n != 4 {
			w.Errorf("%d hooks were called in 20 s and at the end, want 3 heartbeats and the end", n)
		}
	})
}
