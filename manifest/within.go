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

// MaxKey is how many bytes the longest key within a log has. The prefix of a log has at most so many less than
// [store.MaxKey].
const MaxKey = layout.MaxName

// roomy returns an error if the prefix of st is so long that a later key of a log in it would be too long.
func roomy(st store.Store, name int) error {
	place, taken := st.Traits().Name, 0
	for v, ok := store.As[view](st); ok; v, ok = store.As[view](st) {
		var prefix string
		st, prefix = v.Above()
		taken += len(prefix) + 1
	}
	if taken+name > store.MaxKey {
		return fmt.Errorf("%w: the prefix of %s has %d bytes; here it has at most %d, because keys below it have up to %d and no key has more than %d: give it a shorter one",
			ErrOptions, place, taken-1, store.MaxKey-name-1, name, store.MaxKey)
	}
	return nil
}

// roomyFiles is roomy for a second store, which keeps files.
func roomyFiles(st store.Store) error {
	return roomy(st, len(layout.FilesDir(fence.ID{}))+layout.MaxFile)
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
