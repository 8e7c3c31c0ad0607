package store_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

func (l *leaving) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
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
//
// guard:callers-reason. Without this check: a leader's heartbeats are rejected with 403 until its term
// ends; the writer cancels the create of slot 9, which is in flight, and gives the end of the term as
// the reason; the error of the create contains this 403, so slot 9 is reported as not committed; the
// create is applied after all.
//
// guard:callers-look. A swap times out, and a read is to show whether it was applied. Without this
// check: another request of the caller gets 404, and the caller cancels everything with this 404 as the
// reason; the error of the read contains the 404; the swap is reported as refused, because its object
// is gone; the swap is applied after all.
func TestTheCallersReasonIsNoAnswer(t *testing.T) {
	for _, kind := range []error{store.ErrDenied, store.ErrPrecondition, store.ErrNotFound, store.ErrInvalid} {
		for _, look := range []bool{false, true} {
			ctx, leave := context.WithCancelCause(t.Context())
			st := &leaving{Store: memstore.New(nil), leave: leave, why: &store.Error{Op: "put", Key: "another", Kind: kind}, look: look}
			_, err := store.Create(ctx, st, "key", []byte("body"), &store.WriteOptions{Settle: &store.SettleOptions{Backoff: 1}})
			if got := store.OutcomeOf(err); got != store.Unknown {
				t.Errorf("create given up because of %v (look %v): %v, %v", kind, look, got, err)
			}
			ctx, st.leave = context.WithCancelCause(t.Context())
			_, err = store.Swap(ctx, st, "key", []byte("body"), "old", &store.WriteOptions{Settle: &store.SettleOptions{Backoff: 1}})
			if got := store.OutcomeOf(err); got != store.Unknown {
				t.Errorf("swap given up because of %v (look %v): %v, %v", kind, look, got, err)
			}
		}
	}
}

func (l *leaving) List(ctx context.Context, prefix string, _ *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		l.leave(l.why)
		yield(store.Info{}, &store.Error{Op: "list", Key: prefix, Err: fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))})
	}
}

func (l *leaving) Delete(ctx context.Context, keys ...string) error {
	l.leave(l.why)
	return &store.Error{Op: "delete", Key: keys[0], Err: fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))}
}

// The same for reads: an errgroup, for one, ends the requests of all because of what
// one of them was answered. Taken for "not there", a walk of the chain would end as if
// it had come to the tail.
//
// guard:callers-read. Without this check: a program reads a log and an object of its own in one
// errgroup; its own object is absent, and for this 404 the errgroup cancels the context of the log's
// reader; the read of slot 8 ends with an error that contains the 404; the reader takes slot 8, which
// holds data, for the tail, and reports the end of the log.
func TestTheCallersReasonIsNoAnswerToARead(t *testing.T) {
	for _, kind := range []error{store.ErrNotFound, store.ErrNotModified, store.ErrRange, store.ErrTooLarge, store.ErrDenied} {
		for name, read := range map[string]func(context.Context, store.Store) error{
			"read": func(ctx context.Context, st store.Store) error {
				_, _, err := store.Read(ctx, st, "key", &store.ReadOptions{Limit: 100})
				return err
			},
			"list": func(ctx context.Context, st store.Store) (err error) {
				for _, err = range store.ListAll(ctx, st, "", nil, nil) {
				}
				return err
			},
			"delete": func(ctx context.Context, st store.Store) error { return store.DeleteAll(ctx, st, []string{"key"}, nil) },
			"given up before the next try": func(ctx context.Context, st store.Store) error {
				return store.Retry(ctx, nil, func(context.Context) error {
					st.(*leaving).leave(st.(*leaving).why)
					return &store.Error{Op: "get", Key: "key", Status: 503}
				})
			},
		} {
			ctx, leave := context.WithCancelCause(t.Context())
			st := &leaving{Store: memstore.New(nil), leave: leave, why: &store.Error{Op: "get", Key: "another", Kind: kind}}
			err := read(ctx, st)
			if !errors.Is(err, context.Canceled) || errors.Is(err, kind) || store.Permanent(err) {
				t.Errorf("%s given up because of %v: %v", name, kind, err)
			}
			// Any other reason is passed on.
			ctx, st.leave = context.WithCancelCause(t.Context())
			st.why = errors.New("deposed")
			if err := read(ctx, st); !errors.Is(err, st.why) {
				t.Errorf("%s given up because of %v: %v", name, st.why, err)
			}
		}
	}
}
