package chain

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// delayed counts GETs, and delays each.
type delayed struct {
	store.Store
	mu   sync.Mutex
	time func(key string) time.Duration
	gets int
}

func (d *delayed) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	d.mu.Lock()
	d.gets++
	wait := d.time(key)
	d.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, &store.Error{Op: "get", Key: key, Err: ctx.Err()}
	}
	return d.Store.Get(ctx, key, o)
}

// TestThrifty: a thrifty walk stays within the bound of requests, and takes little longer than one
// that is not. A deposed leader leaves void objects after the seal, and some requests take long. Once
// the void objects that a walk read while it waited for a seal made it ask for one slot after
// the other, for thousands of objects.
func TestThrifty(t *testing.T) {
	const mean = 20 * time.Millisecond
	constant := func(*rand.Rand) time.Duration { return mean }
	jitter := func(random *rand.Rand) time.Duration {
		d := time.Duration(random.ExpFloat64() * float64(mean))
		if random.IntN(100) == 0 {
			d += 150 * time.Millisecond
		}
		return d
	}
	about := func(n, by int) func(*rand.Rand) int {
		return func(random *rand.Rand) int { return n - by + random.IntN(2*by+1) }
	}
	for name, tt := range map[string]struct {
		epochs int
		length func(*rand.Rand) int // nil: 70, each ninth 5, and a last one of 10,000
		void   int                  // objects after each seal
		time   func(*rand.Rand) time.Duration
		slower float64 // at most so many times as slow
	}{
		"long, void, jitter":          {6, about(1000, 0), 256, jitter, 1.25},
		"long, jitter":                {6, about(1000, 0), 0, jitter, 1.25},
		"equal, void, jitter":         {20, about(300, 0), 64, jitter, 1.25},
		"equal, jitter":               {20, about(300, 0), 0, jitter, 1.25},
		"some 150, void":              {60, about(150, 50), 64, constant, 1.4},
		"some 150":                    {60, about(150, 50), 0, constant, 1.4},
		"some 150, void, jitter":      {60, about(150, 50), 64, jitter, 1.25},
		"1 to 100, void, jitter":      {100, about(50, 49), 64, jitter, 1.25},
		"1 to 100, jitter":            {100, about(50, 49), 0, jitter, 1.25},
		"exponential, void, jitter":   {60, func(r *rand.Rand) int { return int(150 * r.ExpFloat64()) }, 64, jitter, 1.25},
		"70, each ninth 5":            {200, func(r *rand.Rand) int { return 5 + 65*min(r.IntN(9), 1) }, 0, jitter, 1.25},
		"short ones, then long, void": {40, func(r *rand.Rand) int { return 2 + r.IntN(20)*r.IntN(20)*r.IntN(3) }, 64, jitter, 1.25},
		"waste, then long":            {37, nil, 0, constant, 2.5},
		"50 each, void, jitter":       {200, about(50, 0), 64, jitter, 1.25},
	} {
		if !test.Whole() && len(name)%3 > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, random := memstore.New(nil), rand.New(rand.NewPCG(1, 2))
				l := newLog(t, inner).seal(1)
				stored := 1
				for e := range tt.epochs {
					n := 70
					switch {
					case tt.length != nil:
						n = tt.length(random)
					case e == tt.epochs-1:
						n = 10_000
					case e%9 == 8:
						n = 5
					}
					for range n {
						l.data(1)
					}
					seal := l.at.Position
					l.seal(fence.Epoch(e + 2))
					for i := range tt.void {
						p := fence.Position{Epoch: seal.Epoch, Seq: seal.Seq + 1 + uint64(i)}
						if _, err := inner.Put(t.Context(), layout.DataKey(p), []byte("void"), nil); err != nil {
							t.Fatal(err)
						}
					}
					stored += tt.void
				}
				stored += len(l.keys) - 1
				read := func(thrifty bool) (time.Duration, int) {
					random := rand.New(rand.NewPCG(3, 4))
					st := &delayed{Store: inner, time: func(string) time.Duration { return tt.time(random) }}
					s := source(st)
					s.Thrifty = thrifty
					began := time.Now()
					if keys, _, end, err := collect(t, s, frame.Start()); err != nil || len(keys) != len(l.keys) || !end.Equal(l.at) {
						t.Fatalf("%d objects, %v", len(keys), err)
					}
					return time.Since(began), st.gets
				}
				fast, wasteful := read(false)
				took, gets := read(true)
				t.Logf("%d objects, %d with void ones: %v, %d GETs (%.2f; %.2f); fast: %v, %d GETs: %.2f times", len(l.keys), stored, took, gets,
					float64(gets)/float64(stored), float64(gets)/float64(len(l.keys)), fast, wasteful, took.Seconds()/fast.Seconds())
				if most := stored + 2*DefaultAhead + len(l.keys)/thrift; gets > most {
					t.Errorf("%d GETs, at most %d are right", gets, most)
				}
				if took.Seconds() > tt.slower*fast.Seconds() {
					t.Errorf("it takes %.2f times as long", took.Seconds()/fast.Seconds())
				}
			})
		})
	}
}

// TestNothingAfterASeal: a walk that has the seal already, and waits for an object before it, asks for
// no slot after it.
func TestNothingAfterASeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(nil)
		l := newLog(t, inner).seal(1)
		var slow string
		for i := range 150 {
			if i == 100 {
				slow = layout.DataKey(l.at.Position)
			}
			l.data(1)
		}
		p := l.at.Position
		l.seal(2)
		for range 1000 {
			p.Seq++
			if _, err := inner.Put(t.Context(), layout.DataKey(p), []byte("void"), nil); err != nil {
				t.Fatal(err)
			}
		}
		st := &delayed{Store: inner}
		st.time = func(key string) time.Duration {
			if key == slow {
				return time.Second
			}
			return 20 * time.Millisecond
		}
		if keys, _, _, err := collect(t, source(st), frame.Start()); err != nil || len(keys) != len(l.keys) {
			t.Fatalf("%d objects, %v", len(keys), err)
		}
		// When the seal arrives, others are in flight, and perhaps as many again were asked for while
		// it was not known.
		if most := len(l.keys) + 2*DefaultAhead; st.gets > most {
			t.Errorf("%d GETs for %d objects, at most %d are right", st.gets, len(l.keys), most)
		}
	})
}
