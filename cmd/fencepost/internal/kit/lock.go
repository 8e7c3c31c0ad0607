package kit

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// ErrOnlyLock: there is a lock and no log, as where fencepost exec runs.
var ErrOnlyLock = errors.New("only a lock")

// OnlyLock checks an error that there is no log. There may be a lock.
func OnlyLock(ctx context.Context, st store.Store, err error) error {
	switch found, lerr := survey.HasLock(ctx, st, nil); {
	case lerr != nil:
		return errors.Join(err, lerr)
	case found:
		return Kind(ErrOnlyLock, fmt.Errorf("%w: %s has only a lock, as fencepost exec makes one; see fencepost status", manifest.ErrNotInitialized, st.Traits().Name))
	}
	return err
}

// LockStore opens a store in which there is a log, or only the lock of leaders. Compactors lead
// only where there is a log.
func (k *Kit) LockStore(ctx context.Context, url string, compactors bool) (st store.Store, isLog bool, err error) {
	if st, err = k.Store(ctx, url, false); err != nil {
		return nil, false, err
	}
	if _, err = manifest.ReadFormat(ctx, st, nil); err == nil {
		return st, true, nil
	}
	if err = Orphaned(ctx, st, err); errors.Is(err, ErrOnlyLock) && !compactors {
		return st, false, nil
	}
	return nil, false, err
}
