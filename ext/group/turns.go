package group

import (
	"container/heap"
	"context"
	"sync"

	"github.com/fencepost/fencepost/clock"
)

// turns lets some logs be opened at once. The others wait. Whichever partition has been without an owner for longest is
// next, not whichever came first: it may have waited for an owner that was dead.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting waiters
}

// waiter is a log that waits for its turn.
type waiter struct {
	since     clock.Instant // when its partition lost its owner
	partition int
	place     int           // in the heap; -1: it is not there
	turn      chan struct{} // closed when it has its turn
}

// take waits for a turn. Its caller ends the turn with give.
func (t *turns) take(ctx context.Context, partition int, since clock.Instant) error {
	w := &waiter{since: since, partition: partition, turn: make(chan struct{})}
	t.mu.Lock()
	heap.Push(&t.waiting, w)
	t.next()
	t.mu.Unlock()
	select {
	case <-w.turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.place >= 0 {
		heap.Remove(&t.waiting, w.place)
	} else { // it had its turn meanwhile
		t.free++
		t.next()
	}
	return context.Cause(ctx)
}

// give ends a turn.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.next()
}

// next gives turns to those that wait. It is called with mu held.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		t.free--
		close(heap.Pop(&t.waiting).(*waiter).turn)
	}
}

// waiters is a heap for package heap.
type waiters []*waiter

func (w waiters) Len() int { return len(w) }

func (w waiters) Less(i, j int) bool {
	if w[i].since != w[j].since {
		return w[i].since < w[j].since
	}
	return w[i].partition < w[j].partition
}

func (w waiters) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].place, w[j].place = i, j
}

func (w *waiters) Push(x any) {
	x.(*waiter).place = len(*w)
	*w = append(*w, x.(*waiter))
}

func (w *waiters) Pop() any {
	last := (*w)[len(*w)-1]
	(*w)[len(*w)-1] = nil // the array stays
	*w, last.place = (*w)[:len(*w)-1], -1
	return last
}
