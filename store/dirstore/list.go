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
	"path"
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
	if err != nil {
		return nil, err
	}
	sc := &scan{s: s, rel: rel, startAfter: cmp.Or(opts, &store.ListOptions{}).StartAfter}
	err = s.collect(ctx, sc)
	if err == nil {
		err = s.checkRoot() // also an empty listing decides
	}
	switch {
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
	lock, err := s.openLock(listLock)
	for range maxTries {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		// Nothing was ever deleted: see below.
		sc.reset()
		if err := sc.run(ctx); err != nil {
			return err
		}
		// guard:no-list-lock. A listing without the lock counts only if there is still none.
		//
		//mutant:replace if lock, err = s.openLock(listLock); errors => if errors
		if lock, err = s.openLock(listLock); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if errors.Is(err, fs.ErrPermission) {
		return s.collectApart(ctx, sc)
	}
	if err != nil {
		return err
	}
	defer lock.close()
	tries := 0
	if err := s.poll(ctx, func() (bool, error) {
		sc.reset()
		free, err := s.calls.tryLock(lock.fd, lock.path, unix.LOCK_SH)
		if err != nil {
			return false, err
		}
		if tries++; free && tries > undisturbed {
			defer s.calls.unlock(lock)
			return true, sc.run(ctx)
		}
		before, err := statOf(lock.fd)
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
		after, err := statOf(lock.fd)
		return err == nil && after.time.Equal(before.time), err
	}); err != nil {
		return err
	}
	// guard:same-list-lock. A listing counts only if its lock file is still at its path.
	//
	//mutant:replace return s.stays(lock) => return nil
	return s.stays(lock)
}

// collectApart is collect for another user than the one who writes, whom the lock file does not let in. It cannot find out whether
// the lock is free, so it always makes two scans, and cannot block deletes.
func (s *Store) collectApart(ctx context.Context, sc *scan) error {
	look := func() (*entry, error) {
		d, err := s.openDir(lockDir, searchOnly)
		if err != nil {
			return nil, err
		}
		defer d.close()
		return statAt(d.fd, path.Base(listLock))
	}
	return s.poll(ctx, func() (bool, error) {
		sc.reset()
		before, err := look()
		for range 2 {
			if err == nil {
				err = sc.run(ctx)
			}
		}
		if err != nil {
			return false, err
		}
		after, err := look()
		// guard:list-apart. A listing without the lock counts only if nothing was deleted meanwhile.
		//
		//mutant:replace after.time.Equal(before.time) => true
		return err == nil && after.same(before) && after.time.Equal(before.time), err
	})
}

// announce raises the time of the list lock before an unlink: see collect. The caller holds
// the lock exclusively.
func (s *Store) announce(lock *lockFile) error {
	e, err := statOf(lock.fd)
	if err != nil {
		return pathError("stat", lock.path, err)
	}
	now := s.clock.Wall()
	if !now.After(e.time) {
		now = e.time.Add(1)
	}
	return s.chtimes(lock.fd, listLock, now)
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
	fd, err := sc.s.open(sc.rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		err = sc.dir(ctx, sc.rel, fd)
	}
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		err = nil // no object has the prefix
	}
	return err
}

// dir reads one directory, which it closes, and what is below it.
func (sc *scan) dir(ctx context.Context, rel string, fd int) error {
	f := os.NewFile(uintptr(fd), sc.s.at(rel))
	defer f.Close()
	hasPending := false
	for {
		names, err := sc.s.calls.readdir(f, 512)
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			p, err := sc.entry(ctx, path.Join(rel, name), fd)
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
		sc.pending = append(sc.pending, rel)
	}
	return nil
}

// entry records an object, or reads a directory; dir is the one that it is in. It reports
// whether the entry is an object that may not be durable.
func (sc *scan) entry(ctx context.Context, rel string, dir int) (pend bool, err error) {
	key, ok := keyOf(rel)
	if !ok { // also the reserved folder
		return false, nil
	}
	below := key + "/"
	passed := below < sc.startAfter && !strings.HasPrefix(sc.startAfter, below) // all that is below is not greater
	if passed && key <= sc.startAfter {
		return false, nil
	}
	e, err := statAt(dir, path.Base(rel))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, pathError("stat", sc.s.at(rel), err)
	case e.mode.IsDir() && !passed:
		return false, sc.below(ctx, rel, dir, e)
	case !e.mode.IsRegular(), key <= sc.startAfter:
		return false, nil
	}
	sc.found = append(sc.found, sc.s.info(key, e))
	return pending(e.mode), nil
}

// below reads a directory in another one. What is no directory any more has nothing below it.
func (sc *scan) below(ctx context.Context, rel string, dir int, e *entry) error {
	var fd int
	err := sc.s.calls.do("open", sc.s.at(rel), func() error {
		return again(func() (err error) {
			fd, err = unix.Openat(dir, path.Base(rel), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			return err
		})
	})
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) && sc.foreign(e) {
		return nil
	}
	if err != nil {
		return err
	}
	return sc.dir(ctx, rel, fd)
}

// foreign reports whether a directory that cannot be read is somebody else's, such as the lost+found of a volume. All processes
// that write are the same user, to whom the reserved folder belongs.
//
// guard:list-foreign. Only a listing of the whole store passes over a directory that it may not read, and only over one of another
// user than the store's own folder. Without this check: the folder lock/ is restored with the wrong mode; a candidate lists it,
// and finds no lock; it takes the log for one that nobody leads.
//
//mutant:replace sc.rel != "." => false
func (sc *scan) foreign(e *entry) bool {
	if sc.rel != "." {
		return false
	}
	fd, err := sc.s.open(reserved, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	own, err := statOf(fd)
	return err == nil && own.owner != e.owner
}
