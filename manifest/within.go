package manifest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// view is what [store.Sub] returns, and what the drivers return for a prefix of a bucket.
type view interface {
	Above() (st store.Store, prefix string)
}

// within returns an error if st lies in a folder that another log keeps for itself. It sends no request unless a part of
// the place is called like such a folder, and knows nothing above a store that is no view.
func within(ctx context.Context, st store.Store, settle *store.SettleOptions) error {
	for {
		v, ok := store.As[view](st)
		if !ok {
			return nil
		}
		above, prefix := v.Above()
		parts := strings.Split(prefix, "/")
		for i, part := range parts {
			if !slices.Contains(layout.Folders(), strings.ToLower(part)) { // a file system may ignore case
				continue
			}
			outer, err := store.Sub(above, strings.Join(parts[:i], "/"))
			if err != nil {
				return err
			}
			_, err = ReadFormat(ctx, outer, settle)
			switch {
			case errors.Is(err, ErrNotInitialized), errors.Is(err, store.ErrDenied): // denied: its rights are those for this place
			case err == nil, errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat), errors.Is(err, ErrRestoring):
				return fmt.Errorf("%w: %s lies within the log in %s, which keeps the folder %s for itself: give the log another place", ErrOptions, st.Traits().Name, outer.Traits().Name, part)
			default:
				return err
			}
		}
		st = above
	}
}
