package survey

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

// Lock is the state of a place that has a lock and no log. Fencepost exec makes such a place, and so
// does a program that only leads. It marshals to JSON.
type Lock struct {
	Kind   string `json:"kind"` // "lock"
	Store  string `json:"store"`
	Leader Term   `json:"leader"`
}

// TakeLock reads who leads in a place without a log. It writes nothing: it lists the locks, and reads
// the newest.
func TakeLock(ctx context.Context, st store.Store) (*Lock, error) {
	l, err := Leadership(ctx, st, inspect.Lock)
	if err != nil {
		return nil, err
	}
	return &Lock{Kind: "lock", Store: st.Traits().Name, Leader: l}, nil
}

// HasLock reports whether anybody has ever led in st.
func HasLock(ctx context.Context, st store.Store, settle *store.SettleOptions) (bool, error) {
	for info, err := range store.ListAll(ctx, st, inspect.Lock.Prefix(), nil, settle) {
		if err != nil {
			return false, err
		}
		if n := inspect.Parse(info.Key); n.Kind == inspect.Lock && n.Number > 0 {
			return true, nil
		}
	}
	return false, nil
}

// folders are those that every log has something in.
var folders = []inspect.Kind{inspect.Manifest, inspect.Data}

var formatKey = inspect.Format.Prefix()

// Above returns an error if st has no log, and objects that are none of a log's lie where a log would keep its own: those of another
// log below it, perhaps. No log can be made there.
func Above(ctx context.Context, st store.Store, settle *store.SettleOptions) error {
	for _, kind := range folders {
		for info, err := range store.ListAll(ctx, st, kind.Prefix(), nil, settle) {
			if err != nil {
				return err
			}
			return fmt.Errorf("%s has no log, but it has %s, and a log there would keep its own objects below %s: give another place", st.Traits().Name, info.Key, kind.Prefix())
		}
	}
	return nil
}

// Orphaned returns an error if st has a log whose format.json is gone. To make a new log there is the wrong advice,
// and so is to take the place for a lock.
func Orphaned(ctx context.Context, st store.Store, settle *store.SettleOptions) error {
	for _, kind := range folders {
		n := 0
		for info, err := range store.ListAll(ctx, st, kind.Prefix(), nil, settle) {
			if err != nil {
				return err
			}
			if n++; inspect.Parse(info.Key).Kind == inspect.Unknown { // it belongs to something else
				if n == 1000 {
					break
				}
				continue
			}
			if _, _, err := store.Read(ctx, st, formatKey, &store.ReadOptions{Limit: 1 << 20, Settle: settle}); !errors.Is(err, store.ErrNotFound) {
				return err // the log was made meanwhile
			}
			return fmt.Errorf("%s has no %s, but it has %s. If `fencepost restore` was interrupted here, run it again. Otherwise, if that object belongs to a log, put an older version of %s back, or the one that `fencepost restore` of a backup makes elsewhere: without it nothing can be read or appended: %w",
				st.Traits().Name, formatKey, info.Key, formatKey, fence.ErrCorrupt)
		}
	}
	return nil
}
