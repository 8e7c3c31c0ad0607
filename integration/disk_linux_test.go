//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/internal/test/servers"
)

// disk is a file system of its own, a tmpfs, whose size can change.
type disk struct{ dir string }

// diskTest is an environment variable with the name of the test that runs in its own
// process, to have disks.
const diskTest = "FENCEPOST_DISK_TEST"

// withDisks runs a test that needs disks to fill, in another process with its own mount
// namespace. That process gets the flags of this one and those given here. Its mounts end
// with it. An error says that disks are not possible here; every other problem fails the
// test.
func withDisks(t *testing.T, flags []string, test func(t *testing.T, mount func() *disk)) error {
	t.Helper()
	if os.Getenv(diskTest) == t.Name() {
		test(t, func() *disk { return mountDisk(t) })
		return nil
	}
	cmd := exec.Command(os.Args[0], t.TempDir())
	cmd.Env = append(os.Environ(), nodeRole+"=disk")
	apart(cmd, unix.CLONE_NEWNS)
	if out, err := cmd.CombinedOutput(); err != nil { // it only tries to mount, and ends
		return fmt.Errorf("no disk to fill: %w: %s", err, out)
	}
	// If a flag is given twice, the last one counts.
	args := append(slices.Clone(os.Args[1:]),
		"-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.count=1", "-test.v=true", "-test.testlogfile=")
	cmd = exec.Command(os.Args[0], append(args, flags...)...)
	cmd.Env = append(os.Environ(), diskTest+"="+t.Name())
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	apart(cmd, unix.CLONE_NEWNS)
	ended, err := servers.Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	t.Logf("output of the test's own process:\n%s", out)
	if !cmd.ProcessState.Success() {
		t.Error("the test failed in its own process, see above")
	}
	return nil
}

// tryDisk is all that a process does that tries whether it may mount disks.
func tryDisk(dir string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, roomy) }

// roomy is the size of a disk that is not full.
const roomy = "size=1g,nr_inodes=1m"

func mountDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{t.TempDir()}
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, roomy); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Detach, because a store keeps directories open.
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill leaves so many bytes, or so many inodes, and plenty of the other.
func (d *disk) fill(what string, left uint64) error {
	for {
		var s unix.Statfs_t
		if err := unix.Statfs(d.dir, &s); err != nil {
			return err
		}
		options := fmt.Sprintf("size=1g,nr_inodes=%d", s.Files-s.Ffree+left)
		if what == "bytes" {
			options = fmt.Sprintf("size=%d,nr_inodes=1m", (s.Blocks-s.Bfree)*uint64(s.Bsize)+left)
		}
		// EINVAL: other writes have made the new size too small; retry.
		if err := d.remount(options); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
}

// free makes room.
func (d *disk) free() error { return d.remount(roomy) }

func (d *disk) remount(options string) error {
	return unix.Mount("tmpfs", d.dir, "tmpfs", unix.MS_REMOUNT, options)
}

// url returns the URL of a directory on the disk.
func (d *disk) url(name string) string { return "file://" + filepath.Join(d.dir, name) }
