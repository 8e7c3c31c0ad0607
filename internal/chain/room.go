package chain

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// room is the memory for what a walk fetches ahead, beyond the heads. Workers take it when an
// answer has come and tells its size, so a request that has no answer yet takes nothing. Where
// there is too little, answers wait in their connections, the first slot first, if the walk asks
// for more than fits. The object that the walk waits for gets what it needs in any case.
type room struct {
	clock    clock.Clock
	waits    bool          // an answer waits where there is too little
	patience time.Duration // how long an answer waits

	mu      sync.Mutex
	free    int64    // below 0 if one object is larger than all
	hoped   int64    // what requests without an answer will probably take
	waiting []*fetch // in the order of their slots
	cut     int      // how many have lost patience
}

// newRoom returns a room of so many bytes. A walk may hope for over bytes more. If it may,
// an answer waits up to 5 s, or a quarter of the time that a request may take if that is less.
func newRoom(bytes, over int64, o *store.SettleOptions) *room {
	o = cmp.Or(o, &store.SettleOptions{})
	r := &room{clock: clock.Or(o.Clock), waits: over > 0, patience: 5 * time.Second, free: bytes}
	if o.Attempt > 0 {
		r.patience = min(r.patience, o.Attempt/4)
	}
	return r
}

// hope notes that a request will probably take n bytes, and reports whether it may be made: if
// it must, or if all that is hoped for is free but for over bytes.
func (r *room) hope(f *fetch, n, over int64, must bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !must && n > 0 && r.hoped+n > r.free+over {
		return false
	}
	f.hope = n
	r.hoped += n
	return true
}

// met ends the hope for a request.
func (r *room) met(f *fetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meet(f)
}

func (r *room) meet(f *fetch) {
	r.hoped -= f.hope
	f.hope = 0
}

// take takes n bytes for a fetch in all, and waits for them. It reports false if they do not
// become free in time. Without over it does not wait: all that was hoped for was free, and
// since then at most the heads of the requests in flight took room as well.
func (r *room) take(ctx context.Context, f *fetch, n int64) bool {
	r.mu.Lock()
	if n -= f.reserved; n <= 0 || !r.waits || f.urgent || r.free >= n && !r.before(f) {
		r.reserve(f, n)
		r.mu.Unlock()
		return true
	}
	f.need, f.granted = n, make(chan struct{})
	i, _ := slices.BinarySearchFunc(r.waiting, f, byslot)
	r.waiting = slices.Insert(r.waiting, i, f)
	r.mu.Unlock()
	late := make(chan struct{})
	timer := r.clock.AfterFunc(r.patience, func() { close(late) })
	defer timer.Stop()
	lost := 0
	select {
	case <-f.granted:
		return true
	case <-late:
		lost = 1
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, waits := slices.BinarySearchFunc(r.waiting, f, byslot)
	if waits {
		r.waiting = slices.Delete(r.waiting, i, i+1)
		r.cut += lost
		r.serve()
	}
	return !waits
}

func byslot(a, b *fetch) int {
	if a.pos.Before(b.pos) {
		return -1
	}
	if b.pos.Before(a.pos) {
		return 1
	}
	return 0
}

// before reports whether an earlier slot waits.
func (r *room) before(f *fetch) bool { return len(r.waiting) > 0 && r.waiting[0].pos.Before(f.pos) }

func (r *room) reserve(f *fetch, n int64) {
	r.meet(f)
	if n > 0 {
		r.free -= n
		f.reserved += n
	}
}

// try takes n more bytes for a fetch if they are free and nobody hopes for them, or if it must.
func (r *room) try(f *fetch, n int64, must bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !must && r.free-r.hoped < n {
		return false
	}
	r.reserve(f, n)
	return true
}

// urge says that the walk waits for a fetch.
func (r *room) urge(f *fetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.urgent = true
	r.serve()
}

// give makes n bytes free, or takes them if n is negative.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	r.serve()
}

// serve serves those who wait, as far as the room goes.
func (r *room) serve() {
	for len(r.waiting) > 0 {
		f := r.waiting[0]
		if !f.urgent && r.free < f.need {
			return
		}
		r.reserve(f, f.need)
		close(f.granted)
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
}

// spare reports whether there is room that nobody has or hopes for.
func (r *room) spare() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free > r.hoped
}

// patient reports whether hardly any answer has lost patience, of so many objects.
func (r *room) patient(objects int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return seldom*r.cut <= objects
}

// seldom is how many objects are read for each answer that has lost patience, before the walk
// asks for more than fits again. Such an object costs a second request.
const seldom = 20

// door is the store of one fetch. It lets the whole of a large object in when there is room
// for it, and otherwise only its head.
type door struct {
	store.Store
	room  *room
	fetch *fetch
}

func (d door) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	obj, err := d.Store.Get(ctx, key, o)
	if err != nil {
		return nil, err
	}
	d.fetch.whole = 0
	if n := min(obj.Size, o.Length) - Head; n > 0 && !d.room.take(ctx, d.fetch, n) {
		d.fetch.whole, obj.Size = obj.Size, Head
		obj.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(obj.Body, Head), obj.Body}
	}
	return obj, nil
}
