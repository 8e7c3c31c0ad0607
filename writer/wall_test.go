package writer_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// wide is how many seals may be in flight, of a wall and one backstop.
const wide = 64 + 1

// keys lists the objects of an epoch after one.
func (e *env) keys(p fence.Position) (keys []string) {
	e.Helper()
	for info, err := range e.Mem.List(e.Context(), path.Dir(layout.DataKey(p))+"/", &store.ListOptions{StartAfter: layout.DataKey(p)}) {
		if err != nil {
			e.Fatal(err)
		}
		if info.Key > layout.DataKey(p) { // StartAfter is a hint
			keys = append(keys, info.Key)
		}
	}
	return keys
}

// outrun makes each of a client's requests for a slot take a millisecond, and in each
// millisecond the leader appends that often, from the client's first seal on, until
// it is fenced.
func (e *env) outrun(client string, leader *writer.Writer, often int) (acked func() []string) {
	var won []string
	var run sync.Once
	over := make(chan struct{})
	e.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
		if _, ok := layout.ParseDataKey(op.Key); op.Client != client || !ok {
			return
		}
		if op.Kind == faultstore.Put {
			run.Do(func() {
				go func() {
					defer close(over)
					for {
						for range often {
							v := fmt.Sprint(len(won))
							if _, err := leader.Append(context.Background(), recs(v)); err != nil {
								return
							}
							won = append(won, v)
						}
						time.Sleep(time.Millisecond)
					}
				}()
			})
		}
		time.Sleep(time.Millisecond)
	})
	return func() []string { <-over; return won }
}

// A leader that wins every race for the next empty slot is stopped by a wall of seals; what it was told
// stands, and it is fenced.
//
// Also if it is faster than the wall. Then the backstop stops it.
//
// guard:open-reach. A backstop is a seal far ahead of a leader that the opener cannot overtake. Without
// this doubling: the leader has a larger window than the opener, and is in the backstop's slot before
// the opener's seal; it appends faster than the opener reads or seals; nothing stops it, and the
// takeover never ends.
//
// guard:open-own. Without this check: the opener's wall is applied; its walk meets a seal of the wall,
// which names the opener's own epoch; the opener takes this seal for that of another process with the
// same token, and gives up.
func TestLeaderThatWinsEveryRace(t *testing.T) {
	for _, c := range []struct {
		often int
		limit time.Duration
		after int // seals after the one that ends the epoch: as many as were in flight, or fewer
	}{{1, 20 * time.Millisecond, wide}, {4, 20 * time.Millisecond, wide}, {64, 60 * time.Millisecond, wide}, {500, 800 * time.Millisecond, 8}} {
		t.Run(fmt.Sprint(c.often), bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 4})
			acked := e.outrun("b", a, c.often)
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			b, err := e.tryFor(ctx, "b", 2, &writer.Options{Concurrency: 1, Window: 1})
			if err != nil {
				t.Fatal(err)
			}
			won := acked()
			if len(won) < 2 {
				t.Fatalf("the leader won %d races", len(won))
			}
			if b.Recovered().Offset != uint64(len(won)) {
				t.Errorf("recovered %+v, acknowledged were %d", b.Recovered(), len(won))
			}
			e.fenced(a.Err(), 2)
			end := at(1, uint64(len(won))+1)
			if after := e.keys(end); e.header(end).Next != 2 || len(after) > c.after {
				t.Errorf("%d seals after %v", len(after), end)
			}
			e.append(b, "b")
			e.holds(append(slices.Clone(won), "b")...)
		}))
	}
}

// The wall finds a large object, which is folded and pruned before the walk asks for its rest. Another
// opener's late seal falls into the hole.
//
// guard:open-have. An opener's wall sends seals to a row of slots at once, and notes what it finds in
// slots that are taken. Without this: the wall notes the first part of a large object; the object is
// folded and pruned; another opener's late seal falls into the hole; the walk asks for the rest, finds
// another object there, and takes the slot for empty (guard rest-match); the opener's seal is refused
// there; each later walk uses the old note, and does the same; the takeover never ends.
func TestWhatTheWallFoundIsPruned(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		opts := &writer.Options{Concurrency: 1, Window: 4, NoCompress: true}
		a := e.open("a", 1, opts)
		e.append(a, "0")
		slot, big := at(1, 2), string(make([]byte, 400<<10))
		var refused atomic.Bool
		var rests atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if op.Client != "b" || op.Key != layout.DataKey(slot) {
				return
			}
			switch {
			case op.Kind == faultstore.Put && !refused.Swap(true):
				e.append(a, big)
			case op.Kind == faultstore.Get && op.Offset > 0: // the walk asks for the rest
				if n := rests.Add(1); n == 1 {
					time.Sleep(time.Second)
					e.compact()
					time.Sleep(11 * time.Minute)
					e.compact()
					e.gone(slot)
					e.seal(slot, 2)
				} else if n > 10 {
					cancel() // it would go on for ever
				}
			}
		})
		b, err := e.tryFor(ctx, "b", 3, opts)
		if err != nil || rests.Load() == 0 {
			t.Fatalf("%v, after %d reads of the rest", err, rests.Load())
		}
		e.append(b, "b")
		e.holds("0", big, "b")
	})
}

// An empty object in the row of the wall is damage, as anywhere else.
func TestDamageInTheWall(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		e.append(a, "0")
		e.before("b", faultstore.Put, layout.DataPrefix, func(faultstore.Op) bool {
			e.append(a, "1")
			e.Put(layout.DataKey(at(1, 3)), nil)
			return true
		})
		if _, err := e.try("b", 2, &writer.Options{Concurrency: 1, Window: 1}); !errors.Is(err, chain.ErrDamaged) {
			t.Error(err)
		}
	})
}

// The leader is so far ahead that the row only reads, and the backstop is denied. The opener
// says so, and does not read for ever.
//
// guard:open-wall. Without the wall: the leader keeps its pipeline full; each time the opener's seal
// comes to the first empty slot, the leader's object is there already; only after many windows of
// objects does the opener send a backstop; the leader comes to that slot thousands of slots later.
func TestBackstopOfTheWallIsDenied(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 4})
		e.append(a, "0")
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		var leads sync.WaitGroup
		var gets atomic.Int64
		e.fault(faultstore.Rule{Client: "b", Kind: faultstore.Put, Skip: 1, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		e.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if _, ok := layout.ParseDataKey(op.Key); op.Client != "b" || !ok {
				return
			}
			if op.Kind == faultstore.Put {
				once.Do(func() {
					for range 100 {
						e.append(a, "x")
					}
					leads.Go(func() {
						for ctx.Err() == nil {
							for range 200 {
								e.append(a, "y")
							}
							time.Sleep(time.Millisecond)
						}
					})
				})
			} else {
				gets.Add(1)
			}
			time.Sleep(time.Millisecond)
		})
		_, err := e.tryFor(t.Context(), "b", 2, &writer.Options{Concurrency: 100, Window: 100})
		cancel()
		leads.Wait()
		if !errors.Is(err, store.ErrDenied) || gets.Load() > 1000 {
			t.Errorf("%v after %d reads", err, gets.Load())
		}
	})
}

// Seals of the wall are late. Meanwhile the leader gets slot 5 after all, and all that can be folded
// is, and is pruned: the seal on slot 5 falls into the hole. The seal after it is on the chain and may
// be folded; both have one nonce.
//
// guard:open-look. Without this check: the opener's seal for slot 5 is slow; its seal for slot 6 is
// applied, and it begins to read the manifest; the leader fills slot 5, and a compactor folds and
// prunes that slot; the seal for slot 5 lands in the hole; the manifest that was read has the old
// floor, so the opener goes on after slot 5; its first object has an offset that the chain has passed,
// and readers report damage.
//
// guard:open-folded. Such a seal is the opener's, and its epoch begins after no other seal of the same
// wall. Without this check: B seals slot 1/9 for epoch 3; a compactor folds this seal at once, so the
// floor is 3/1; B reads the manifest, finds that the floor has passed its seal, and begins again; the
// floor is in epoch 3 already, so B believes that it is fenced, and gives up.
func TestSealOfTheWallThatIsLate(t *testing.T) {
	for name, held := range map[string]faultstore.Rule{
		"that one": {Prefix: layout.DataKey(at(1, 5))}, "all of them": {Prefix: layout.DataPrefix, Skip: 1},
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, nil)
			e.append(a, "0")
			e.before("b", faultstore.Put, layout.DataPrefix, func(op faultstore.Op) bool {
				if op.Key != layout.DataKey(at(1, 2)) {
					t.Errorf("the first seal is put on %s", op.Key)
				}
				for _, v := range []string{"1", "2", "3"} {
					e.append(a, v)
				}
				return true
			})
			gate := make(chan struct{})
			held.Client, held.Kind, held.Times, held.Fault = "b", faultstore.Put, -1, faultstore.Fault{Hold: gate}
			e.fault(held)
			var b *writer.Writer
			var err error
			opened := make(chan struct{})
			go func() {
				defer close(opened)
				b, err = e.try("b", 2, &writer.Options{Concurrency: 1, Window: 1})
			}()
			synctest.Wait()
			e.append(a, "4")
			e.compact()
			e.gone(at(1, 5))
			close(gate)
			<-opened
			if err != nil {
				t.Fatal(err)
			}
			// If all are late, the seal on slot 4 may fall into a hole too, and cancel the one on slot 5.
			if e.header(at(1, 4)).Next != 2 && e.header(at(1, 5)).Next != 2 || e.header(at(1, 6)).Next != 2 {
				t.Fatal("the late seal was not applied, so this tests nothing")
			}
			if b.Recovered().Offset != 5 {
				t.Errorf("recovered %+v", b.Recovered())
			}
			e.append(b, "b")
			e.holds("0", "1", "2", "3", "4", "b")
		}))
	}
}

// The leader has died with holes in its pipeline: there is a wall at once, since it looks
// busy, and the first hole is the end.
func TestWallAgainstTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 3)))
		e.outcomes(e.several(a, "0", "1", "2", "3"), "committed", "committed", "pending", "pending")
		b := e.open("b", 2, single)
		if b.Recovered().Offset != 2 {
			t.Errorf("recovered %+v", b.Recovered())
		}
		release()
		e.append(b, "b")
		e.holds("0", "1", "b")
	})
}

// An error of the store ends a wall, wherever it is, and the opener does not wait for the rest.
func TestWallFails(t *testing.T) {
	for _, rule := range []faultstore.Rule{
		{Kind: faultstore.Put, Prefix: layout.DataKey(at(1, 3))},
		{Kind: faultstore.Get, Prefix: layout.DataKey(at(1, 3))},
	} {
		t.Run(string(rule.Kind), bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, nil)
			e.append(a, "0")
			e.before("b", faultstore.Put, layout.DataPrefix, func(faultstore.Op) bool {
				e.append(a, "1")
				rule.Client, rule.Times, rule.Fault = "b", -1, faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}
				e.fault(rule)
				return true
			})
			_, err := e.try("b", 2, &writer.Options{Concurrency: 1, Window: 1})
			if err == nil || errors.Is(err, writer.ErrFenced) {
				t.Errorf("error is %v", err)
			}
		}))
	}
}

// A leader that keeps its pipeline full is stopped within 8 round trips of the first seal, in
// simulated time, where requests take a round trip each and nothing else takes any.
func TestRoundTripsAgainstABusyLeader(t *testing.T) {
	const trip = 2 * time.Millisecond
	bubble(t, func(t *testing.T, e *env) {
		var mu sync.Mutex
		var client string
		var sealing time.Time
		e.Faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
			mu.Lock()
			if _, ok := layout.ParseDataKey(op.Key); ok && op.Kind == faultstore.Put && op.Client == client && sealing.IsZero() {
				sealing = time.Now()
			}
			mu.Unlock()
			_ = clock.Sleep(ctx, clock.Go(), trip)
		})
		opts := &writer.Options{BatchBytes: 1, NoCompress: true, Checkpoint: -1}
		w := e.open("w1", 1, opts)
		for epoch := uint64(2); epoch < 12; epoch++ {
			over := make(chan struct{})
			go func(w *writer.Writer) {
				defer close(over)
				for {
					if _, err := w.AppendAsync(context.Background(), recs("x")); err != nil {
						return
					}
				}
			}(w)
			time.Sleep(time.Duration(10+3*epoch) * time.Millisecond)
			mu.Lock()
			client, sealing = fmt.Sprint("w", epoch), time.Time{}
			mu.Unlock()
			next, err := e.try(client, fence.Epoch(epoch), opts)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			took := time.Since(sealing)
			mu.Unlock()
			if took > 8*trip {
				t.Errorf("epoch %d was open %v after its first seal, that is %v round trips", epoch, took, took/trip)
			}
			<-over
			abandon(w)
			w = next
		}
		abandon(w)
	})
}
