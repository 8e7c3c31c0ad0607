package leader_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// A candidate that polls often leaves its note also where the two requests of the note take longer
// than one pause. So the leader that is told to end knows that somebody waits. The note costs two
// requests for each lock, however long that is held.
func TestNoteWhileThePollIsShort(t *testing.T) {
	for _, delay := range []time.Duration{20 * time.Millisecond, 110 * time.Millisecond, 200 * time.Millisecond, 450 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var notes atomic.Int32
				w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
					if op.Key == "lock/candidate.json" && op.Client == "b" {
						notes.Add(1)
					}
					return faultstore.Fault{Delay: delay}
				})
				ctx, leave := context.WithCancel(w.Context())
				defer leave()
				var ran sync.WaitGroup
				a, leads := w.node("a"), make(chan struct{})
				var followed bool
				ran.Go(func() {
					_ = a.Run(ctx, func(work context.Context, lt *leader.Term) error {
						close(leads)
						<-work.Done()
						followed = w.file(1)["state"] == "draining"
						return nil
					})
				})
				<-leads
				won := w.campaigning(w.node("b", func(o *leader.Options) { o.Poll = 250 * time.Millisecond }))
				time.Sleep(time.Minute)
				if n := notes.Load(); n != 2 {
					t.Errorf("%d requests for the note, want 2", n)
				}
				leave()
				b := <-won
				ran.Wait()
				if !followed {
					t.Error("the leader left without a drain, as if nobody waited")
				}
				w.resign(b)
			})
		})
	}
}

// Where the note cannot be left, the candidate tries that once for each heartbeat. It does not delay
// the read at which the lock may have lapsed.
func TestNoteThatHangs(t *testing.T) {
	for beats := range 20 { // so that the tries come at other moments before the lapse
		inWorld(t, func(w *world) {
			var notes atomic.Int32
			var beat, seen, deposed atomic.Int64 // the last heartbeat, and when b has first seen it
			began := time.Now()
			w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				now := int64(time.Since(began))
				switch {
				case op.Key == "lock/candidate.json":
					notes.Add(1)
					return faultstore.Fault{Drop: true, Hang: true}
				case op.Key != key(1):
				case op.Kind == faultstore.Put && op.Client == "a":
					beat.Store(now)
				case op.Kind == faultstore.Put:
					deposed.Store(now)
				case op.Client == "b" && seen.Load() < beat.Load():
					seen.Store(now)
				}
				return faultstore.Fault{}
			})
			a := w.node("a", func(o *leader.Options) { o.Renew = 5 * time.Second })
			term := w.campaign(a)
			won := w.campaigning(w.node("b", func(o *leader.Options) { o.Poll = 250 * time.Millisecond }))
			time.Sleep(time.Minute)
			if n := notes.Load(); n == 0 || n > 12 {
				t.Errorf("%d requests for the note in twelve heartbeats", n)
			}
			time.Sleep(time.Duration(beats) * 5 * time.Second)
			a.st.Crash()
			b := <-won
			// A validity, and a twentieth that keeps candidates apart.
			if took := time.Duration(deposed.Load() - seen.Load()); took > 15760*time.Millisecond {
				t.Errorf("b took %v from the last heartbeat that it saw", took)
			}
			<-term.Context().Done()
			w.resign(b)
		})
	}
}
