package chain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestWalkFollowsSeals(t *testing.T) {
	st, inner := fixture.Faults(nil)
	l := newLog(t, inner)
	l.seal(1)
	for range 40 {
		l.data(10, 0, 30)
	}
	l.seal(4).seal(5).data().data(7).seal(9)
	// What stands behind a seal is void, whatever it is.
	for seq, body := range map[uint64]string{42: "junk", 43: "junk", 60: ""} {
		if _, err := inner.Put(t.Context(), layout.DataKey(fence.Position{Epoch: 1, Seq: seq}), []byte(body), nil); err != nil {
			t.Fatal(err)
		}
	}
	before := runtime.NumGoroutine()
	keys, records, end, err := collect(t, source(st), frame.Start())
	if err != nil || !slices.Equal(keys, l.keys) || records != 121 || !end.Equal(l.at) {
		t.Errorf("%d objects, %d records to %+v, %v; there are %d to %+v", len(keys), records, end, err, len(l.keys), l.at)
	}
	fixture.Quiet(t, st, before)
	// From any point on.
	at := frame.Start()
	for i := range l.keys {
		keys, _, end, err := collect(t, source(st), at)
		if err != nil || !slices.Equal(keys, l.keys[i:]) || !end.Equal(l.at) {
			t.Fatalf("from %v: %v, %v", at.Position, keys, err)
		}
		step, err := source(st).Read(t.Context(), at)
		if err != nil || step.Frame.Position != at.Position {
			t.Fatalf("%+v, %v", step, err)
		}
		at = step.To
	}
	if _, err := source(st).Read(t.Context(), at); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}

// TestRequests: a walk from the tail costs one request, and what is fetched ahead
// doubles with each object found, so that at most as much is asked for in vain. Where one
// object is expected at most, it doubles from the second one on.
func TestRequests(t *testing.T) {
	for i := range 40 {
		objects, few := i/2, i%2 == 1
		st, inner := fixture.Faults(nil)
		l := newLog(t, inner).seal(1)
		from := l.at
		for range objects {
			l.data(5)
		}
		s := source(st)
		s.Ahead, s.Few = 8, few
		keys, _, _, err := collect(t, s, from)
		if err != nil || len(keys) != objects {
			t.Fatalf("%d, %v", len(keys), err)
		}
		doubled := objects
		if few {
			doubled = max(objects-1, 0)
		}
		// Those in vain are cancelled, perhaps before they have begun.
		if n, most := st.Counts().Of("", ""), objects+min(1<<doubled, 8); n <= objects || n > most {
			t.Errorf("few %t: %d objects took %d requests, at most %d are right", few, objects, n, most)
		}
	}
	// A seal begins a new epoch: how much there is of it is not known.
	st, inner := fixture.Faults(nil)
	l := newLog(t, inner)
	for e := range fence.Epoch(10) {
		l.seal(e + 1)
	}
	if _, _, _, err := collect(t, source(st), frame.Start()); err != nil {
		t.Fatal(err)
	}
	if n := st.Counts().Of("", ""); n != 11 {
		t.Errorf("10 seals took %d requests", n)
	}
}

// TestWalkBrokenOff by its caller at any object: what is under way is cancelled
// and waited for.
func TestWalkBrokenOff(t *testing.T) {
	st, inner := fixture.Faults(nil)
	l := newLog(t, inner).seal(1)
	for i := range 12 {
		l.data(10, (i%3)*Head)
	}
	// Requests far ahead never get an answer by themselves.
	st.SetHook(func(op faultstore.Op) faultstore.Fault {
		if p, _ := layout.ParseDataKey(op.Key); p.Seq > 10 {
			return faultstore.Fault{Hang: true}
		}
		return faultstore.Fault{}
	})
	for n := 1; n <= 11; n++ {
		before := runtime.NumGoroutine()
		seen := 0
		for _, err := range source(st).Walk(t.Context(), frame.Start()) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen == n {
				break
			}
		}
		if seen != n {
			t.Errorf("%d of %d", seen, n)
		}
		fixture.Quiet(t, st, before)
	}
	// Or by its context.
	before := runtime.NumGoroutine()
	cause := errors.New("had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for step, err := range source(st).Walk(ctx, frame.Start()) {
		if last = err; err == nil && step.From.Position.Seq == 5 {
			cancel(cause)
		}
	}
	if !errors.Is(last, context.Canceled) || errors.Is(last, store.ErrNotFound) {
		t.Errorf("it ended with %v", last)
	}
	fixture.Quiet(t, st, before)
}

// slow lets requests for some slots go only when their context ends, and then not
// at once.
type slow struct {
	store.Store
	slots  func(fence.Position) bool
	active *atomic.Int64
}

func (s slow) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	s.active.Add(1)
	defer s.active.Add(-1)
	if p, _ := layout.ParseDataKey(key); s.slots(p) {
		<-ctx.Done()
		time.Sleep(time.Millisecond)
		return nil, &store.Error{Op: "get", Key: key, Err: ctx.Err()}
	}
	return s.Store.Get(ctx, key, opts)
}

// TestWalkWaits for what it has cancelled: behind a seal, and when it ends.
func TestWalkWaits(t *testing.T) {
	inner := memstore.New(nil)
	l := newLog(t, inner).seal(1)
	for range 7 {
		l.data(1)
	}
	l.seal(2).data(1).data(1).data(1).data(1)
	var active atomic.Int64
	// Void: behind the seal of epoch 1, where requests may take for ever. And the
	// last objects of epoch 2.
	st := slow{inner, func(p fence.Position) bool { return p.Epoch == 1 && p.Seq > 8 || p.Epoch == 2 && p.Seq > 3 }, &active}
	n := 0
	for step, err := range source(st).Walk(t.Context(), frame.Start()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if step.From.Position == (fence.Position{Epoch: 2, Seq: 3}) {
			break
		}
	}
	if n != 12 || active.Load() != 0 {
		t.Errorf("after %d objects, %d requests are still under way", n, active.Load())
	}
}

// TestLargeObjects take two requests: the rest is asked for when its turn comes.
func TestLargeObjects(t *testing.T) {
	const fits = Head - frame.HeaderSize // payload of an object that just fits
	st, inner := fixture.Faults(nil)
	l := newLog(t, inner).seal(1)
	from := l.at
	requests := 0
	for _, tt := range []struct{ size, requests int }{
		{fits - 3, 1}, {fits - 2, 2}, {fits - 1, 2}, {3 << 20, 2}, {1, 1}, {Head, 2},
	} {
		l.data(tt.size)
		requests += tt.requests
	}
	keys, records, _, err := collect(t, source(st), from)
	if err != nil || len(keys) != 6 || records != 6 {
		t.Fatalf("%v, %d records, %v", keys, records, err)
	}
	st.ResetCounts()
	at := from
	for range keys {
		step, err := source(st).Read(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		at = step.To
	}
	if n := st.Counts().Of("", ""); n != requests {
		t.Errorf("%d requests, want %d", n, requests)
	}
	if !at.Equal(l.at) || st.OpenBodies() != 0 {
		t.Errorf("%+v, %d bodies", at, st.OpenBodies())
	}
}

// TestRestIsAnothers: between the head and the rest of a large object it is
// pruned, and a zombie puts something in its place. That is no damage: the slot is
// as good as empty, and the manifest tells that the floor has passed it.
//
// guard:rest-match. A walk reads a large log object with two GETs: the first part, and then the rest.
// Between the two the object may be pruned, and something else written into the hole. Without this
// check: the walk reads the first part; the object is folded and pruned; zombie Z writes another object
// into the hole; the walk joins the rest of Z's object to the first part; the checksum is wrong, and
// the walk reports a damaged object, although only the floor has moved.
func TestRestIsAnothers(t *testing.T) {
	for name, replace := range map[string]func(*memstore.Store, string, []byte) error{
		"gone": func(st *memstore.Store, key string, _ []byte) error { return st.Delete(context.Background(), key) },
		"same length": func(st *memstore.Store, key string, b []byte) error {
			for i := range b[Head:] {
				b[Head+i] ^= 1
			}
			_, err := st.Put(context.Background(), key, b, nil)
			return err
		},
		"same bytes": func(st *memstore.Store, key string, b []byte) error {
			_, err := st.Put(context.Background(), key, b, nil)
			return err
		},
		"shorter": func(st *memstore.Store, key string, b []byte) error {
			_, err := st.Put(context.Background(), key, b[:1000], nil)
			return err
		},
		"cut": func(st *memstore.Store, key string, b []byte) error {
			_, err := st.Put(context.Background(), key, b[:Head+10], nil)
			return err
		},
		"longer": func(st *memstore.Store, key string, b []byte) error {
			_, err := st.Put(context.Background(), key, append(b, b...), nil)
			return err
		},
	} {
		for _, size := range []int{Head * 3, Head * 17} {
			st, inner := fixture.Faults(nil)
			l := newLog(t, inner).seal(1).data(5)
			large := l.at
			l.data(size)
			l.data(5)
			key := layout.DataKey(large.Position)
			obj, err := inner.Get(t.Context(), key, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(obj.Body)
			if err != nil {
				t.Fatal(err)
			}
			gets := 0
			var mu sync.Mutex
			st.SetBefore(func(_ context.Context, op faultstore.Op) {
				mu.Lock()
				defer mu.Unlock()
				if op.Key != key {
					return
				}
				if gets++; gets%2 == 0 {
					if err := replace(inner, key, bytes.Clone(body)); err != nil {
						t.Error(err)
					}
				}
			})
			keys, _, end, err := collect(t, source(st), frame.Start())
			if err != nil || len(keys) != 2 || !end.Equal(large) || gets != 2 {
				t.Errorf("%s: %v to %+v, %v after %d GETs", name, keys, end, err, gets)
			}
			if name == "shorter" || name == "gone" {
				continue // its head tells already
			}
			if _, err := source(st).Read(t.Context(), large); !errors.Is(err, store.ErrNotFound) {
				if name != "same bytes" && name != "same length" && name != "longer" && name != "cut" || gets != 4 {
					t.Errorf("%s: Read: %v", name, err)
				}
			}
		}
	}
}

// TestCorrupt: damage ends the walk with an error that names the object, and what
// is before it is read.
func TestCorrupt(t *testing.T) {
	other := func() *log {
		l := newLog(t, memstore.New(nil)).seal(1).data(5).data(5)
		return l
	}
	object := func(l *log, key string) []byte {
		obj, err := l.st.Get(t.Context(), key, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(obj.Body)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key := layout.DataKey(fence.Position{Epoch: 1, Seq: 2})
	foreign := newLog(t, memstore.New(nil)).seal(1).data(5).data(9)
	tests := map[string]struct {
		body []byte
		want error
		says string
	}{
		"empty":        {nil, fence.ErrCorrupt, "is empty"},
		"short":        {[]byte("FNCP"), fence.ErrCorrupt, "too short"},
		"foreign":      {bytes.Repeat([]byte("x"), 500), fence.ErrCorrupt, "does not begin with"},
		"another slot": {object(other(), layout.DataKey(fence.Position{Epoch: 1, Seq: 1})), fence.ErrCorrupt, "says that it is"},
		"cut off":      {object(foreign, key)[:130], fence.ErrCorrupt, "the body has 2 bytes"},
		"too long":     {append(object(foreign, key), 0), fence.ErrCorrupt, "the body has"},
		"too large":    {make([]byte, 2<<20), fence.ErrCorrupt, "the log allows"},
	}
	for name, tt := range tests {
		st, inner := fixture.Faults(nil)
		newLog(t, inner).seal(1).data(5).data(9).data(5)
		if _, err := inner.Put(t.Context(), key, tt.body, nil); err != nil {
			t.Fatal(err)
		}
		s := source(st)
		s.Limits = fence.Limits{Object: 1 << 20, Record: 1 << 19, Cursor: 10}
		before := runtime.NumGoroutine()
		keys, _, _, err := collect(t, s, frame.Start())
		if len(keys) != 2 || !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.says) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %d objects, then %v", name, len(keys), err)
		}
		fixture.Quiet(t, st, before)
	}
	// Every flipped bit of an object is found.
	inner := memstore.New(nil)
	l := newLog(t, inner).seal(1).data(5)
	from := l.at
	l.data(20)
	if _, err := source(inner).Read(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	good := object(l, key)
	for i := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := inner.Put(t.Context(), key, bad, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := source(inner).Read(t.Context(), from); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
}

// TestHugeClaim: an object that is larger than any frame of the log is not read.
func TestHugeClaim(t *testing.T) {
	for _, size := range []int64{1 << 31, 1 << 62} {
		st := claims{memstore.New(nil), size}
		newLog(t, st.Store).seal(1)
		if _, err := source(st).Read(t.Context(), frame.Start()); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "the log allows") {
			t.Errorf("%d: %v", size, err)
		}
		_, _, _, err := collect(t, source(st), frame.Start())
		if !errors.Is(err, fence.ErrCorrupt) {
			t.Errorf("%d: %v", size, err)
		}
	}
}

// claims says of every object that it is of some size, and has that many bytes.
type claims struct {
	store.Store
	size int64
}

func (c claims) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := c.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Size = c.size
		obj.Body = io.NopCloser(io.MultiReader(obj.Body, io.LimitReader(zeros{}, opts.Length-128)))
	}
	return obj, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestBudget: of large objects no more is fetched ahead than the budget allows, but the
// one whose turn it is comes in any case; and at least half of what it allows.
func TestBudget(t *testing.T) {
	const size, objects = 1 << 20, 40
	for _, budget := range []int64{size / 2, 3 * (size + 1000), 0} {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New(nil)
			l := newLog(t, inner).seal(1)
			for range 3 {
				l.data(1)
			}
			for range objects {
				l.data(size)
			}
			var mu sync.Mutex
			beyond := map[string]int64{} // their heads, asked for and not yet delivered
			most, lately := int64(0), int64(0)
			s := source(asked{inner, func(key string, o *store.GetOptions) {
				mu.Lock()
				defer mu.Unlock()
				if key < layout.DataKey(l.at.Position) {
					beyond[key] = max(o.Offset+o.Length-Head, 0)
				}
				sum := int64(0)
				for _, n := range beyond {
					sum += n
				}
				most, lately = max(most, sum), max(lately, sum)
			}})
			s.Budget = budget
			for step, err := range s.Walk(t.Context(), frame.Start()) {
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				delete(beyond, layout.DataKey(step.From.Position))
				if step.From.Position.Seq == objects/2 {
					lately = 0 // what was used before has to come back
				}
				mu.Unlock()
				synctest.Wait() // heads arrive, so that their rests can begin
			}
			allowed := max(budget, size) + size
			if budget == 0 {
				allowed = DefaultBudget
			}
			if most > allowed || lately < min(budget/2, objects/2*size) {
				t.Errorf("budget %d: %d bytes at once, %d in the second half", budget, most, lately)
			}
		})
	}
}

// asked tells of each GET.
type asked struct {
	store.Store
	tell func(key string, o *store.GetOptions)
}

func (a asked) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	a.tell(key, o)
	return a.Store.Get(ctx, key, o)
}

// TestAlikeAtOnce: of large objects that are about alike all but the first few take
// one request, and so do small ones behind them.
func TestAlikeAtOnce(t *testing.T) {
	inner := memstore.New(nil)
	l := newLog(t, inner).seal(1)
	const n = 60
	for i := range n {
		l.data(1<<20 + i*1000)
	}
	for range n {
		l.data(100)
	}
	requests := 0
	var mu sync.Mutex
	s := source(asked{inner, func(string, *store.GetOptions) {
		mu.Lock()
		defer mu.Unlock()
		requests++
	}})
	s.Ahead, s.Budget = 4, 16<<20
	keys, _, end, err := collect(t, s, frame.Start())
	// One for each, and a second one while it was not known how large they are; and some beyond
	// the end.
	if err != nil || len(keys) != 2*n+1 || !end.Equal(l.at) || requests > 2*n+1+8 {
		t.Errorf("%d objects took %d requests, %v", len(keys), requests, err)
	}
}

// TestLargeIsHeldOnce: a large object is allocated once, besides what came of it before
// its size was known and believed.
func TestLargeIsHeldOnce(t *testing.T) {
	const size = 15 << 20
	inner := memstore.New(nil)
	l := newLog(t, inner).seal(1)
	from := l.at
	l.data(size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := source(inner).Read(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > size+10<<20 {
		t.Errorf("%d bytes were allocated for %d", n, size)
	}
}

// TestMemory: what was delivered is not kept. The queue's array once kept the
// bodies of dozens of objects, which with large ones are gigabytes.
func TestMemory(t *testing.T) {
	const size, objects = 512 << 10, 48
	inner := memstore.New(nil)
	l := newLog(t, inner).seal(1)
	for range objects {
		l.data(size)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := source(inner)
	s.Ahead, s.Budget = 8, 2*size
	before := heap()
	n := 0
	for _, err := range s.Walk(t.Context(), frame.Start()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%16 != 0 {
			continue
		}
		// The one at hand, two of the budget and one over it, and eight heads; each
		// perhaps in a buffer that had to grow.
		if now := heap(); now > before+2*(4*size+8*Head) {
			t.Errorf("after %d objects %d KiB are kept", n, (now-before)>>10)
		}
	}
}

// TestWalkOverFaults reads what is there, in order, on a store that fails,
// delays and breaks off.
func TestWalkOverFaults(t *testing.T) {
	for seed := range uint64(3) {
		st, inner := fixture.Faults(&faultstore.Options{Seed: seed, Rates: faultstore.Rates{Fail: 0.1, Break: 0.2, MaxDelay: 300 * time.Microsecond}})
		l := newLog(t, inner).seal(1)
		rng := rand.New(rand.NewPCG(seed, 0))
		for e := fence.Epoch(1); e < 5; e++ {
			for range rng.IntN(40) {
				l.data(rng.IntN(50), max(rng.IntN(20)-18, 0)*3*Head)
			}
			l.seal(e + 1)
		}
		before := runtime.NumGoroutine()
		keys, _, end, err := collect(t, source(st), frame.Start())
		if err != nil || !slices.Equal(keys, l.keys) || !end.Equal(l.at) {
			t.Errorf("seed %d: %d objects of %d, %v", seed, len(keys), len(l.keys), err)
		}
		fixture.Quiet(t, st, before)
	}
}

// TestErrorsEnd the walk and are not taken for the tail.
func TestErrorsEnd(t *testing.T) {
	st, inner := fixture.Faults(nil)
	l := newLog(t, inner).seal(1)
	for range 10 {
		l.data(1)
	}
	st.SetHook(faultstore.Script(faultstore.Rule{Prefix: layout.DataKey(fence.Position{Epoch: 1, Seq: 6}), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	before := runtime.NumGoroutine()
	keys, _, _, err := collect(t, source(st), frame.Start())
	if len(keys) != 6 || !errors.Is(err, store.ErrDenied) {
		t.Errorf("%d objects, then %v", len(keys), err)
	}
	fixture.Quiet(t, st, before)
}
