package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// errOnlyLock: there is a lock and no log, as where fencepost exec runs.
var errOnlyLock = errors.New("only a lock")

// onlyLock checks an error that there is no log. There may be a lock.
func onlyLock(ctx context.Context, st store.Store, err error) error {
	switch found, lerr := survey.HasLock(ctx, st, nil); {
	case lerr != nil:
		return errors.Join(err, lerr)
	case found:
		return &kindError{errOnlyLock, fmt.Errorf("%w: %s has only a lock, as fencepost exec makes one; see fencepost status", manifest.ErrNotInitialized, st.Traits().Name)}
	}
	return err
}

// lockStore opens a store in which there is a log, or only the lock of leaders. Compactors lead
// only where there is a log.
func (a *app) lockStore(ctx context.Context, url string, compactors bool) (st store.Store, isLog bool, err error) {
	if st, err = a.store(ctx, url, false); err != nil {
		return nil, false, err
	}
	if _, err = manifest.ReadFormat(ctx, st, nil); err == nil {
		return st, true, nil
	}
	if err = orphaned(ctx, st, err); errors.Is(err, errOnlyLock) && !compactors {
		return st, false, nil
	}
	return nil, false, err
}

// lockStatus reads who leads in a place without a log.
func (a *app) lockStatus(ctx context.Context, st store.Store) (view, error) {
	l, err := survey.TakeLock(ctx, st)
	if err != nil {
		return view{}, err
	}
	still := *l
	still.Leader.To, still.Leader.Until = time.Time{}, time.Time{} // a heartbeat is no change
	return view{table: lockTable(l, time.Now()), seen: lockTable(&still, time.Time{}), json: func(line bool) error {
		if line {
			return a.printLine(l)
		}
		return a.print(l)
	}}, nil
}

func lockTable(l *survey.Lock, now time.Time) []byte {
	return rows(func(row func(name, format string, args ...any)) {
		row("store", "%s", l.Store)
		row("log", "none; there is only a lock, as fencepost exec makes one")
		row("leader", "%s", leadership(l.Leader))
		if !l.Leader.Until.IsZero() {
			row("lease", "until %s unless it is renewed; the last heartbeat was %s ago", when(l.Leader.Until), brief(now.Sub(l.Leader.To)))
		}
	})
}
