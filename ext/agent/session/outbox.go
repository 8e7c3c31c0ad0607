package session

import "sync"

// most is how many events wait until no more outcomes are told.
const most = 1024

// outbox keeps events until the client has read those before. Commits that follow one another are merged, and so are
// other events of one kind, of which the newest counts.
type outbox struct {
	more chan struct{}

	mu     sync.Mutex
	room   sync.Cond // the queue is not full, or over
	queue  []Event
	last   uint64 // the end of the history, as the client was told
	closed bool
	over   bool // nothing is sent any more
}

func (o *outbox) init() {
	o.more, o.room.L = make(chan struct{}, 1), &o.mu
}

// put adds an event. It does not wait.
func (o *outbox) put(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(e)
}

// wait adds an event when there is room.
func (o *outbox) wait(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) >= most && !o.over {
		o.room.Wait()
	}
	o.add(e)
}

func (o *outbox) add(e Event) {
	if o.closed {
		return
	}
	if e.Kind == Leading || e.Kind == Committed {
		o.last = e.End
	}
	if o.over {
		return
	}
	n := len(o.queue)
	switch {
	case n > 0 && o.queue[n-1].merge(e):
	case n > 0 && o.queue[n-1].Kind == e.Kind:
		o.queue[n-1] = e
	default:
		o.queue = append(o.queue, e)
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
}

// close adds the last event.
func (o *outbox) close(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(e)
	o.closed = true
	close(o.more)
}

// abandon lets nobody wait for room any more.
func (o *outbox) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.room.Broadcast()
}

func (o *outbox) mayNot() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over
}

// end is the end of the history, as far as the client is told.
func (o *outbox) end() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// drain sends the events until the last one was sent, or a send fails.
func (o *outbox) drain(send func(Event) bool) {
	defer o.abandon()
	for range o.more {
		o.mu.Lock()
		events := o.queue
		o.queue = nil
		o.room.Broadcast()
		o.mu.Unlock()
		for _, e := range events {
			if o.mayNot() || !send(e) {
				return
			}
		}
	}
}
