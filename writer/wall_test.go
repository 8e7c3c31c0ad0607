package writer_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// wide is how many seals of a wall may be in flight.
const wide = 128

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

// guard:open-wall, guard:open-own. A leader that wins every race for the next empty slot is
// stopped by a wall of seals; what it was told stands, and it is fenced.
//
// guard:open-reach. Also if it is faster than the wall's row.
//
// guard:wall-far. Then it is the far seal that stops it, and none is put after that.
func TestLeaderThatWinsEveryRace(t *testing.T) {
	for _, c := range []struct {
		often int
		limit time.Duration
		after int // seals after the one that ends the epoch: as many as were in flight, or fewer
	}{{1, 20 * time.Millisecond, wide}, {4, 20 * time.Millisecond, wide}, {64, 20 * time.Millisecond, wide}, {500, 100 * time.Millisecond, 8}} {
		t.Run(fmt.Sprint(c.often), bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, &writer.Options{InFlight: 1, Window: 4})
			acked := e.outrun("b", a, c.often)
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			b, err := e.tryFor(ctx, "b", 2, &writer.Options{InFlight: 1, Window: 1})
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

// lateWall opens a writer against a leader that takes slots 2 to 4 while the first seal is on
// its way, and holds up seals of its wall, but the first ones. Meanwhile the leader gets slot 5 after all, and
// all that can be folded is, and is pruned: the seal on slot 5 falls into the hole.
func lateWall(t *testing.T, e *env, held string, skip int, check func()) {
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
	e.fault(faultstore.Rule{Client: "b", Kind: faultstore.Put, Prefix: held, Skip: skip, Times: -1, Fault: faultstore.Fault{Hold: gate}})
	var b *writer.Writer
	var err error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		b, err = e.try("b", 2, &writer.Options{InFlight: 1, Window: 1})
	}()
	synctest.Wait()
	check()
	e.append(a, "4")
	e.compact()
	e.gone(at(1, 5))
	close(gate)
	<-opened
	if err != nil {
		t.Fatal(err)
	}
	if e.header(at(1, 5)).Next != 2 || e.header(at(1, 6)).Next != 2 {
		t.Fatal("the late seal was not applied, so this tests nothing")
	}
	if b.Recovered().Offset != 5 {
		t.Errorf("recovered %+v", b.Recovered())
	}
	e.append(b, "b")
	e.holds("0", "1", "2", "3", "4", "b")
}

// guard:open-look, guard:open-folded. The manifest is read while slot 5 is not decided, and all
// others before the seal are. That reading tells nothing of slot 5. The compactor has
// followed the seal after it.
func TestSealOfTheWallThatIsLate(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		lateWall(t, e, layout.DataKey(at(1, 5)), 0, func() {
			readings := 0
			got := e.sequence("b")
			for _, request := range got {
				if request == "list manifest/" {
					readings++
				}
			}
			if e.header(at(1, 6)).Next != 2 || readings != 2 {
				t.Fatalf("this is not the wall that was to be tested: %q", got)
			}
		})
	})
}

// All of the wall is late. Its first seal is junk, the one after it is on the chain, and not
// folded; both have one nonce.
func TestWallAcrossAHole(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		lateWall(t, e, layout.DataPrefix, 1, func() {})
	})
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
			_, err := e.try("b", 2, &writer.Options{InFlight: 1, Window: 1})
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
			next, err := e.try(client, epoch, opts)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(sealing); took > 8*trip {
				t.Errorf("epoch %d was open %v after its first seal, that is %v round trips", epoch, took, took/trip)
			}
			<-over
			abandon(w)
			w = next
		}
		abandon(w)
	})
}
