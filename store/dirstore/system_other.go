//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

const searchOnly = unix.O_RDONLY | unix.O_DIRECTORY

// There is no openat2: see Store.walk.
func canOpenBeneath() bool { return false }

func openBeneath(int, string, int, uint32) (int, error) { return -1, unix.ENOSYS }

// setTime sets the modification time of the file at rel. These systems' futimes has no
// nanoseconds, or golang.org/x/sys/unix does not have it.
func (s *Store) setTime(_ int, rel string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	d, err := s.openDir(path.Dir(rel), searchOnly)
	if err != nil {
		return err
	}
	defer d.close()
	return again(func() error {
		return unix.UtimesNanoAt(d.fd, path.Base(rel), []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// syncDir is os.File's: macOS needs more than fsync.
func syncDir(fd int) error {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(own), "directory")
	return errors.Join(f.Sync(), f.Close())
}

// renameMoves: UFS, ZFS and APFS replace the entry where it is.
func renameMoves(uint32) bool { return false }

// fileSystem: the kinds have no numbers here.
func fileSystem(*os.File) (magic uint32, err error) { return 0, nil }

var networks map[uint32]string
