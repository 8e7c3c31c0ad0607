//go:build integration && linux

package integration

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// air describes what happens to packets in one direction. The zero value is a perfect
// wire.
type air struct {
	lost, doubled, late float64 // chance for each packet; a copy may itself be late
	delay               time.Duration
	jitter              time.Duration // a late packet takes up to so much longer, and others overtake it
	rate                int           // bytes a second; a packet that would wait for more than maxQueue is lost
}

const maxQueue = time.Second

// packets counts what happened to packets.
type packets struct {
	Sent      int `json:"sent"`
	Lost      int `json:"lost"`
	Doubled   int `json:"duplicated"`
	Reordered int `json:"reordered"` // delivered after a packet that was sent later
	Delayed   int `json:"delayed"`
}

func (p *packets) add(q packets) {
	p.Sent += q.Sent
	p.Lost += q.Lost
	p.Doubled += q.Doubled
	p.Reordered += q.Reordered
	p.Delayed += q.Delayed
}

// all reports whether every kind of trouble has happened to some packet.
func (p *packets) all() bool { return min(p.Lost, p.Doubled, p.Reordered, p.Delayed) > 0 }

// lane carries packets in one direction.
type lane struct {
	mu      sync.Mutex
	rng     *rand.Rand
	out     func(packet []byte)
	air     air
	waiting []parcel  // sorted by due time
	free    time.Time // when the wire has sent everything so far
	highest int       // greatest number of a delivered packet
	count   packets
	closed  bool
	timers  sync.WaitGroup
}

// parcel is a packet in flight.
type parcel struct {
	number int
	again  bool
	packet []byte
	due    time.Time
}

func newLane(seed, stream uint64, out func([]byte)) *lane {
	return &lane{rng: rand.New(rand.NewPCG(seed, stream)), out: out}
}

func (l *lane) turn(a air) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.air = a
}

// carry sends a packet. It may keep the slice.
func (l *lane) carry(packet []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.count.Sent++
	number := l.count.Sent
	queue, ok := l.queue(len(packet))
	if !ok || l.chance(l.air.lost) {
		l.count.Lost++
		return
	}
	copies := 1
	if l.chance(l.air.doubled) {
		copies = 2
	}
	for i := range copies {
		wait := queue + l.air.delay
		if l.air.jitter > 0 && l.chance(l.air.late) {
			wait += 1 + time.Duration(l.rng.Int64N(int64(l.air.jitter)))
		}
		p := parcel{number: number, again: i > 0, packet: packet, due: time.Now().Add(wait)}
		if wait == 0 {
			l.deliver(p)
			continue
		}
		l.count.Delayed++
		at, _ := slices.BinarySearchFunc(l.waiting, p, func(q, p parcel) int {
			return cmp.Or(q.due.Compare(p.due), -1) // after those that are due at the same time
		})
		l.waiting = slices.Insert(l.waiting, at, p)
		l.timers.Add(1)
		time.AfterFunc(wait, l.arrive)
	}
}

// arrive delivers all packets that are due. Timers of the same time fire in any order, so
// each delivers whatever is first.
func (l *lane) arrive() {
	defer l.timers.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.waiting) > 0 && !l.waiting[0].due.After(now) {
		l.deliver(l.waiting[0])
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
}

func (l *lane) chance(p float64) bool { return p > 0 && l.rng.Float64() < p }

// queue returns how long a packet waits until the wire has sent it.
func (l *lane) queue(size int) (wait time.Duration, ok bool) {
	if l.air.rate == 0 {
		return 0, true
	}
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	if l.free.Sub(now) > maxQueue {
		return 0, false
	}
	l.free = l.free.Add(time.Duration(size) * time.Second / time.Duration(l.air.rate))
	return l.free.Sub(now), true
}

// deliver delivers a packet. The caller holds mu.
func (l *lane) deliver(p parcel) {
	switch {
	case l.closed:
		return
	case p.again:
		l.count.Doubled++
	case p.number < l.highest:
		l.count.Reordered++
	}
	l.highest = max(l.highest, p.number)
	l.out(p.packet)
}

func (l *lane) sofar() packets {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// close loses the packets in flight and waits for all timers.
func (l *lane) close() packets {
	l.mu.Lock()
	l.closed = true
	count := l.count
	l.mu.Unlock()
	l.timers.Wait()
	return count
}

// TestAir: the counts match what happened.
func TestAir(t *testing.T) {
	for name, c := range map[string]struct {
		air  air
		want []string
		took time.Duration
		packets
	}{
		"clear":   {air{}, []string{"a", "b", "c"}, 0, packets{Sent: 3}},
		"lost":    {air{lost: 1}, nil, 0, packets{Sent: 3, Lost: 3}},
		"doubled": {air{doubled: 1}, []string{"a", "a", "b", "b", "c", "c"}, 0, packets{Sent: 3, Doubled: 3}},
		"distant": {air{delay: time.Second}, []string{"a", "b", "c"}, time.Second, packets{Sent: 3, Delayed: 3}},
		"narrow":  {air{rate: 1}, []string{"a", "b"}, 2 * time.Second, packets{Sent: 3, Lost: 1, Delayed: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []string
				l := newLane(1, 2, func(p []byte) { got = append(got, string(p)) })
				l.turn(c.air)
				begun := time.Now()
				for _, p := range []string{"a", "b", "c"} {
					l.carry([]byte(p))
				}
				l.timers.Wait()
				if took := time.Since(begun); !slices.Equal(got, c.want) || took != c.took {
					t.Errorf("got %q after %v, want %q after %v", got, took, c.want, c.took)
				}
				if count := l.close(); count != c.packets {
					t.Errorf("counted %+v, want %+v", count, c.packets)
				}
				if l.carry([]byte("d")); len(got) != len(c.want) {
					t.Error("a closed lane still delivers")
				}
			})
		})
	}
	t.Run("reordered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			l := newLane(1, 2, func(p []byte) { got = append(got, string(p)) })
			l.turn(air{late: 1, jitter: time.Second})
			l.carry([]byte("a"))
			l.carry([]byte("b"))
			l.turn(air{})
			l.carry([]byte("c"))
			l.timers.Wait()
			if count := l.close(); len(got) != 3 || got[0] != "c" || count.Reordered < 2 || count.Delayed != 2 {
				t.Errorf("got %q, counted %+v", got, count)
			}
		})
	})
}
