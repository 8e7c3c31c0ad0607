//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// temp is a file that will become an object. Its flock says that somebody is
// still at work on it, for as long as that process lives, stopped or not.
type temp struct {
	f    *os.File
	path string
	mode os.FileMode
	// info is set by finish.
	info os.FileInfo
}

func (s *Store) tempDir() string { return filepath.Join(s.root, reserved, "tmp") }

// newTemp creates a file with the mark of an object that is not known to be
// durable.
func (s *Store) newTemp() (*temp, error) {
	for range maxTries {
		path := filepath.Join(s.tempDir(), rand.Text())
		f, err := s.calls.open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return nil, err
		}
		t := &temp{f: f, path: path}
		// A cleaner may meet the file between its creation and the lock, and takes
		// it for a dead one's. Either it holds the lock now, or it has removed the
		// name before letting go: then the file has no link left. In both cases it
		// is abandoned for another.
		locked, err := s.calls.tryLock(f, unix.LOCK_EX)
		if err != nil {
			s.discard(t)
			return nil, err
		}
		info, err := f.Stat()
		if err != nil {
			s.discard(t)
			return nil, err
		}
		if !locked || links(info) == 0 {
			s.discard(t)
			continue
		}
		t.mode = info.Mode().Perm()
		if !pending(info) { // a strange umask
			t.mode |= pendingMark
			if err := s.calls.chmod(f, t.mode); err != nil {
				s.discard(t)
				return nil, err
			}
		}
		return t, nil
	}
	return nil, errors.New("dirstore: temporary files are removed as fast as they are made")
}

// finish makes the content and the time durable. The time is now, or just
// after the object that is to be replaced.
//
// The time is set by hand because it is part of the version. The kernel stamps
// files with a clock that ticks every few milliseconds, and a file system hands
// out the number of a removed inode again at once: left to the kernel, two
// states of one key written within a tick could have equal versions, and a
// stale swap would succeed.
func (s *Store) finish(t *temp, after time.Time) error {
	mtime := s.clock.Wall()
	if !mtime.After(after) {
		mtime = after.Add(1) // the wall clock was set back
	}
	if err := s.calls.chtimes(t.path, mtime); err != nil {
		return err
	}
	if err := s.calls.sync(t.f); err != nil {
		return err
	}
	info, err := t.f.Stat()
	if err != nil {
		return err
	}
	if !info.ModTime().Equal(mtime) {
		return &store.Error{Op: "put", Key: s.root, Kind: store.ErrUnsupported,
			Hint: "the file system does not keep times in nanoseconds; use ext4, XFS, btrfs, ZFS, tmpfs or APFS"}
	}
	t.info = info
	return nil
}

// discard removes the name, if it still has one, and then lets go of the lock.
// Failure to remove is the cleaner's business.
func (s *Store) discard(t *temp) {
	_ = s.calls.unlink(t.path)
	_ = t.f.Close()
}

// maxClean bounds what one Open cleans up.
const maxClean = 1000

// clean removes files that dead processes left behind. It is done at Open; what
// it cannot remove it leaves for the next.
func (s *Store) clean() error {
	dir, err := s.calls.open(s.tempDir(), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxClean)
	for _, entry := range entries {
		s.cleanOne(filepath.Join(s.tempDir(), entry.Name()))
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (s *Store) cleanOne(path string) {
	f, err := s.calls.open(path, os.O_RDONLY)
	if err != nil {
		return // just finished, or not ours to read
	}
	defer f.Close()
	// The owner keeps its lock from before the first byte until the name is gone,
	// and names are random: under the lock, the name is a dead process's file, or
	// one whose owner has not locked it yet and will look (see newTemp).
	if ok, err := s.calls.tryLock(f, unix.LOCK_EX); ok && err == nil {
		_ = s.calls.unlink(path)
	}
}

func links(info fs.FileInfo) uint64 {
	return uint64(info.Sys().(*syscall.Stat_t).Nlink) //nolint:unconvert // its type differs between platforms
}

func inode(info fs.FileInfo) uint64 {
	return uint64(info.Sys().(*syscall.Stat_t).Ino) //nolint:unconvert // its type differs between platforms
}
