package kit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// AwaitPause is the time between two looks for a log or a group that is not there yet.
const AwaitPause = time.Second

// AwaitLog waits until there is a log at a URL. The verbs that run until they are stopped do so, since
// they may be started before the first writer.
func (k *Kit) AwaitLog(ctx context.Context, url string) error {
	looks, told := 0, false
	return k.await(ctx, url, "log", "the first append, or fencepost init, makes it", func(st store.Store, waits bool) error {
		_, err := manifest.ReadFormat(ctx, st, nil)
		if looks++; looks%60 != 1 || !errors.Is(err, manifest.ErrNotInitialized) {
			return err
		}
		found := Orphaned(ctx, st, err) // once a minute: it lists
		if !waits || !errors.Is(found, fence.ErrCorrupt) {
			return found
		}
		if !told { // there was nothing when the wait began: the log is being restored, and format.json comes last
			told = true
			k.Console.Note("%s; waiting goes on", Line(found))
		}
		return err
	})
}

// AwaitGroup waits until there is a group at a URL.
func (k *Kit) AwaitGroup(ctx context.Context, url string) error {
	told := false
	return k.await(ctx, url, "group", "its first worker makes it", func(st store.Store, _ bool) error {
		_, err := group.Partitions(ctx, st)
		if errors.Is(err, group.ErrNoGroup) && !told {
			told = true
			if _, err := manifest.ReadFormat(ctx, st, nil); err == nil {
				k.Console.Note("there is a log at %s; it needs no --group", url)
			}
		}
		return err
	})
}

// await calls look until it finds what it looks for, or fails otherwise. It tells look whether it waits already.
func (k *Kit) await(ctx context.Context, url, what, remedy string, look func(st store.Store, waits bool) error) error {
	var st store.Store
	for told := false; ; {
		var err error
		if st == nil {
			st, err = k.Store(ctx, url, false)
		}
		if err == nil {
			err = look(st, told)
		}
		// A directory that is not there has no log yet. A bucket is probably mistyped.
		gone := errors.Is(err, store.ErrNoBucket) && strings.HasPrefix(url, "file:")
		missing := gone || errors.Is(err, manifest.ErrNotInitialized) || errors.Is(err, group.ErrNoGroup)
		switch {
		case err == nil || !missing && st == nil: // the first contact has its own time
			return err
		case !missing:
			if err := k.Again(ctx, err, "looking", AwaitPause); err != nil {
				return err
			}
			continue
		case !told:
			told = true
			k.Console.Note("waiting: there is no %s yet at %s; %s. This waits until it is there or a signal comes, and looks every %v", what, url, remedy, AwaitPause)
		}
		if gone {
			st = nil // the directory was replaced, and a store does not follow that
		}
		if err := Pause(ctx, AwaitPause); err != nil {
			return err
		}
	}
}

// sameFailure is how long a failure is not told again: the vigil says how long it lasts.
const sameFailure = 10 * time.Minute

// Again waits before what a failure of the store has ended is tried again, and says so. It returns why that is in vain.
func (k *Kit) Again(ctx context.Context, err error, trying string, in time.Duration) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !Passing(err):
		return err
	}
	if why := Line(err); why != k.failure || time.Since(k.failed) > sameFailure {
		k.failure, k.failed = why, time.Now()
		k.Console.Note("%s; %s again in %v", why, trying, in)
	}
	return Pause(ctx, in)
}

// Pause waits, and returns ctx's cause if that ends first.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
