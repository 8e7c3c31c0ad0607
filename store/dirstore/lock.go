//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/clock"
)

// Locks are flocks: the kernel releases them when their process dies. A stopped process
// keeps its locks. So a holder does nothing slow, and a process that waits for a lock holds
// no other: otherwise one stopped process would block a chain of others. All waiting is
// polling, under the caller's context.

// keyLocks is how many lock files the keys are spread over. They are created on first use
// and never deleted: otherwise two processes could hold locks of one name on two files.
const keyLocks = 256

func keyLock(key string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return fmt.Sprintf("%s/key-%02x", lockDir, h.Sum32()%keyLocks)
}

// listLock orders listings and deletes: see [Store.List]. Its modification time rises with
// every delete. Its file is made before the first.
const listLock = lockDir + "/list"

// lockMode is the mode of lock files: whoever can open a file to read it can lock it, and so stop those who write.
//
// guard:own-locks. Only the user who writes can open a lock file.
//
//mutant:replace 0o600 => 0o644
const lockMode = 0o600

// lockFile is an open lock file. An os.File would cost two system calls more.
type lockFile struct {
	fd        int
	rel, path string
}

func (f *lockFile) close() { _ = unix.Close(f.fd) }

// makeLock opens a lock file, and makes it if it is missing.
func (s *Store) makeLock(rel string) (*lockFile, error) { return s.lockFile(rel, unix.O_CREAT) }

// openLock makes nothing, so that processes which only read may list.
func (s *Store) openLock(rel string) (*lockFile, error) { return s.lockFile(rel, 0) }

func (s *Store) lockFile(rel string, flag int) (*lockFile, error) {
	fd, err := s.open(rel, unix.O_RDONLY|unix.O_NONBLOCK|flag) // no pipe blocks it
	if err != nil {
		return nil, err
	}
	return &lockFile{fd, rel, s.at(rel)}, nil
}

// stays returns an error if another lock file is at the path of f, or none: somebody has removed the reserved folder.
func (s *Store) stays(f *lockFile) error {
	now, err := s.openLock(f.rel)
	if err != nil {
		return err
	}
	defer now.close()
	is, err := statOf(now.fd)
	was, wasErr := statOf(f.fd)
	if err = errors.Join(err, wasErr); err == nil && !is.same(was) {
		err = &fs.PathError{Op: "lock", Path: f.path, Err: fs.ErrNotExist}
	}
	return err
}

// lockAll takes exclusive locks on all files. While it waits it holds none.
func (s *Store) lockAll(ctx context.Context, files ...*lockFile) (unlock func(), err error) {
	err = s.poll(ctx, func() (bool, error) {
		for i, f := range files {
			ok, err := s.calls.tryLock(f.fd, f.path, unix.LOCK_EX)
			if ok {
				continue
			}
			for _, held := range files[:i] {
				s.calls.unlock(held)
			}
			return false, err
		}
		return true, nil
	})
	unlock = func() {
		for _, f := range files {
			s.calls.unlock(f)
		}
	}
	if err != nil {
		return unlock, err
	}
	for _, f := range files {
		// guard:same-lock. A lock counts only if its file is still at its path.
		if err := s.stays(f); err != nil {
			unlock()
			return unlock, err
		}
	}
	return unlock, nil
}

const (
	pollFirst = 50 * time.Microsecond
	pollMax   = 5 * time.Millisecond
)

// poll calls try until it is true or fails, with growing random pauses. If ctx ends first
// it returns the cause.
func (s *Store) poll(ctx context.Context, try func() (bool, error)) error {
	for d := pollFirst; ; d = min(2*d, pollMax) {
		if ok, err := try(); ok || err != nil {
			return err
		}
		if err := clock.Sleep(ctx, s.clock, d/2+rand.N(d)); err != nil {
			return err
		}
	}
}
