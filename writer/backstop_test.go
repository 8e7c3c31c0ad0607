package writer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// hurried makes a GET take ten times as long as a PUT, so that a leader with 16 requests in
// flight appends more than twice as fast as an opener reads, and lets it append for a while.
func hurried(e *env, leader *writer.Writer) (over chan struct{}) {
	e.Faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
		trip := time.Millisecond
		if op.Kind == faultstore.Get {
			trip = 10 * time.Millisecond
		}
		_ = clock.Sleep(ctx, clock.Go(), trip)
	})
	over = make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := leader.AppendAsync(context.Background(), recs("x")); err != nil {
				return
			}
		}
	}()
	time.Sleep(50 * time.Millisecond)
	return over
}

var fast = &writer.Options{BatchBytes: 1, NoCompress: true, Checkpoint: -1}

// A leader that appends faster than its objects are read is stopped all the same, and nothing of what
// it was told is lost.
//
// guard:open-backstop. Without the backstop: a leader appends faster than the opener reads; the walk
// never comes to an empty slot; the takeover never ends.
func TestLeaderFasterThanReading(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var acked atomic.Uint64
		opts := *fast
		opts.Hooks.Acknowledged = func(writer.Acknowledgement) { acked.Add(1) }
		a := e.open("a", 1, &opts)
		over := hurried(e, a)
		// Nobody else is in the log, so a seal far ahead is all that can stop it.
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		opener := *fast
		opener.Window = 16
		b, err := e.tryFor(ctx, "b", 2, &opener)
		if err != nil {
			t.Fatal(err)
		}
		<-over
		e.fenced(a.Err(), 2)
		if got, told := b.Recovered().Offset, acked.Load(); got < told || told < 1000 {
			t.Errorf("acknowledged were %d, recovered %d", told, got)
		}
		e.Faulty.SetBefore(nil)
		e.append(b, "b")
		if all := e.Contents(); len(all) != int(b.Recovered().Offset)+1 || all[len(all)-1] != "b" {
			t.Errorf("the log holds %d records, recovered were %d", len(all), b.Recovered().Offset)
		}
	})
}

// small is an opener that soon finds that there is much to read.
var small = &writer.Options{Concurrency: 1, Window: 2, BatchBytes: 1, NoCompress: true, Checkpoint: -1}

// late lets one of the first leader's objects come to b a second late, so that a seal
// ahead is there before.
func late(e *env) {
	e.Faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
		if op.Client == "b" && op.Kind == faultstore.Get && op.Key == layout.DataKey(at(1, 35)) {
			_ = clock.Sleep(ctx, clock.Go(), time.Second)
		}
	})
}

// A leader that has died is not there to be stopped. The seal ahead of it is void, and is
// pruned with all else that is.
//
// There is one seal ahead, and no second one.
//
// tuning:wall-far. One seal is enough to stop the leader. Without this check: the opener's seal is
// applied in slot 65; the opener sends more seals, each twice as far ahead, until its takeover ends;
// each one costs a request and an object, and all of them are void.
func TestBackstopAgainstTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, fast)
		for range 40 {
			e.append(a, "x")
		}
		abandon(a)
		late(e)
		b := e.open("b", 2, small)
		if b.Recovered().Offset != 40 || e.header(at(1, 41)).Next != 2 {
			t.Fatalf("recovered %+v", b.Recovered())
		}
		far := at(1, 33+32) // it had read 32 objects
		if e.header(far).Next != 2 {
			t.Fatal("there is no seal ahead, so this tests nothing")
		}
		if after := e.keys(at(1, 41)); !slices.Equal(after, []string{layout.DataKey(far)}) {
			t.Errorf("beyond the tail there are %d seals: %v", len(after), after)
		}
		for range 20 {
			e.append(b, "y")
		}
		e.compact()
		time.Sleep(100 * 24 * time.Hour)
		e.compact()
		if got := e.header(far); got.Kind != 0 {
			t.Errorf("the seal in %v is still there", far)
		}
		if all := e.Contents(); len(all) != 60 {
			t.Errorf("the log holds %d records", len(all))
		}
	})
}

// tuning:wall-far. Another opener's seal is in the slot already. It stops the leader as well, and
// none is sent after it.
func TestBackstopOfAnotherIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, fast)
		for range 40 {
			e.append(a, "x")
		}
		far := at(1, 33+32)
		e.seal(far, 2)
		late(e)
		b := e.open("b", 3, small)
		if b.Recovered().Offset != 40 {
			t.Errorf("recovered %+v", b.Recovered())
		}
		want := []string{"put " + logtest.Short(layout.DataKey(far)), "put " + logtest.Short(layout.DataKey(at(1, 41)))}
		seals := slices.DeleteFunc(e.sequence("b"), func(s string) bool { return !strings.HasPrefix(s, "put "+layout.DataPrefix) })
		if !slices.Equal(seals, want) {
			t.Errorf("it has sent %d seals, %v; want %v", len(seals), seals, want)
		}
	})
}

// The opener dies. The leader goes on up to the seal, hears of its successor, and the
// next opener follows the seal into an epoch without anything.
func TestBackstopOfTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, fast)
		for range 40 {
			e.append(a, "x")
		}
		ctx, cancel := context.WithCancel(t.Context())
		e.Faulty.SetAfter(func(_ context.Context, op faultstore.Op, err error) {
			if op.Client == "b" && op.Kind == faultstore.Put && err == nil {
				cancel()
			}
		})
		late(e)
		if b, err := e.tryFor(ctx, "b", 2, small); err == nil {
			t.Fatalf("it recovered %+v", b.Recovered())
		}
		n := 40
		for ; n < 100; n++ {
			if _, err := a.Append(t.Context(), recs("x")); err != nil {
				e.fenced(err, 2)
				break
			}
		}
		if n == 40 || n == 100 {
			t.Fatalf("the leader appended %d records, so this tests nothing", n)
		}
		c := e.open("c", 3, small)
		if c.Recovered().Offset != uint64(n) {
			t.Errorf("recovered %+v, appended %d", c.Recovered(), n)
		}
		e.append(c, "c")
		if all := e.Contents(); len(all) != n+1 {
			t.Errorf("the log holds %d records, want %d", len(all), n+1)
		}
	})
}

// The seal ahead comes late, and falls into a hole: what was there is folded and pruned. The opener
// starts over, and needs another, against the same leader.
//
// guard:open-backstop-anew. An opener begins its walk again when the floor has moved. The backstop is a
// seal far ahead, which stops a fast leader. Without this: the backstop is slow; meanwhile the leader
// passes its slot, and a compactor prunes that slot; the backstop is applied there, where no leader
// comes any more; the next walk relies on it, and sends none; the leader appends faster than the opener
// reads; the takeover never ends.
func TestBackstopInAHole(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, fast)
		for range 40 {
			e.append(a, "x")
		}
		var late, over = atomic.Bool{}, make(chan struct{})
		e.Faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
			trip := time.Millisecond
			switch {
			case op.Client == "b" && op.Kind == faultstore.Put && op.Key == layout.DataKey(at(1, 65)) && late.CompareAndSwap(false, true):
				for range 60 {
					e.append(a, "x")
				}
				e.compact()
				e.compact()
				e.gone(at(1, 65))
				go func() {
					defer close(over)
					for {
						if _, err := a.AppendAsync(context.Background(), recs("x")); err != nil {
							return
						}
					}
				}()
				trip = 50 * time.Millisecond
			case op.Client == "b" && op.Kind == faultstore.Get && op.Key == layout.DataKey(at(1, 35)) && !late.Load():
				trip = 100 * time.Millisecond
			case op.Kind == faultstore.Get:
				trip = 10 * time.Millisecond
			}
			_ = clock.Sleep(ctx, clock.Go(), trip)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		b, err := e.tryFor(ctx, "b", 2, small)
		e.Faulty.SetBefore(nil)
		if err != nil {
			abandon(a)
			<-over
			t.Fatal(err)
		}
		<-over
		e.fenced(a.Err(), 2)
		if e.header(at(1, 65)).Next != 2 {
			t.Error("the late seal was not applied, so this tests nothing")
		}
		e.append(b, "b")
		if all := e.Contents(); len(all) != int(b.Recovered().Offset)+1 {
			t.Errorf("the log holds %d records, recovered were %d", len(all), b.Recovered().Offset)
		}
	})
}

// A store that refuses the seal ahead ends the opening: what is read meanwhile may never end.
func TestBackstopIsDenied(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, fast)
		over := hurried(e, a)
		e.fault(faultstore.Rule{Client: "b", Kind: faultstore.Put, Prefix: layout.DataPrefix, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := e.tryFor(ctx, "b", 2, small)
		e.Faulty.SetBefore(nil)
		abandon(a)
		<-over
		if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "sealing") {
			t.Errorf("got %v", err)
		}
	})
}

// The seal ahead is not heard of before the log is open, and lands months later, beyond the
// tail or in a slot that has been pruned. It stops nobody: the zombie is not told anything,
// the next leader begins where the log ends, and a compactor sweeps it. The months are
// those of the bubble's clock.
func TestBackstopThatIsLate(t *testing.T) {
	for name, n := range map[string]int{"beyond the tail": 40, "in a hole": 80} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, fast)
			for range 40 {
				e.append(a, "x")
			}
			far := at(1, 65)
			e.fault(faultstore.Rule{Client: "b", Kind: faultstore.Put, Prefix: layout.DataKey(far), Times: 1, Fault: faultstore.Fault{Hang: true, Drop: true, Late: &faultstore.Late{After: 2500 * time.Hour}}})
			late(e)
			go func() {
				time.Sleep(500 * time.Millisecond)
				for range n - 40 {
					e.append(a, "x")
				}
			}()
			b := e.open("b", 2, small)
			e.append(b, "b")
			if got := b.Recovered().Offset; got != uint64(n) {
				t.Fatalf("recovered %d", got)
			}
			time.Sleep(100 * 24 * time.Hour)
			e.compact()
			e.compact()
			if n > 65 {
				e.gone(far)
			}
			time.Sleep(2500 * time.Hour)
			e.Faulty.Land(t.Context())
			if e.header(far).Next != 2 {
				t.Fatal("it has not landed, so this tests nothing")
			}
			_, err := a.Append(t.Context(), recs("zombie"))
			e.fenced(err, 2)
			c := e.open("c", 3, small)
			e.append(c, "c")
			e.compact()
			time.Sleep(100 * 24 * time.Hour)
			e.compact()
			if got := e.header(far); got.Kind != 0 {
				t.Error("it is still there")
			}
			if all := e.Contents(); len(all) != n+2 || c.Recovered().Offset != uint64(n)+1 {
				t.Errorf("the log holds %d records, recovered were %+v", len(all), c.Recovered())
			}
		}))
	}
}
