package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// leaving is a store whose caller gives up while a request is under way, because of
// what the store answered elsewhere. The request is not taken back: it lands later.
type leaving struct {
	store.Store
	leave context.CancelCauseFunc
	why   error
	look  bool // it gives up at the look that follows a lost reply, not before
}

func (l *leaving) Put(ctx context.Context, key string, body []byte, cond store.Condition) (store.Info, error) {
	if l.look {
		return store.Info{}, &store.Error{Op: "put", Key: key, Status: 503}
	}
	l.leave(l.why)
	return store.Info{}, &store.Error{Op: "put", Key: key, Err: fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))}
}

func (l *leaving) Get(ctx context.Context, key string, _ *store.GetOptions) (*store.Object, error) {
	l.leave(l.why)
	return nil, &store.Error{Op: "get", Key: key, Err: fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))}
}

// The reason for which a caller gives up is no answer to the request that it gives
// up. Found by the simulation: a slot was turned away with 403, the writer ended for
// that reason, and what was under way in other slots was said not to be committed.
func TestTheCallersReasonIsNoAnswer(t *testing.T) {
	for _, kind := range []error{store.ErrDenied, store.ErrPrecondition, store.ErrNotFound, store.ErrInvalid} {
		for _, look := range []bool{false, true} {
			ctx, leave := context.WithCancelCause(t.Context())
			st := &leaving{Store: memstore.New(), leave: leave, why: &store.Error{Op: "put", Key: "another", Kind: kind}, look: look}
			_, err := store.Create(ctx, st, "key", []byte("body"), &store.SettleOptions{Backoff: 1})
			if got := store.OutcomeOf(err); got != store.Unknown {
				t.Errorf("create given up because of %v (look %v): %v, %v", kind, look, got, err)
			}
			ctx, st.leave = context.WithCancelCause(t.Context())
			_, err = store.Swap(ctx, st, "key", []byte("body"), "old", &store.SettleOptions{Backoff: 1})
			if got := store.OutcomeOf(err); got != store.Unknown {
				t.Errorf("swap given up because of %v (look %v): %v, %v", kind, look, got, err)
			}
		}
	}
}
