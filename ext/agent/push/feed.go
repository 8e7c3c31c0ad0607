package push

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

const (
	// kept is how many bytes of acknowledged objects a feed keeps for readers that are a little behind.
	kept = 16 << 20
	// lingers is how long a feed keeps objects for a reader that was cut off, and comes back.
	lingers = time.Minute
	// Beat is how long a feed is silent at most.
	Beat = 2 * time.Second
)

var (
	// ErrBehind: the feed does not have the object any more, or never had it. The reader finds it in the store.
	ErrBehind = errors.New("push: the object is not here; read it in the store")
	// ErrIdle: nobody here leads the log.
	ErrIdle = errors.New("push: nobody leads here")
)

// Feed has the last objects of one log that its writers have acknowledged. It is safe for concurrent use. While nobody
// listens, it keeps nothing.
type Feed struct {
	mu      sync.Mutex
	readers int
	clock   clock.Clock
	left    clock.Instant             // when the last one went; 0: none has been here
	sent    map[fence.Position][]byte // objects that were sent and not acknowledged
	first   fence.Position            // of the objects
	objects [][]byte                  // acknowledged ones, of consecutive slots
	bytes   int
	check   func() error  // of the session that leads; nil: none does
	changed chan struct{} // closed when any of it has changed
}

// NewFeed returns a feed. The clock is the machine's if c is nil.
func NewFeed(c clock.Clock) *Feed {
	return &Feed{clock: clock.Or(c), sent: map[fence.Position][]byte{}, changed: make(chan struct{})}
}

// Store returns st for the writers of the log.
func (f *Feed) Store(st store.Store) store.Store { return &watched{Store: st, feed: f} }

// watched sees what a writer sends.
type watched struct {
	store.Store
	feed *Feed
}

// Unwrap is for store.As.
func (w *watched) Unwrap() store.Store { return w.Store }

// Put implements store.Store.
func (w *watched) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if strings.HasPrefix(key, inspect.Data.Prefix()) && o.Condition() == store.IfAbsent() {
		w.feed.put(body)
	}
	return w.Store.Put(ctx, key, body, o)
}

// Offsets in the header of a log object: docs/format.md.
const (
	atKind, atEpoch, atSeq, header = 5, 40, 48, 128
	seal                           = 2
)

// put keeps an object that a writer sends.
func (f *Feed) put(body []byte) {
	if len(body) < header || body[atKind] == seal {
		return
	}
	p := fence.Position{Epoch: fence.Epoch(binary.LittleEndian.Uint64(body[atEpoch:])), Seq: binary.LittleEndian.Uint64(body[atSeq:])}
	f.mu.Lock()
	defer f.mu.Unlock()
	listens := f.readers > 0 || f.left > 0 && f.clock.Now().Sub(f.left) < lingers
	if _, again := f.sent[p]; !listens || again || f.check == nil || p.Epoch != f.first.Epoch {
		return
	}
	f.sent[p] = slices.Clone(body) // the writer uses it again
}

// Begin says that a session leads from the first slot of an epoch on, for as long as check returns nil.
func (f *Feed) Begin(epoch fence.Epoch, check func() error) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch < f.first.Epoch {
		return func() {} // a later one began meanwhile
	}
	clear(f.sent)
	f.first, f.objects, f.bytes, f.check = fence.Position{Epoch: epoch, Seq: 1}, nil, 0, check
	f.tell()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.first.Epoch == epoch {
			clear(f.sent)
			f.objects, f.bytes, f.check = nil, 0, nil
			f.tell()
		}
	}
}

// Acknowledged is for writer.Hooks. A feed shows an object only then: what was only sent may never be in the log.
func (f *Feed) Acknowledged(a writer.Acknowledgement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check == nil || a.Position.Epoch != f.first.Epoch {
		return
	}
	object, ok := f.sent[a.Position]
	delete(f.sent, a.Position)
	if !ok || a.Position != f.next() { // it was sent before anybody listened
		f.objects, f.bytes = nil, 0
		f.first.Seq = a.Position.Seq + 1
		f.tell()
		return
	}
	f.objects = append(f.objects, object)
	for f.bytes += len(object); f.bytes > kept && len(f.objects) > 1; f.first.Seq++ {
		f.bytes -= len(f.objects[0])
		f.objects[0] = nil
		f.objects = f.objects[1:]
	}
	f.tell()
}

// forget drops all objects if nobody has listened for a while.
func (f *Feed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.readers == 0 && f.clock.Now().Sub(f.left) >= lingers {
		f.first, f.objects, f.bytes = f.next(), nil, 0
		clear(f.sent)
	}
}

// next is the slot after the last acknowledged one. Called with mu held.
func (f *Feed) next() fence.Position {
	return fence.Position{Epoch: f.first.Epoch, Seq: f.first.Seq + uint64(len(f.objects))}
}

func (f *Feed) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Tail sends the objects from a slot on, each when it is acknowledged, and nil when there was none for a [Beat]. It ends with
// [ErrBehind], [ErrIdle], what send returns, or ctx's cause.
func (f *Feed) Tail(ctx context.Context, at fence.Position, send func([]byte) error) error {
	f.mu.Lock()
	f.readers++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.readers--
		f.left = f.clock.Now()
		f.clock.AfterFunc(lingers, f.forget)
	}()
	tick := make(chan struct{}, 1)
	for first := true; ; first = false {
		object, check, changed, err := f.after(at)
		if err != nil {
			return err
		}
		if object != nil {
			if err := send(object); err != nil {
				return err
			}
			at.Seq++
			continue
		}
		beat := first
		if !first {
			timer := f.clock.AfterFunc(Beat, func() { tick <- struct{}{} })
			select {
			case <-changed:
			case <-tick:
				beat = true
			case <-ctx.Done():
			}
			if !beat && !timer.Stop() {
				<-tick
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if !beat {
			continue
		}
		// guard:feed-leads. A feed says that there is no more only while its session leads.
		//
		//mutant:replace err != nil => check == nil && err != nil
		if err := check(); err != nil {
			return errors.Join(ErrIdle, err)
		}
		if err := send(nil); err != nil {
			return err
		}
	}
}

// after returns the acknowledged object of a slot; nil if there is none yet. It is only one, since a slow reader keeps it.
func (f *Feed) after(at fence.Position) (object []byte, check func() error, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch next := f.next(); {
	case f.check == nil:
		return nil, nil, nil, ErrIdle
	case at.Epoch != f.first.Epoch || at.Seq < f.first.Seq:
		return nil, nil, nil, ErrBehind
	case at.Seq >= next.Seq: // a reader may find an object in the store before the writer knows that it is there
		return nil, f.check, f.changed, nil
	}
	return f.objects[at.Seq-f.first.Seq], f.check, f.changed, nil
}
