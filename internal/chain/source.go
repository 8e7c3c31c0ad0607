package chain

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

const (
	// Head is how many bytes of an object the first request asks for, at least. Most
	// objects are smaller and cost one request. Of a larger one, a walk fetches the rest
	// when it is the next, or when the budget allows it.
	Head = 256 << 10
	// DefaultAhead is how many requests are in flight at most.
	DefaultAhead = 64
	// depth is how many slots a walk asks for ahead, in units of Ahead. Objects are checked
	// in order. With no more slots than requests, most requests would soon be answered and
	// their slots would wait for the slowest one: at S3's latencies that halves the
	// throughput. The writer's window is four times its requests for the same reason.
	depth = 8
	// DefaultBudget is how many bytes of large objects are fetched ahead.
	DefaultBudget = 64 << 20
)

// Source reads the chain of one log.
type Source struct {
	Store  store.Store
	Log    fence.ID
	Limits fence.Limits
	Settle *store.SettleOptions
	// Ahead is how many requests are in flight at most, [DefaultAhead] if 0. Up to seven times
	// as many objects wait for their turn, as far as Ahead heads and the budget go.
	Ahead int
	// First is how many objects a walk asks for at once when it begins, 1 if 0. Set it
	// where so many objects are known to exist.
	First int
	// Few says that there is probably one object at most. Then a walk doubles its requests only
	// from the second object on. So it asks for no slot after the first empty one, if there is
	// one object or none.
	Few bool
	// Budget is how many bytes are fetched ahead, besides the heads of Ahead objects that wait
	// for their turn and of Ahead that are in flight; [DefaultBudget] if 0. One large object may
	// exceed it.
	Budget int64
	// Over is how many bytes of large objects a walk asks for beyond the budget while it waits
	// for the next object. Their answers wait in their connections until there is room. After 5 s
	// they are cut, and such an object costs a second request. That happens where the caller of
	// the walk pauses, and to about one object in 20 at most. Answers that wait keep their
	// connections: a client that opens at most Ahead of them (MaxConnsPerHost) may have none for
	// the object that the walk waits for, for up to 5 s. If Over is 0, no answer waits.
	Over int64
	// Thrifty bounds how many slots a walk asks for that come after a seal and hold no object: twice
	// Ahead, and one for each 12 objects of the chain. A walk through many short epochs then asks for
	// fewer slots at once where it cannot guess how long they are. A void object, which a deposed leader
	// left after a seal, is an object too, and does not count. A walk reads it once at most, and up to
	// eight times Ahead of them for each seal. Without Thrifty the walk is as fast as it can be.
	Thrifty bool
	// Have are objects that were read already. They are not read again.
	Have map[fence.Position]Object
	// Keep, if set, selects data objects that are not decompressed: a walk checks only
	// their checksums. It is for a caller that copies objects as they are.
	Keep func(*frame.Header) bool
}

func (s *Source) ahead() int {
	if s.Ahead > 0 {
		return s.Ahead
	}
	return DefaultAhead
}

func (s *Source) budget() int64 {
	if s.Budget > 0 {
		return s.Budget
	}
	return DefaultBudget
}

// Object is what a slot holds: the whole object, or its beginning. Info.Size is the size
// of the whole.
type Object struct {
	Body []byte
	Info store.Info
}

// ReadHead reads the first [Head] bytes of the object in slot p. The error is
// store.ErrNotFound if the slot is empty.
func (s *Source) ReadHead(ctx context.Context, p fence.Position) (Object, error) {
	return s.readHead(ctx, s.Store, p, Head)
}

func (s *Source) readHead(ctx context.Context, st store.Store, p fence.Position, n int64) (o Object, err error) {
	if o, ok := s.Have[p]; ok {
		return o, nil
	}
	o.Body, o.Info, err = store.Read(ctx, st, layout.DataKey(p), &store.ReadOptions{Length: n, Settle: s.Settle})
	if errors.Is(err, store.ErrRange) {
		err = fmt.Errorf("%w: %s is empty", fence.ErrCorrupt, layout.DataKey(p))
	}
	return o, err
}

// Step is one object of the chain.
type Step struct {
	// From is the point before the object, To the point after it.
	From, To frame.Point
	Frame    *frame.Frame
	// Stored is set if [Source.Keep] selected the object. Then Frame has no records.
	Stored *frame.Stored
	Size   int64 // bytes of the object, as it is stored
}

// Read reads the object in slot from.Position and checks that it fits there. The error is
// store.ErrNotFound if the slot is empty.
func (s *Source) Read(ctx context.Context, from frame.Point) (Step, error) {
	f := newFetch(ctx, from.Position, Head)
	f.fetchHead(s, nil)
	if f.err == nil && f.partial() {
		f.fetchRest(ctx, s)
	}
	return s.check(from, f)
}

// check decodes what was fetched and applies the chain rule.
func (s *Source) check(from frame.Point, f *fetch) (Step, error) {
	step := Step{From: from, To: from, Size: f.Info.Size}
	if f.err != nil {
		return step, f.err
	}
	var err error
	if step.Stored, err = s.stored(f.Body); err == nil && step.Stored != nil {
		step.Frame = &frame.Frame{Header: step.Stored.Header, Cursor: step.Stored.Cursor}
	} else if err == nil {
		step.Frame, err = frame.Decode(f.Body, s.Limits)
	}
	if err != nil {
		return step, fmt.Errorf("%s: %w", layout.DataKey(from.Position), err)
	}
	step.To, err = from.Next(s.Log, step.Frame)
	return step, err
}

// stored decodes an object that Keep selects. It returns nil for all others.
func (s *Source) stored(b []byte) (*frame.Stored, error) {
	if s.Keep == nil {
		return nil, nil
	}
	h, err := frame.DecodeHeader(b)
	if err != nil || h.Kind != frame.Data || !s.Keep(&h) {
		return nil, err
	}
	return frame.DecodeStored(b, s.Limits)
}
