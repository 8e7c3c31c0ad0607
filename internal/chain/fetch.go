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

// fetch is the request for one slot, and then its answer.
type fetch struct {
	pos      fence.Position
	ask      int64              // how many bytes of it
	ctx      context.Context    //nolint:containedctx // of the request, on its way to a worker
	cancel   context.CancelFunc // of the request that is in flight
	here     bool               // its head has arrived
	head     int64              // bytes of that
	rest     chan struct{}      // closed when the rest is here; nil if it was not asked for
	reserved int64              // bytes of the budget
	Object
	err error
}

func newFetch(ctx context.Context, pos fence.Position, ask int64) *fetch {
	ctx, cancel := context.WithCancel(ctx)
	return &fetch{pos: pos, ask: ask, ctx: ctx, cancel: cancel}
}

func (f *fetch) fetchHead(s *Source) {
	defer f.cancel()
	f.Object, f.err = s.readHead(f.ctx, f.pos, f.ask)
}

// wait waits for the rest, if it was asked for.
func (f *fetch) wait() {
	if f.rest != nil {
		<-f.rest
	}
}

func (f *fetch) partial() bool { return f.Info.Size > int64(len(f.Body)) }

func (f *fetch) fetchRest(ctx context.Context, s *Source) {
	limit := frame.MaxFrame(s.Limits)
	if f.Info.Size > limit {
		f.err = fmt.Errorf("%w: %s has %d bytes; the log allows %d", fence.ErrCorrupt, layout.DataKey(f.pos), f.Info.Size, limit)
		return
	}
	off := int64(len(f.Body))
	// The rest is appended to the head, in a buffer that grows as bytes arrive. Two buffers
	// would hold a large object twice.
	whole, info, err := store.Read(ctx, s.Store, layout.DataKey(f.pos), &store.ReadOptions{Offset: off, Length: f.Info.Size - off, Append: f.Body, Settle: s.Settle})
	switch {
	case err != nil && !errors.Is(err, store.ErrRange):
		f.err = err
	case err != nil || info.Version != f.Info.Version:
		// guard:rest-match. The first part of a large object and the rest, which are two
		// requests, must be of one version; otherwise the slot counts as absent. Without
		// this check: a walk reads the first part; the object is pruned, and a zombie
		// writes another one into the hole; the walk appends the zombie's rest to the old
		// beginning and reports damage in a sound log. Absent is right: the caller then
		// reads the manifest, and finds that the floor has passed the slot.
		f.err = &store.Error{Op: "get", Key: layout.DataKey(f.pos), Kind: store.ErrNotFound, Hint: "it changed while it was read"}
	default:
		f.Body = whole
	}
}
