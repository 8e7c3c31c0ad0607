package group_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

var errWork = errors.New("the work fails")

// Work that shows no progress is ended, and counts as failed. It begins again with another token.
func TestStall(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var stalls atomic.Int64
		x := w.worker("a", func(x *worker) {
			x.opts.StallAfter = 20 * time.Second
			x.work = func(ctx context.Context, p *group.Partition) error {
				for p.Number() == 1 || stalls.Load() > 0 {
					p.Progress()
					if err := clock.Sleep(ctx, clock.Go(), 5*time.Second); err != nil {
						return err
					}
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), group.ErrStalled) || !errors.Is(p.Check(0), group.ErrStalled) {
					w.Errorf("it ended with %v", context.Cause(ctx))
				}
				stalls.Add(1)
				return context.Cause(ctx)
			}
		})
		time.Sleep(5 * time.Minute)
		if n := stalls.Load(); n != 1 {
			w.Errorf("%d stalls", n)
		}
		w.whole(time.Minute, x)
		w.end(x)
	})
}

// Work that does not return ends the whole session, so that others get the partitions.
//
// guard:hung-waits. Without this check: the work of process A on a partition ignores the end of its
// context; A's session ends; A joins again, and gets the same partition; the new work on it starts
// beside the old work.
func TestHungWorkEndsTheSession(t *testing.T) {
	inWorld(t, 6, func(w *world) {
		hold := make(chan struct{})
		a := w.worker("a", func(x *worker) {
			x.work = func(ctx context.Context, p *group.Partition) error {
				<-ctx.Done()
				<-hold
				return nil
			}
		})
		w.whole(time.Minute, a)
		b := w.worker("b")
		time.Sleep(2 * time.Minute)
		if n := w.owned(b); n == 0 {
			w.Error("b owns nothing")
		}
		a.mu.Lock()
		if len(a.errs) != 1 || !errors.Is(a.errs[0], group.ErrHung) {
			w.Errorf("a ended with %v", a.errs)
		}
		a.mu.Unlock()
		// Its process does not join again before the work has returned.
		time.Sleep(10 * time.Minute)
		if n := w.owned(b); n != 6 {
			w.Errorf("b owns %d, although the work of a still runs", n)
		}
		late, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := group.Join(late, w.mem, &group.Options{Clock: clock.Go()}); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("Join beside work that hangs: %v", err)
		}
		close(hold)
		w.whole(time.Minute, a, b)
		a.stop()
		w.whole(2*time.Minute, b)
		w.end(b)
	})
}

// A member whose requests are not answered ends at its own deadline.
//
// guard:deadline-first. Without this check: A's heartbeats do not get through; an organiser expires A;
// the next assignment gives A's partition to B, and does not name A as pending, because A is dead; B
// starts while A, which knows nothing of this, works.
func TestOwnDeadline(t *testing.T) {
	inWorld(t, 3, func(w *world) {
		ended := make(chan time.Time, 10)
		x := w.worker("a", func(x *worker) {
			x.work = func(ctx context.Context, p *group.Partition) error {
				<-ctx.Done()
				ended <- time.Now()
				if !errors.Is(context.Cause(ctx), group.ErrExpired) || p.Check(0) == nil || p.Remaining() != 0 {
					w.Errorf("it ended with %v; %v remain", context.Cause(ctx), p.Remaining())
				}
				return nil
			}
		})
		w.whole(time.Minute, x)
		time.Sleep(time.Minute)
		x.st.Pause()
		start := time.Now()
		for range 3 {
			if at := (<-ended).Sub(start); at > validity-validity/10 {
				w.Errorf("a partition ended after %v", at)
			}
		}
		x.crash()
	})
}

// After a suspend Check finds out before any timer does.
//
// guard:check-clock. Without this: the machine sleeps for an hour, and the timer that cancels the
// context sleeps too; a Check right after waking says that the ownership goes on, although others own
// the partition.
func TestCheckCountsSuspends(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		checked := make(chan error, 1)
		x := w.worker("a", func(x *worker) {
			x.work = func(ctx context.Context, p *group.Partition) error {
				if err := p.Check(time.Second); err != nil {
					w.Error(err)
				}
				if err := p.Check(time.Hour); !errors.Is(err, group.ErrShort) {
					w.Errorf("Check(1h) says %v", err)
				}
				x.clock.Suspend(time.Hour)
				select {
				case checked <- p.Check(0):
				default:
				}
				<-ctx.Done()
				return nil
			}
		})
		if err := <-checked; !errors.Is(err, group.ErrExpired) {
			w.Errorf("Check says %v", err)
		}
		x.crash()
	})
}

// N is raised by a member that joins with more; the partitions that are there do not move for it.
func TestRaise(t *testing.T) {
	inWorld(t, 10, func(w *world) {
		a := w.worker("a")
		w.whole(time.Minute, a)
		b := w.worker("b", func(x *worker) { x.opts.Partitions = 16 })
		w.partitions = 16
		w.whole(time.Minute, a, b)
		if w.opens != 10+8 {
			w.Errorf("%d openings", w.opens)
		}
		_, err := group.Join(w.Context(), w.mem, &group.Options{Partitions: 12, Clock: clock.Go()})
		if !errors.Is(err, group.ErrOptions) || !strings.Contains(err.Error(), "set it to 16 or to 0") {
			w.Errorf("Join with fewer partitions says %v", err)
		}
		w.end(a, b)
	})
}

func TestWeightsAndData(t *testing.T) {
	inWorld(t, 12, func(w *world) {
		weigh := func(n int) func(*worker) { return func(x *worker) { x.opts.Weight, x.opts.Data = n, "at "+x.name } }
		all := []*worker{w.worker("a", weigh(2)), w.worker("b", weigh(1)), w.worker("c", weigh(-1))}
		time.Sleep(time.Minute)
		if a, b, c := w.owned(all[0]), w.owned(all[1]), w.owned(all[2]); a != 8 || b != 4 || c != 0 {
			w.Errorf("weights 2, 1 and none own %d, %d and %d of 12", a, b, c)
		}
		seen := 0
		for s, err := range group.Observe(w.Context(), w.mem, &group.Options{Clock: clock.Go()}) {
			if err != nil || len(s.Members) != 3 || len(s.Moving) != 0 {
				w.Fatalf("the status is %+v, %v", s, err)
			}
			for _, m := range s.Members {
				if m.Data != "at "+m.Identity || seen == 0 && m.Leaving || m.Expired || m.Lapsed {
					w.Errorf("member %+v", m)
				}
			}
			for p, i := range s.Owners {
				if i < 0 || s.Members[i].Identity == "c" {
					w.Errorf("partition %d belongs to %d", p, i)
				}
			}
			if seen++; seen == 1 {
				go all[1].stop()
				continue
			}
			break
		}
		w.end(all...)
	})
}

// An observer sees that the last member has left. To it the release of a session is a new version of
// the member's object, as a heartbeat is.
func TestObserveTheLastOneLeave(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		a := w.worker("a")
		w.whole(time.Minute, a)
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
		defer cancel()
		gone := false
		for s, err := range group.Observe(ctx, w.mem, &group.Options{Clock: clock.Go()}) {
			if err != nil || len(s.Members) != 1 || s.Members[0].Lapsed {
				w.Fatalf("the status is %+v, %v", s, err)
			}
			if !gone {
				time.AfterFunc(2*validity, a.stop) // in the middle of its heartbeats
			}
			if gone = true; s.Members[0].Expired {
				break
			}
		}
		if ctx.Err() != nil {
			w.Error("the observer never sees that the member is gone")
		}
		w.end(a)
	})
}

// A store that ignores conditions is refused, before anything else.
type unconditional struct{ store.Store }

func (u unconditional) Put(ctx context.Context, key string, body []byte, _ *store.PutOptions) (store.Info, error) {
	return u.Store.Put(ctx, key, body, nil)
}

// guard:group-lost. Without this check: an operator deletes group.json by mistake; the next member
// creates another one, for a new group; no member can use the old assignments, which belong to the old
// group; the operator deletes these too; assignment 1 of the new group gives out tokens that were used
// before.
func TestJoinRefuses(t *testing.T) {
	ctx := t.Context()
	mem := memstore.New(nil)
	if _, err := group.Join(ctx, mem, nil); !errors.Is(err, group.ErrNoGroup) {
		t.Errorf("without a group: %v", err)
	}
	if _, err := group.Join(ctx, unconditional{mem}, &group.Options{Partitions: 1}); err == nil || !strings.Contains(err.Error(), "probe") {
		t.Errorf("a store without conditions: %v", err)
	}
	group.Found(t, mem, 4, validity)
	for says, o := range map[string]group.Options{
		"another prefix":      {Name: "other"},
		"for all members":     {Validity: time.Second},
		"never removed":       {Partitions: 3},
		"Weight 2000000000":   {Weight: 2_000_000_000},
		"Partitions -1":       {Partitions: -1},
		"one heartbeat":       {Renew: 14 * time.Second},
		"ClockRate 0.7":       {ClockRate: 0.7},
		"StallAfter -1ns":     {StallAfter: -1},
		"Validity 1ns must":   {Validity: 1},
		"Partitions 100001 m": {Partitions: 100_001},
	} {
		if _, err := group.Join(ctx, mem, &o); !errors.Is(err, group.ErrOptions) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
	for _, body := range []string{`{"format":99}`, `junk`} {
		if _, err := mem.Put(ctx, "group/group.json", []byte(body), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := group.Join(ctx, mem, nil); err == nil {
			t.Errorf("%s was accepted", body)
		}
	}
	if err := mem.Delete(ctx, "group/group.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Put(ctx, "group/assign/"+strings.Repeat("0", 19)+"1", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := group.Join(ctx, mem, &group.Options{Partitions: 4}); err == nil || !strings.Contains(err.Error(), "it is missing") {
		t.Errorf("a lost group.json: %v", err)
	}
}

// Each session has a name of its own.
//
// guard:new-name. Without this: worker A expires; B, which organises, finds it dead, and somebody
// deletes A's object by hand; A joins again under its old name, is still the owner by assignment 1, and
// starts; to B that name is dead, so B creates assignment 2, which gives the partition to B without a
// pending entry for A; B starts while A works.
func TestSessionsHaveNewNames(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		names := map[string]bool{}
		for range 3 {
			ctx, cancel := context.WithTimeout(w.Context(), 10*time.Minute) // a name that was found dead can never join
			g, err := group.Join(ctx, w.mem, &group.Options{Identity: "same", Clock: clock.Go()})
			if cancel(); err != nil {
				w.Fatal(err)
			}
			names[g.Member()] = true
			if err := g.Leave(w.Context()); err != nil {
				w.Error(err)
			}
			if err := g.Run(w.Context(), nil); err != nil {
				w.Errorf("Run after Leave: %v", err)
			}
		}
		if len(names) != 3 {
			w.Errorf("%d names of 3 sessions", len(names))
		}
	})
}

// Workers on a slow store that loses replies, and applies requests late and twice, crash, freeze,
// leave and join. The checker in serve watches all openings.
func TestRandomGroups(t *testing.T) {
	for seed := range test.Of(uint64(2), 20) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rates := faultstore.Rates{Fail: 0.02, LoseReply: 0.03, Echo: 0.02, Late: 0.02, Duplicate: 0.03, Break: 0.01, LateOps: 300, MaxDelay: 300 * time.Millisecond}
			inFaultyWorld(t, 9, faultstore.Options{Seed: seed, Rates: rates}, func(w *world) {
				rng := newRand(seed)
				n := 0
				all := map[int]*worker{}
				add := func() { all[n] = w.worker(fmt.Sprint("w", n)); n++ }
				for range 4 {
					add()
				}
				for range 50 {
					time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Second))))
					i := rng.IntN(n)
					x := all[i]
					if x == nil {
						continue
					}
					switch rng.IntN(5) {
					case 0:
						x.crash()
						delete(all, i)
						add()
					case 1:
						resume := x.st.Pause()
						time.AfterFunc(time.Duration(rng.Int64N(int64(40*time.Second))), resume)
					case 2:
						go x.stop()
						delete(all, i)
						add()
					case 3:
						x.clock.Suspend(time.Duration(rng.Int64N(int64(time.Hour))))
					}
				}
				w.faulty.SetRates(faultstore.Rates{MaxDelay: 40 * time.Millisecond})
				time.Sleep(time.Minute)
				var left []*worker
				for _, x := range all {
					left = append(left, x)
				}
				w.whole(3*time.Minute, left...)
				w.end(left...)
			})
		})
	}
}

// No request is answered, and none notices that its context has ended. The timer ends the session all
// the same.
//
// guard:own-timer. Without this: the store is a directory on NFS, and this machine's mount hangs; the
// member's heartbeat does not even return at its timeout, so nothing wakes the member at its deadline;
// it works on while others own its partitions.
func TestOwnTimer(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		ended := make(chan time.Time, 1)
		x := w.worker("a", func(x *worker) {
			x.work = func(ctx context.Context, _ *group.Partition) error {
				<-ctx.Done()
				ended <- time.Now()
				return nil
			}
		})
		w.whole(time.Minute, x)
		gate := make(chan struct{})
		w.faulty.SetBefore(func(context.Context, faultstore.Op) { <-gate })
		start := time.Now()
		select {
		case at := <-ended:
			if at.Sub(start) > validity-validity/10 {
				w.Errorf("it ended after %v", at.Sub(start))
			}
		case <-time.After(time.Hour):
			w.Error("it did not end within an hour")
		}
		w.faulty.SetBefore(nil)
		close(gate)
		x.crash()
	})
}

// Work that ends its goroutine has failed, and begins again.
func TestWorkThatExits(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var calls atomic.Int64
		x := w.worker("a", func(x *worker) {
			x.work = func(ctx context.Context, _ *group.Partition) error {
				if calls.Add(1) == 1 {
					runtime.Goexit()
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
		})
		time.Sleep(10 * time.Second)
		if n := calls.Load(); n != 2 {
			w.Errorf("the work was called %d times", n)
		}
		w.end(x)
	})
}

// So has work whose hook ends its goroutine. A hook of its end loses nothing.
func TestHooksThatExit(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		var opened, closed, calls atomic.Int64
		x := w.worker("a", func(x *worker) {
			x.opts.Hooks = group.Hooks{
				Opened: func(group.Opening) {
					if opened.Add(1) == 1 {
						runtime.Goexit()
					}
				},
				Closed: func(group.Closing) {
					if closed.Add(1) == 1 {
						runtime.Goexit()
					}
				},
			}
			x.work = func(ctx context.Context, _ *group.Partition) error {
				calls.Add(1)
				<-ctx.Done()
				return context.Cause(ctx)
			}
		})
		time.Sleep(10 * time.Second)
		if calls.Load() != 1 || opened.Load() != 2 || closed.Load() != 1 {
			w.Errorf("opened %d times, closed %d, the work was called %d times", opened.Load(), closed.Load(), calls.Load())
		}
		w.end(x)
	})
}

// Work that fails while it is told to stop says so: nothing else would.
func TestWorkThatFailsAtItsEnd(t *testing.T) {
	for _, own := range []error{errors.New("disk full"), nil} {
		inWorld(t, 1, func(w *world) {
			core, logs := observer.New(zap.WarnLevel)
			x := w.worker("a", func(x *worker) {
				x.opts.Logger = zap.New(core)
				x.work = func(ctx context.Context, _ *group.Partition) error {
					<-ctx.Done()
					return cmp.Or(own, context.Cause(ctx))
				}
			})
			time.Sleep(10 * time.Second)
			w.end(x)
			if n := logs.FilterMessageSnippet("work on a partition failed").Len(); n > 0 != (own != nil) {
				w.Errorf("%v: %v", own, logs.All())
			}
		})
	}
}
