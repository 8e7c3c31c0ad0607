package kubelock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/faultstore"
)

// lead is one call of OnStartedLeading.
type lead struct {
	who   string
	token fence.Token
	err   error
	ctx   context.Context
}

// candidate calls RunOrDie with client-go's usual times, over and over until ctx ends.
type candidate struct {
	who     string
	st      *faultstore.Store
	release bool
	leads   chan lead
	events  chan kubelock.Event
}

func (c *candidate) run(ctx context.Context, t *testing.T) {
	// So much time lets client-go's own limits end each call.
	l, err := kubelock.New(c.st, name, &kubelock.Options{
		Identity: c.who, Clock: clock.Go(), RequestTimeout: 10 * time.Second,
		Hooks: kubelock.Hooks{Event: func(e kubelock.Event) { c.events <- e }},
	})
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		leaderelection.RunOrDie(quiet(ctx), leaderelection.LeaderElectionConfig{
			Lock: l, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: c.release,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					token, err := l.Token(ctx)
					c.leads <- lead{who: c.who, token: token, err: err, ctx: ctx}
				},
				OnStoppedLeading: func() {},
			},
		})
	}
}

// election is some candidates in virtual time.
type election struct {
	*testing.T
	st      *faultstore.Store
	ctx     context.Context
	running sync.WaitGroup
	leads   chan lead
	events  chan kubelock.Event
	stop    map[string]context.CancelFunc
	last    fence.Epoch
}

func elect(t *testing.T, release bool, scenario func(*election)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e := &election{T: t, ctx: ctx, st: faulty(), leads: make(chan lead, 16), events: make(chan kubelock.Event, 64), stop: map[string]context.CancelFunc{}}
		defer e.running.Wait()
		defer cancel()
		for _, who := range []string{"a", "b", "c"} {
			ctx, stop := context.WithCancel(ctx)
			e.stop[who] = stop
			e.running.Go(func() {
				(&candidate{who: who, st: e.st.Client(who), release: release, leads: e.leads, events: e.events}).run(ctx, t)
			})
		}
		scenario(e)
	})
}

// next waits for the next leader, and wants its epoch to be greater than those before.
func (e *election) next() lead {
	e.Helper()
	l := <-e.leads
	if l.err != nil || l.token.Epoch() <= e.last {
		e.Fatalf("%s leads in epoch %v after %v: %v", l.who, l.token.Epoch(), e.last, l.err)
	}
	e.last = l.token.Epoch()
	state, err := kubelock.Read(e.ctx, e.st, name)
	if err != nil || state.Record.HolderIdentity != l.who || state.Epoch != e.last {
		e.Fatalf("%s leads in epoch %v, and the record says %+v: %v", l.who, e.last, state, err)
	}
	return l
}

func TestRunOrDie(t *testing.T) {
	for name, release := range map[string]bool{"ReleaseOnCancel": true, "no ReleaseOnCancel": false} {
		t.Run(name, func(t *testing.T) {
			elect(t, release, func(e *election) {
				first := e.next()
				time.Sleep(time.Hour) // it renews its lease
				if first.ctx.Err() != nil {
					t.Fatal("the leader has lost the lock for no reason")
				}
				at := time.Now()
				e.stop[first.who]()
				second := e.next()
				took := time.Since(at)
				// A free lock is found by the next try of a candidate, 2 to 4.4 s later. Without a
				// release the lease has to lapse, which a candidate has seen at some try.
				if release && took > 5*time.Second || !release && took < 10*time.Second {
					t.Errorf("the next leader came after %v", took)
				}
				if second.who == first.who {
					t.Errorf("%s leads again", first.who)
				}
			})
		})
	}
}

// A leader is cut off from the store, and client-go frees the lock late: it reads the record after a
// successor has taken it over.
func TestRunOrDieLateRelease(t *testing.T) {
	elect(t, true, func(e *election) {
		first := e.next()
		healed := make(chan struct{})
		freed := make(chan bool, 1)
		e.st.SetHook(func(op faultstore.Op) faultstore.Fault {
			select {
			case <-healed:
				if op.Client == first.who && op.Kind == faultstore.Put {
					freed <- true
				}
				return faultstore.Fault{}
			default:
			}
			if op.Client != first.who {
				return faultstore.Fault{}
			}
			return faultstore.Fault{Hold: healed}
		})
		second := e.next()
		if second.who == first.who {
			t.Fatalf("%s leads again", first.who)
		}
		close(healed) // now the read of the release is answered
		<-first.ctx.Done()
		time.Sleep(time.Hour)
		if second.ctx.Err() != nil {
			t.Error("the old leader has ended its successor's term")
		}
		select {
		case l := <-e.leads:
			t.Errorf("%s leads too, in epoch %v", l.who, l.token.Epoch())
		case <-freed:
			t.Error("the old leader has written the record")
		default:
		}
	})
}

// A leader is cut off, two others lead, and then it comes back.
func TestRunOrDieComesBack(t *testing.T) {
	elect(t, true, func(e *election) {
		first := e.next()
		e.st.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Client == first.who {
				return faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}
			}
			return faultstore.Fault{}
		})
		e.stop[e.next().who]()
		e.stop[e.next().who]()
		e.st.SetHook(nil)
		if first.ctx.Err() == nil {
			t.Error("the first leader still believes that it leads")
		}
		if again := e.next(); again.who != first.who {
			t.Errorf("%s leads, which was told to stop", again.who)
		}
	})
}

// Whatever happens to requests, epochs rise and nobody gets a token for nothing.
func TestRunOrDieOnABadNetwork(t *testing.T) {
	for _, release := range []bool{true, false} {
		elect(t, release, func(e *election) {
			e.next()
			var requests atomic.Int64
			e.st.SetHook(func(faultstore.Op) faultstore.Fault {
				if n := int(requests.Add(1)); n%3 == 0 {
					return outcomes[n/3%len(outcomes)].fault
				}
				return faultstore.Fault{}
			})
			for requests.Load() < 2000 {
				select {
				case l := <-e.leads:
					if l.err != nil || l.token.Epoch() <= e.last {
						t.Fatalf("%s leads in epoch %v after %v: %v", l.who, l.token.Epoch(), e.last, l.err)
					}
					e.last = l.token.Epoch()
				case <-time.After(time.Minute):
				case <-e.events:
				}
			}
		})
	}
}

// An elector reports its events, and the lock needs the second of them.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &candidate{who: "a", st: faulty(), release: true, leads: make(chan lead, 1), events: make(chan kubelock.Event, 8)}
		go func() {
			<-c.leads
			cancel()
		}()
		c.run(ctx, t)
		for _, want := range []kubelock.Event{{Identity: "a", Text: "became leader", Epoch: 1}, {Identity: "a", Text: "stopped leading", Epoch: 0}} {
			if got := <-c.events; got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	})
}
