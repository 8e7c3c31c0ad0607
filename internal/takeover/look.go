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
	// the first of its seals on the chain. Without this check: the opener's seal for slot 5 is slow;
	// its seal for slot 6 is applied, and it begins to read the manifest; the leader fills slot 5, and
	// a compactor folds and prunes that slot; the seal for slot 5 lands in the hole; the manifest that
	// was read has the old floor, so the opener goes on after slot 5; its first object has an offset
	// that the chain has passed, and readers report damage.
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
