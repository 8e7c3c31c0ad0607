package dirstore

import (
	"errors"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// searchOnly opens a directory only to name what is in it. That needs no right to read it.
const searchOnly = unix.O_PATH | unix.O_DIRECTORY

// noLinks: no link is followed, and nothing outside of the directory is reached.
const noLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openBeneath opens rel below a directory in one call. It fails with ELOOP at any link.
func openBeneath(dir int, rel string, flag int, mode uint32) (int, error) {
	// guard:beneath. A path is resolved below the root's descriptor, and no link is followed.
	//
	//mutant:replace Resolve: noLinks => Resolve: 0
	how := unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: noLinks}
	if flag&unix.O_PATH == 0 {
		how.Flags |= unix.O_LARGEFILE
	}
	if flag&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	return unix.Openat2(dir, rel, &how)
}

// canOpenBeneath is false before Linux 5.6, and where a filter of system calls forbids
// openat2, as older versions of container runtimes do.
var canOpenBeneath = sync.OnceValue(func() bool {
	fd, err := openBeneath(unix.AT_FDCWD, ".", searchOnly, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.E2BIG)
})

// setTime sets the modification time of an open file, whatever its name is by now.
func (s *Store) setTime(fd int, _ string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	times := [2]unix.Timespec{ts, ts}
	// This is futimens, which golang.org/x/sys/unix does not have.
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// syncDir is fsync.
func syncDir(fd int) error { return again(func() error { return unix.Fsync(fd) }) }

// renameMoves tells whether renaming a file over another may move the
// directory entry to where a reader of the directory does not come any more, so
// that a listing misses an object that was there all the time. btrfs gives the
// entry a new number at the end, and stops reading at what was the end when the
// directory was opened. There a swap is announced to listings as a delete is, at
// a price: what holds up deletes holds up swaps, too.
func renameMoves(magic uint32) bool { return magic == unix.BTRFS_SUPER_MAGIC }

// fileSystem returns the number of the kind of file system of a directory, 0 if the system has none.
func fileSystem(root *os.File) (magic uint32, err error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
		return 0, pathError("statfs", root.Name(), err)
	}
	return uint32(st.Type), nil // the type of Type differs
}

// networks are file systems whose machines keep what they have seen, and show others' writes later. Those in user space (FUSE) cannot be
// told from local ones.
var networks = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB",
	unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", unix.NCP_SUPER_MAGIC: "NCP",
	// Of clusters. Some hold flock on one node only.
	unix.CEPH_SUPER_MAGIC: "CephFS", unix.OCFS2_SUPER_MAGIC: "OCFS2", 0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x19830326: "BeeGFS", 0x47504653: "GPFS",
}
