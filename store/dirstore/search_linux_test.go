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
