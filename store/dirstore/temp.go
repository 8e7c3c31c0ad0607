//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// temp is a file that will become an object. Its flock shows that its process is alive,
// running or stopped.
type temp struct {
	f    *os.File
	dir  *dir
	name string
	mode os.FileMode
	// info is set by finish.
	info *entry
}

// newTemp creates a file with the mark of an object that may not be durable.
func (s *Store) newTemp() (*temp, error) {
	for range maxTries {
		d, err := s.openDir(tempDir, searchOnly)
		if err != nil {
			return nil, err
		}
		t := &temp{dir: d, name: rand.Text()}
		if t.f, err = s.openAt(d, t.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL); err != nil {
			d.close()
			return nil, err
		}
		// A cleaner may find the file before it is locked here, and take it for a dead
		// process's. Then the cleaner holds the lock now, or it has deleted the name before
		// it released the lock, and the file has no link. In both cases try another name.
		locked, err := s.calls.tryLock(int(t.f.Fd()), t.f.Name(), unix.LOCK_EX)
		e, statErr := statOf(int(t.f.Fd()))
		if err := errors.Join(err, statErr); err != nil {
			s.discard(t)
			return nil, err
		}
		if !locked || e.links == 0 {
			s.discard(t)
			continue
		}
		t.mode = e.mode.Perm()
		if !pending(t.mode) { // the umask forbids it
			t.mode |= pendingMark
			if err := s.calls.chmod(t.f, t.mode); err != nil {
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
	if err := s.chtimes(int(t.f.Fd()), tempDir+"/"+t.name, mtime); err != nil {
		return err
	}
	if err := s.calls.sync(t.f); err != nil {
		return err
	}
	e, err := statOf(int(t.f.Fd()))
	if err != nil {
		return pathError("stat", t.f.Name(), err)
	}
	if !e.time.Equal(mtime) {
		return &store.Error{Op: "put", Key: s.root, Kind: store.ErrUnsupported,
			Hint: "the file system does not keep times in nanoseconds; use ext4, XFS, btrfs, ZFS, tmpfs or APFS"}
	}
	t.info = e
	return nil
}

func (s *Store) chtimes(fd int, rel string, to time.Time) error {
	return s.calls.do("chtimes", s.at(rel), func() error { return s.setTime(fd, rel, to) })
}

// discard deletes the temporary name, if the file still has it, and then releases the lock.
// What it cannot delete a cleaner will.
func (s *Store) discard(t *temp) {
	_ = s.calls.unlink(t.dir, t.name)
	_ = t.f.Close()
	t.dir.close()
}

// maxClean bounds what one Store cleans up. A folder full of other things is read so far.
const (
	maxClean     = 1000
	maxCleanRead = 10 * maxClean
)

// clean deletes files of dead processes. The first write calls it; what it cannot delete it
// leaves to others. It is nobody's condition, so it has no error.
func (s *Store) clean() {
	d, err := s.openDir(tempDir, unix.O_RDONLY)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(d.fd), d.path) // which closes it
	defer f.Close()
	for cleaned, read := 0, 0; read < maxCleanRead; {
		names, err := s.calls.readdir(f, 512)
		for _, name := range names {
			if s.cleanOne(d, name) {
				if cleaned++; cleaned == maxClean {
					return
				}
			}
		}
		if read += len(names); err != nil {
			return
		}
	}
}

// ownTemp reports whether rand.Text makes such names. All others are not this store's.
func ownTemp(name string) bool {
	return len(name) == len(rand.Text()) && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// cleanOne deletes the file of a dead process.
func (s *Store) cleanOne(d *dir, name string) bool {
	// guard:own-files. Only files that this package has made are deleted.
	if !ownTemp(name) {
		return false
	}
	there, err := statAt(d.fd, name)
	if err != nil || !abandoned(there) {
		return false
	}
	f, err := s.openAt(d, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false // it was just finished, or another user's
	}
	defer f.Close()
	// A live owner holds the lock from before the first byte until the name is gone. So a
	// file that can be locked belongs to a dead process, or its owner has not locked it yet
	// and will notice (see newTemp).
	if ok, err := s.calls.tryLock(int(f.Fd()), f.Name(), unix.LOCK_EX); !ok || err != nil {
		return false
	}
	locked, err := statOf(int(f.Fd()))
	if err != nil || !locked.same(there) || !abandoned(locked) {
		return false
	}
	return s.calls.unlink(d, name) == nil
}

// abandoned reports whether e can be what a dead process left: a file, which it may have linked
// to its key.
func abandoned(e *entry) bool { return e.mode.IsRegular() && e.links >= 1 && e.links <= 2 }

// openAt opens or creates the file with a name in d.
func (s *Store) openAt(d *dir, name string, flag int) (f *os.File, err error) {
	err = s.calls.do("open", d.at(name), func() error {
		return again(func() error {
			fd, err := unix.Openat(d.fd, name, flag|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
			if err == nil {
				f = os.NewFile(uintptr(fd), d.at(name))
			}
			return err
		})
	})
	return f, err
}
