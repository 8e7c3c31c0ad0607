package chain

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// metered counts what its bodies gave, until it is used. Some objects are late.
type metered struct {
	store.Store
	late map[string]time.Duration

	mu         sync.Mutex
	gets       int
	wanted     int // asked for and not used yet
	mostWanted int
	held, most int64
}

func (m *metered) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	m.mu.Lock()
	m.gets++
	m.wanted++
	m.mostWanted = max(m.mostWanted, m.wanted)
	d := m.late[key]
	m.mu.Unlock()
	if err := clock.Sleep(ctx, clock.Go(), d+time.Millisecond); err != nil {
		return nil, err
	}
	obj, err := m.Store.Get(ctx, key, o)
	if err == nil {
		obj.Body = &meteredBody{obj.Body, m}
	}
	return obj, err
}

type meteredBody struct {
	io.ReadCloser
	*metered
}

func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.used(-int64(n))
	return n, err
}

func (m *metered) used(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= n
	m.most = max(m.most, m.held)
}

// walkLate walks over n objects of one size and calls each after each. Every third answer takes
// 20 ms longer, and one is late.
// The walk may ask for over bytes beyond its budget of 4 MiB.
func walkLate(t *testing.T, n, size int, over int64, late time.Duration, each func(seq uint64)) *metered {
	t.Helper()
	inner := memstore.New(nil)
	l := newLog(t, inner).seal(1)
	m := &metered{Store: inner, late: map[string]time.Duration{}}
	for i := range n {
		if i == 20 {
			m.late[layout.DataKey(l.at.Position)] = late
		} else if i%3 == 0 {
			m.late[layout.DataKey(l.at.Position)] = 20 * time.Millisecond
		}
		l.data(size)
	}
	s := source(m)
	s.Settle = &store.SettleOptions{Clock: clock.Go()}
	s.Ahead, s.Budget, s.Over = 16, 4<<20, over
	for step, err := range s.Walk(t.Context(), frame.Start()) {
		if err != nil {
			t.Fatal(err)
		}
		m.used(step.Size)
		m.mu.Lock()
		m.wanted--
		m.mu.Unlock()
		each(step.From.Position.Seq)
		if step.To.Equal(l.at) {
			break
		}
	}
	return m
}

// TestAnswersWait: while a walk waits for a late object, it asks for more than its budget. What
// does not fit waits in its connection: it takes no memory and no second request.
func TestAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60
		m := walkLate(t, n, 1<<20, 8<<20, time.Second, func(uint64) {})
		if most := int64(4<<20 + 1<<20 + 2*16*Head); m.most > most {
			t.Errorf("%d bytes were held, at most %d are right", m.most, most)
		}
		// 4 MiB and 8 MiB, less the heads, which do not count, and a sixteenth more each.
		if want := 12 << 20 / (17<<16 - Head); m.mostWanted < want || m.mostWanted > want+8 {
			t.Errorf("%d objects were asked for at once, %d would fit", m.mostWanted, want)
		}
		// One each and the seal, a second one for the first few, and some after the end.
		if m.gets > n+1+6+16 {
			t.Errorf("%d objects took %d requests", n, m.gets)
		}
	})
}

// TestSmallTakeRoom: small objects that wait for their turn take room too, when they are more
// than as many heads as there are requests.
func TestSmallTakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 200 << 10
		m := walkLate(t, 200, size, 8<<20, time.Second, func(uint64) {})
		if least, most := int64(16*Head+4<<20-size), int64(4<<20+2*16*Head); m.most > most || m.most < least {
			t.Errorf("%d bytes were held, %d to %d are right", m.most, least, most)
		}
	})
}

// TestAnswersLosePatience: a caller that pauses for long leaves answers in their connections.
// They are cut, cost a second request each, and are whole in the end. A walk that this has
// happened to asks for no more than fits.
func TestAnswersLosePatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		m := walkLate(t, n, 1<<20, 8<<20, 100*time.Millisecond, func(seq uint64) {
			if seq%10 == 0 {
				time.Sleep(time.Minute)
			}
		})
		if most := int64(4<<20 + 1<<20 + 2*16*Head); m.most > most {
			t.Errorf("%d bytes were held, at most %d are right", m.most, most)
		}
		if m.gets > n+n/10+2*16 {
			t.Errorf("%d objects took %d requests", n, m.gets)
		}
	})
}

// TestPausesWithoutOver: a walk that asks for no more than fits cuts no answer, even if its
// caller pauses for long. Some answers are small objects, whose heads take room that nobody
// hoped for. The memory is bounded nevertheless.
func TestPausesWithoutOver(t *testing.T) {
	for _, size := range []int{270 << 10, 300 << 10, 400 << 10, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			const n = 200
			m := walkLate(t, n, size, 0, 100*time.Millisecond, func(seq uint64) {
				if seq%10 == 0 {
					time.Sleep(time.Minute)
				}
			})
			if most := int64(4<<20 + size + 2*16*Head); m.most > most {
				t.Errorf("%d bytes of objects of %d were held, at most %d are right", m.most, size, most)
			}
			// One each and the seal, a second one for the first few, and some after the end.
			if m.gets > n+1+6+16 {
				t.Errorf("%d objects of %d bytes took %d requests", n, size, m.gets)
			}
		})
	}
}

// TestWaitingInOrder: of those that wait for room the first slot gets it first, and the one that
// the walk waits for gets it in any case.
func TestWaitingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(10, 1, &store.SettleOptions{Clock: clock.Go()})
		var mu sync.Mutex
		var got []uint64
		fetches := map[uint64]*fetch{}
		for _, seq := range []uint64{9, 8, 5, 7, 6} {
			f := newFetch(t.Context(), frame.Start().Position, 0)
			f.pos.Seq = seq
			fetches[seq] = f
			go func() {
				if r.take(f.ctx, f, 10) {
					mu.Lock()
					got = append(got, seq)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		r.urge(fetches[5]) // 9 has all there is
		synctest.Wait()
		r.give(20)
		synctest.Wait()
		fetches[7].cancel()
		synctest.Wait()
		r.give(10)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := []uint64{9, 5, 6, 8}; !slices.Equal(got, want) || r.cut != 0 {
			t.Errorf("%v, %d cut; want %v", got, r.cut, want)
		}
		for _, f := range fetches {
			f.cancel()
		}
	})
}
