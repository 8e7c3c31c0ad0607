package dirstore

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// asNobody runs f as a user whom permissions bind.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan unix.Errno)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0))
		if errno == 0 {
			f()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// guard:list-foreign. What cannot be read and is somebody else's, such as lost+found, is passed over by a listing of everything. A
// directory of the store's own user is not, and none is if it lies below the prefix that is listed.
func TestListForeign(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	eachWay(t, func(t *testing.T, calls calls) {
		root := t.TempDir()
		s := openTest(t, root, calls)
		mustPut(t, s, "k", "x", store.IfAbsent())
		mustPut(t, s, "d/k", "x", store.IfAbsent())
		mustPut(t, s, "d/e/k", "x", store.IfAbsent())
		const nobody = 65534
		err := filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
			return errors.Join(err, os.Chown(path, nobody, nobody))
		})
		for _, dir := range []string{"lost+found", "d/lost+found"} {
			err = errors.Join(err, os.Mkdir(s.at(dir), 0o700))
		}
		if err := errors.Join(err, os.Chmod(filepath.Dir(root), 0o711)); err != nil {
			t.Fatal(err)
		}
		asNobody(t, func() {
			s, err := open(root, &Options{NoCreate: true}, calls)
			if err != nil {
				t.Error(err)
				return
			}
			if got := keys(t, s, ""); !slices.Equal(got, []string{"d/e/k", "d/k", "k"}) {
				t.Errorf("listed %q", got)
			}
			if err := listed(t, s, "d/"); !errors.Is(err, store.ErrDenied) {
				t.Errorf("with a prefix: %v", err)
			}
			if err := os.Chmod(s.at("d/e"), 0); err != nil {
				t.Error(err)
			}
			for _, prefix := range []string{"", "d/e/"} {
				if err := listed(t, s, prefix); !errors.Is(err, store.ErrDenied) {
					t.Errorf("List(%q) with an own directory: %v", prefix, err)
				}
			}
		})
	})
}

// TestSearchOnly: who may not list the root gets what is below. A listing says why it fails.
func TestSearchOnly(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		root := t.TempDir()
		s := openTest(t, root, calls)
		mustPut(t, s, "k", "x", store.IfAbsent())
		mustPut(t, s, "d/k", "x", store.IfAbsent())
		mustPut(t, s, "d/by hand", "x", store.IfAbsent())
		if err := errors.Join(os.Chmod(s.at("d/by hand"), 0o644), os.Chmod(s.at("d"), 0o755), os.Chmod(root, 0o111), os.Chmod(filepath.Dir(root), 0o711)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(root, 0o700) })
		asNobody(t, func() {
			s, err := open(root, &Options{NoCreate: true}, calls)
			if err != nil {
				t.Error(err)
				return
			}
			for _, key := range []string{"k", "d/k", "none", "d/none"} {
				if err := got(s.Get(t.Context(), key, nil)); err != nil && (filepath.Base(key) == "k" || !errors.Is(err, store.ErrNotFound)) {
					t.Errorf("Get(%q): %v", key, err)
				}
			}
			if err := listed(t, s, "d/"); err == nil || !errors.Is(err, store.ErrDenied) {
				t.Errorf("List with an object that is not durable: %v, want %v", err, store.ErrDenied)
			}
			_, put := s.Put(t.Context(), "k2", nil, nil)
			for what, err := range map[string]error{
				"List": listed(t, s, ""), "Put": put, "Delete": s.Delete(t.Context(), "k"),
				"Get of what is not durable": got(s.Get(t.Context(), "d/by hand", nil)),
			} {
				if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), root) || strings.Contains(err.Error(), "bad file descriptor") {
					t.Errorf("%s: %v, want %v that names %s", what, err, store.ErrDenied, root)
				}
			}
		})
	})
}

// Who may only read cannot hold up who writes, and lists all the same.
//
// guard:own-locks. Without this mode: a user who may read the directory opens the lock of the listings, and locks it; nobody can
// delete anything there any more. The same with the lock of a key: a leader's heartbeat waits for it, and the lease ends.
func TestWhoReadsLocksNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	eachWay(t, func(t *testing.T, calls calls) {
		root := t.TempDir()
		if err := errors.Join(os.Chmod(root, 0o755), os.Chmod(filepath.Dir(root), 0o711)); err != nil {
			t.Fatal(err)
		}
		umask := unix.Umask(0) // the worst
		defer unix.Umask(umask)
		s := openTest(t, root, calls)
		version := mustPut(t, s, "d/k", "old", store.IfAbsent()).Version
		if _, err := s.Put(t.Context(), "d/k", []byte("new"), &store.PutOptions{If: store.IfMatch(version)}); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "d/gone", "old", store.IfAbsent())
		if err := s.Delete(t.Context(), "d/gone"); err != nil {
			t.Fatal(err)
		}
		unfinished := true // while a write is in hand, its file is there
		locks := 0
		s.calls.before = func(call, _ string) error {
			if call != "link" || !unfinished {
				return nil
			}
			unfinished = false
			asNobody(t, func() {
				err := filepath.WalkDir(s.at(reserved), func(path string, d os.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return nil //nolint:nilerr // what cannot be looked at cannot be opened either
					}
					locks++
					f, err := os.Open(path)
					if err == nil {
						t.Errorf("others may open %s", path)
						_ = f.Close()
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			return nil
		}
		mustPut(t, s, "d/l", "new", store.IfAbsent())
		if locks < 2 {
			t.Errorf("%d locks", locks)
		}
		asNobody(t, func() {
			s, err := open(root, &Options{NoCreate: true}, calls)
			if err != nil {
				t.Error(err)
				return
			}
			if got := keys(t, s, ""); !slices.Equal(got, []string{"d/k", "d/l"}) {
				t.Errorf("listed %q", got)
			}
		})
	})
}

// Another user lists while the next number is created and the one before it is deleted.
//
// guard:list-apart. Without this check: a reader of another user reads the first half of manifest/; a compactor creates 51 in it, and
// deletes 50 in the other half; the reader takes 49 for the newest.
func TestT37_ListingOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	eachWay(t, func(t *testing.T, calls calls) {
		root := t.TempDir()
		if err := errors.Join(os.Chmod(root, 0o755), os.Chmod(filepath.Dir(root), 0o711)); err != nil {
			t.Fatal(err)
		}
		writer := openTest(t, root, calls)
		mustPut(t, writer, "a/50", "old", store.IfAbsent())
		mustPut(t, writer, "a/stays", "old", store.IfAbsent())
		if err := writer.Delete(t.Context(), "a/none"); err != nil { // it makes the lock
			t.Fatal(err)
		}
		// What is created is where the reader has been already, and what is deleted is where it comes next. The order in which
		// directories are read is the root, and what is below.
		moves := make(chan [2]string)
		go func() { // another thread, since the reader's is another user
			for move := range moves {
				mustPut(t, writer, move[0], "new", store.IfAbsent())
				if err := writer.Delete(t.Context(), move[1]); err != nil {
					t.Error(err)
				}
				moves <- move
			}
		}()
		defer close(moves)
		asNobody(t, func() {
			reader, err := open(root, &Options{NoCreate: true}, calls)
			if err != nil {
				t.Error(err)
				return
			}
			reads := map[string]int{} // each scan reads each directory twice: its names, and its end
			reader.calls.before = func(call, path string) error {
				if call != "readdir" {
					return nil
				}
				reads[path]++
				var move [2]string
				switch n := reads[path]; {
				case path == reader.at("a") && n == 1:
					move = [2]string{"51", "a/50"}
				case path == reader.at(".") && n == 3:
					move = [2]string{"a/52", "51"}
				case path == reader.at("a") && n == 3:
					move = [2]string{"53", "a/52"}
				default:
					return nil
				}
				moves <- move
				<-moves
				return nil
			}
			if got := keys(t, reader, ""); !slices.Equal(got, []string{"53", "a/stays"}) {
				t.Errorf("listed %q", got)
			}
		})
	})
}

// A file system of several machines is refused, since one may lead there without seeing what another one has written.
//
// guard:no-network. Without this check: the directory is on NFS; A on one machine renews its lock; B on another one has cached the
// lock's attributes, and sees no renewal; B takes over while A's lease holds.
func TestNetworkFileSystem(t *testing.T) {
	for _, magic := range []uint32{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, 0x0bd00bd0, 0x47504653} {
		if _, err := open(t.TempDir(), nil, calls{magic: magic}); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "network") {
			t.Errorf("%x: %v", magic, err)
		}
	}
	for _, magic := range []uint32{unix.EXT4_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC} {
		s, err := open(t.TempDir(), nil, calls{magic: magic})
		if err != nil || s.renameMoves != (magic == unix.BTRFS_SUPER_MAGIC) {
			t.Errorf("%x: %v", magic, err)
		}
	}
}
