package test

import (
	"os"
	"syscall"
	"testing"
)

// OffDisk runs the tests of a package with the directories of t.TempDir in memory, where the system lends some. Each
// sync of a disk takes milliseconds, and tests of a directory sync tens of thousands of times. The killing of a process
// loses nothing either way. If Whole, or if TMPDIR says where, the directories stay where they were.
func OffDisk(m *testing.M) int {
	const place, room, noexec = "/dev/shm", 1 << 30, 8
	var fs syscall.Statfs_t
	if Whole() || os.Getenv("TMPDIR") != "" || syscall.Statfs(place, &fs) != nil ||
		int64(fs.Bavail)*fs.Bsize < room || fs.Flags&noexec != 0 {
		return m.Run()
	}
	dir, err := os.MkdirTemp(place, "fencepost-test") // another user may pass through
	if err != nil || os.Chmod(dir, 0o711) != nil || os.Setenv("TMPDIR", dir) != nil {
		return m.Run()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	return m.Run()
}
