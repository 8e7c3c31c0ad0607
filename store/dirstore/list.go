//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// List implements [store.Store]. It shows a state that existed. Each key that was there at
// the beginning is in it, or, if that key was deleted, every key created before the
// delete.
//
// Reading a directory is not atomic. A process that creates the next number and deletes
// the one before could slip through (T37):
//
//	lister    reads the first half of manifest/
//	other     creates 51, which lands in the half that was read
//	other     deletes 50, which is in the other half
//	lister    reads the second half: neither 50 nor 51
//
// The newest manifest in the listing would be 49. Without deletes nothing can be missed
// that was there at the beginning. So each unlink holds the list lock exclusively and is
// announced before; see collect. Creates only add names. Swaps keep the name: rename
// replaces the entry in place (except on btrfs, see renameMoves).
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		found, err := s.list(ctx, prefix, opts)
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		// No lock is held, so the caller may take its time between two keys, even for a
		// Delete.
		for _, info := range found {
			if ctx.Err() != nil {
				yield(store.Info{}, cancelled(ctx, "list", prefix))
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (s *Store) list(ctx context.Context, prefix string, opts *store.ListOptions) ([]store.Info, error) {
	rel, err := relDir("list", prefix)
	if err == nil {
		err = s.noLinks("list", prefix, filepath.Join(s.root, rel))
	}
	if err != nil {
		return nil, err
	}
	sc := &scan{s: s, rel: rel, startAfter: cmp.Or(opts, &store.ListOptions{}).StartAfter}
	switch err := s.collect(ctx, sc); {
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return nil, cancelled(ctx, "list", prefix)
	case err != nil:
		return nil, s.failure("list", prefix, err)
	}
	for _, dir := range sc.pending {
		if err := s.persist(dir); err != nil {
			return nil, s.failure("list", prefix, err)
		}
	}
	// Two scans find a key twice. So may one scan, of an object that is swapped meanwhile.
	// The later entry counts.
	slices.Reverse(sc.found)
	slices.SortStableFunc(sc.found, func(a, b store.Info) int { return strings.Compare(a.Key, b.Key) })
	return slices.CompactFunc(sc.found, func(a, b store.Info) bool { return a.Key == b.Key }), nil
}

// undisturbed is how often a listing scans without blocking deletes.
const undisturbed = 4

// collect scans until it has a scan during which nothing was deleted.
//
// It does not hold the list lock during the scan: deletes would wait for listings, perhaps
// for ever. Instead it finds out whether there was a delete. A delete holds the lock and
// raises the time of the lock file before its unlink. So if the lock was free at some
// instant, and the file has the same time after the scan, there was no delete in between.
//
// If the lock is not free, its holder may be stopped, before or after its unlink. A
// takeover needs listings and must not wait for that process. But there is only one
// holder, with one unlink. Any later delete gets the lock after it and raises the time
// first. So of two scans between which the time stays the same, at least one saw no
// delete, and both together are complete.
//
// After some scans in vain it holds the lock and blocks deletes, so that it ends even if
// deletes never do. Only a lister that is stopped in that scan blocks others. Every scan
// in vain was a delete that went through, so listers cannot starve deletes either.
func (s *Store) collect(ctx context.Context, sc *scan) error {
	lock, err := s.openLock(s.listLock())
	if err != nil {
		return err
	}
	defer lock.Close()
	tries := 0
	return s.poll(ctx, func() (bool, error) {
		sc.reset()
		free, err := s.calls.tryLock(lock, unix.LOCK_SH)
		if err != nil {
			return false, err
		}
		if tries++; free && tries > undisturbed {
			defer s.calls.unlock(lock)
			return true, sc.run(ctx)
		}
		before, err := lock.Stat()
		scans := 2
		if free {
			s.calls.unlock(lock)
			scans = 1
		}
		for range scans {
			if err == nil {
				err = sc.run(ctx)
			}
		}
		if err != nil {
			return false, err
		}
		after, err := lock.Stat()
		return err == nil && after.ModTime().Equal(before.ModTime()), err
	})
}

// announce raises the time of the list lock before an unlink: see collect. The caller holds
// the lock exclusively.
func (s *Store) announce(lock *os.File) error {
	info, err := lock.Stat()
	if err != nil {
		return err
	}
	now := s.clock.Wall()
	if !now.After(info.ModTime()) {
		now = info.ModTime().Add(1)
	}
	return s.calls.chtimes(lock.Name(), now)
}

// scan is one listing.
type scan struct {
	s          *Store
	rel        string
	startAfter string

	found   []store.Info
	pending []string // directories with objects that are not known to be durable
}

func (sc *scan) reset() { sc.found, sc.pending = nil, nil }

func (sc *scan) run(ctx context.Context) error {
	err := sc.dir(ctx, sc.rel)
	if errors.Is(err, fs.ErrNotExist) {
		// No object has the prefix, unless the root itself is gone.
		_, err = os.Stat(sc.s.root)
	}
	return err
}

// dir reads one directory and what is below it. If it is missing, or no directory, that is
// fs.ErrNotExist.
func (sc *scan) dir(ctx context.Context, rel string) error {
	path := filepath.Join(sc.s.root, rel)
	f, err := sc.s.calls.open(path, os.O_RDONLY|unix.O_DIRECTORY)
	if isNotDir(err) || errors.Is(err, unix.ELOOP) {
		return fs.ErrNotExist
	}
	if err != nil {
		return err
	}
	defer f.Close()
	hasPending := false
	for {
		entries, err := sc.s.calls.readdir(f, 512)
		for _, e := range entries {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p, err := sc.entry(ctx, filepath.Join(rel, e.Name()), e)
			if err != nil {
				return err
			}
			hasPending = hasPending || p
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if hasPending {
		sc.pending = append(sc.pending, path)
	}
	return nil
}

// entry records an object, or reads a directory. It reports whether the entry is an object
// that may not be durable.
func (sc *scan) entry(ctx context.Context, rel string, e fs.DirEntry) (pend bool, err error) {
	key, ok := keyOf(rel)
	switch {
	case !ok: // also the reserved folder
		return false, nil
	case e.IsDir():
		if below := key + "/"; below < sc.startAfter && !strings.HasPrefix(sc.startAfter, below) {
			return false, nil // all that is below is not greater
		}
		if err := sc.dir(ctx, rel); !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		return false, nil
	case !e.Type().IsRegular(), key <= sc.startAfter:
		return false, nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	sc.found = append(sc.found, sc.s.info(key, info))
	return pending(info), nil
}
