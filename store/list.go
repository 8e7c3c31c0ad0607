package store

import (
	"context"
	"errors"
	"iter"

	"github.com/fencepost/fencepost/clock"
)

// ListAll lists like Store.List, and begins again if the listing fails or stands still
// for SettleOptions.Attempt. A key can come twice then, so callers keep a set, take the
// highest key, or do what can be done twice. An error ends the sequence: the listing is
// not complete.
func ListAll(ctx context.Context, st Store, prefix string, list *ListOptions, opts *SettleOptions) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		s, err := opts.settings()
		if err != nil {
			yield(Info{}, err)
			return
		}
		stopped := false
		err = s.retry(ctx, func() (err error) {
			stopped, err = s.list(ctx, st, prefix, list, yield)
			return err
		})
		if err != nil && !stopped {
			yield(Info{}, err)
		}
	}
}

// list makes one listing. The time that the caller takes for an entry does not count as
// standing still.
func (s *settings) list(ctx context.Context, st Store, prefix string, list *ListOptions, yield func(Info, error) bool) (stopped bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	watch := func() clock.Timer { return s.Clock.AfterFunc(s.Attempt, func() { cancel(errAttemptTimeout) }) }
	timer := watch()
	defer func() { timer.Stop() }()
	for info, err := range st.List(ctx, prefix, list) {
		timer.Stop()
		if err != nil {
			if errors.Is(context.Cause(ctx), errAttemptTimeout) {
				err = &timeoutError{after: s.Attempt, err: err}
			}
			return false, err
		}
		if !yield(info, nil) {
			return true, nil
		}
		timer = watch()
	}
	return false, nil
}
