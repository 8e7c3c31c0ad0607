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

// temp is a file that will become an object. Its flock shows that its process is alive,
// running or stopped.
type temp struct {
	f    *os.File
	path string
	mode os.FileMode
	// info is set by finish.
	info os.FileInfo
}

func (s *Store) tempDir() string { return filepath.Join(s.root, reserved, "tmp") }

// newTemp creates a file with the mark of an object that may not be durable.
func (s *Store) newTemp() (*temp, error) {
	for range maxTries {
		path := filepath.Join(s.tempDir(), rand.Text())
		f, err := s.calls.open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return nil, err
		}
		t := &temp{f: f, path: path}
		// A cleaner may find the file before it is locked here, and take it for a dead
		// process's. Then the cleaner holds the lock now, or it has deleted the name before
		// it released the lock, and the file has no link. In both cases try another name.
		locked, err := s.calls.tryLock(f, unix.LOCK_EX)
		info, statErr := f.Stat()
		if err := errors.Join(err, statErr); err != nil {
			s.discard(t)
			return nil, err
		}
		if !locked || links(info) == 0 {
			s.discard(t)
			continue
		}
		t.mode = info.Mode().Perm()
		if !pending(info) { // the umask forbids it
			t.mode |= pendingMark
			if err := s.calls.chmod(f, t.mode); err != nil {
				s.discard(t)
				return nil, err
			}
		}
		return t, nil
	}
	return nil, errors.New("dirstore: temporary files are deleted as fast as they are made")
}

// finish makes the content and the time durable. The time is now, or just after that of
// the object that is to be replaced.
//
// The time is set here because it is part of the version. The kernel's own timestamps come
// from a clock that ticks every few milliseconds, and file systems use the number of a
// deleted inode again at once. With these, two states of one key within a tick could have
// equal versions, and a stale swap would succeed.
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

// discard deletes the temporary name, if the file still has it, and then releases the lock.
// What it cannot delete a cleaner will.
func (s *Store) discard(t *temp) {
	_ = s.calls.unlink(t.path)
	_ = t.f.Close()
}

// maxClean bounds what one Open cleans up.
const maxClean = 1000

// clean deletes files of dead processes. Open calls it; what it cannot delete it leaves to
// the next Open.
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
		return // it was just finished, or another user's
	}
	defer f.Close()
	// A live owner holds the lock from before the first byte until the name is gone. So a
	// file that can be locked belongs to a dead process, or its owner has not locked it yet
	// and will notice (see newTemp).
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
