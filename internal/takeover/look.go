package takeover

import (
	"context"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/state"
)

// look is a reading of the manifest that began after the answer to the seal in slot after.
type look struct {
	after  fence.Position
	cancel context.CancelFunc
	done   chan struct{}
	m      *state.Manifest
	err    error
}

// lookAfter begins to read the manifest, unless the last look has begun after the same seal.
func (o *opener) lookAfter(ctx context.Context, sealed fence.Position) {
	// guard:open-look. An opener's reading of the manifest counts only if it began after the answer to
	// the first of its seals on the chain.
	//
	//mutant:replace o.look.after == sealed => true
	if o.look != nil && o.look.after == sealed {
		return
	}
	if o.look != nil {
		o.look.cancel()
	}
	l := &look{after: sealed, done: make(chan struct{})}
	ctx, l.cancel = context.WithCancel(ctx)
	o.look = l
	o.looks.Go(func() {
		defer close(l.done)
		l.m, l.err = o.newest(ctx)
	})
}

// looked returns a manifest that was read after the answer to the seal in slot sealed.
func (o *opener) looked(ctx context.Context, sealed fence.Position) (*state.Manifest, error) {
	o.lookAfter(ctx, sealed)
	<-o.look.done
	return o.look.m, o.look.err
}

// endLook cancels what is in flight of a look and waits for it.
func (o *opener) endLook() {
	if o.look != nil {
		o.look.cancel()
		o.looks.Wait()
		o.look = nil
	}
}
