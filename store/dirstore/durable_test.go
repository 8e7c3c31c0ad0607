//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// ledger follows what a crash of the machine would take away: file contents and
// directory entries that are not synced. Several stores may share one.
type ledger struct {
	mu      sync.Mutex
	entries map[string]bool // paths made or removed since their directory was last synced
	written map[string]bool // temporary files not synced since the last change
	wrong   []string
}

func newLedger() *ledger { return &ledger{entries: map[string]bool{}, written: map[string]bool{}} }

// before takes each call as made; tests without faults make it so.
func (l *ledger) before(call, path string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch call {
	case "write", "chtimes":
		if filepath.Base(filepath.Dir(path)) == "tmp" {
			l.written[path] = true
		}
	case "sync":
		delete(l.written, path)
		for made := range l.entries {
			if filepath.Dir(made) == path {
				delete(l.entries, made)
			}
		}
	case "unlink":
		if filepath.Base(filepath.Dir(path)) != "tmp" {
			l.entries[path] = true
		}
	case "link", "rename":
		// The file that comes to light is the one of this goroutine's store. These
		// tests write one after the other.
		if len(l.written) > 0 {
			l.wrong = append(l.wrong, call+" before the content is durable")
		}
		l.entries[path] = true
	case "mkdir", "rmdir":
		// An empty directory may come back. What was in it may not, see unlink.
		delete(l.entries, path)
		if call == "mkdir" {
			l.entries[path] = true
		}
	case "chmod":
		if len(l.volatile("")) > 0 {
			l.wrong = append(l.wrong, "an object is marked durable before it is: "+strings.Join(l.volatile(""), ", "))
		}
	}
	return nil
}

// volatile returns the entries that a crash would take away, of path and above,
// or all.
func (l *ledger) volatile(path string) []string {
	var all []string
	for made := range l.entries {
		if !strings.Contains(made, reserved) && (path == "" || strings.HasPrefix(path+"/", made+"/")) {
			all = append(all, made)
		}
	}
	return all
}

func (l *ledger) check(t *testing.T, what, path string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if lost := l.volatile(path); len(lost) > 0 {
		t.Errorf("after %s a crash would take away %q", what, lost)
	}
	if len(l.wrong) > 0 {
		t.Errorf("%s: %q", what, l.wrong)
	}
	l.wrong = nil
}

// TestDurableBeforeAcknowledged: what a write acknowledges survives a crash,
// with all directories above it, also those that a delete had removed.
func TestDurableBeforeAcknowledged(t *testing.T) {
	l := newLedger()
	s := openTest(t, t.TempDir(), calls{before: l.before})
	for range 3 {
		info := mustPut(t, s, "a/b/c", "1", store.IfAbsent())
		l.check(t, "a create", "")
		mustPut(t, s, "a/b/c", "2", store.IfMatch(info.Version))
		l.check(t, "a swap", "")
		mustPut(t, s, "a/b/c", "3", store.Condition{})
		l.check(t, "a Put", "")
		if _, err := s.Upload(t.Context(), "a/b/d", strings.NewReader("4"), nil); err != nil {
			t.Fatal(err)
		}
		l.check(t, "an upload", "")
		// The next round makes the directories again: they are others.
		if err := s.Delete(t.Context(), "a/b/c", "a/b/d"); err != nil {
			t.Fatal(err)
		}
		l.check(t, "a delete", "")
	}
}

// TestDurableBeforeSeen: a writer is stopped, or dies, between the moment its
// object becomes visible and the sync. Whoever is shown the object, or gives way
// to it, makes it durable, with directories that the writer made.
func TestDurableBeforeSeen(t *testing.T) {
	for _, write := range []string{"create", "swap"} {
		for what, see := range map[string]func(*testing.T, *Store, store.Version) error{
			"Get":  func(t *testing.T, s *Store, _ store.Version) error { bodyOf(t, s, "a/b/c"); return nil },
			"List": func(t *testing.T, s *Store, _ store.Version) error { keys(t, s, "a/"); return nil },
			"a refused create": func(t *testing.T, s *Store, _ store.Version) error {
				_, err := s.Put(t.Context(), "a/b/c", nil, &store.PutOptions{If: store.IfAbsent()})
				return err
			},
			"a refused swap": func(t *testing.T, s *Store, old store.Version) error {
				_, err := s.Put(t.Context(), "a/b/c", nil, &store.PutOptions{If: store.IfMatch(old)})
				return err
			},
			"a refused upload": func(t *testing.T, s *Store, _ store.Version) error {
				_, err := s.Upload(t.Context(), "a/b/c", strings.NewReader(""), &store.UploadOptions{Create: true})
				return err
			},
			"a create beside it": func(t *testing.T, s *Store, _ store.Version) error {
				mustPut(t, s, "a/b/other", "x", store.IfAbsent())
				return nil
			},
		} {
			t.Run(write+"/"+what, func(t *testing.T) {
				dir, l := t.TempDir(), newLedger()
				old := store.Version("none")
				cond := store.IfAbsent()
				if write == "swap" {
					old = mustPut(t, openTest(t, dir, calls{}), "a/b/c", "old", store.IfAbsent()).Version
					cond = store.IfMatch(old)
				}
				visible := false
				writer := openTest(t, dir, calls{before: func(call, path string) error {
					if visible && call == "sync" {
						return errDead
					}
					if call == "link" && write == "create" || call == "rename" {
						_, err := os.Stat(filepath.Dir(path))
						visible = err == nil
					}
					return l.before(call, path)
				}})
				if _, err := writer.Put(t.Context(), "a/b/c", []byte("new"), &store.PutOptions{If: cond}); !errors.Is(err, store.ErrUnknown) {
					t.Fatalf("a Put that cannot sync its directory: %v, want %v", err, store.ErrUnknown)
				}
				if len(l.volatile("")) == 0 {
					t.Fatal("the object is durable before anybody saw it: this tests nothing")
				}
				reader := openTest(t, dir, calls{before: l.before})
				if err := see(t, reader, old); err != nil && !errors.Is(err, store.ErrPrecondition) {
					t.Fatal(err)
				}
				l.check(t, what, "")
				// Once it was read, it is known to be durable.
				bodyOf(t, reader, "a/b/c")
				info, err := os.Stat(filepath.Join(dir, "a/b/c"))
				if err != nil || pending(info.Mode()) {
					t.Errorf("it is still marked: %v, %v", info.Mode(), err)
				}
			})
		}
	}
}

// TestMarkOfTheFileRead: a reader that makes an object durable takes the mark
// off that object, not off one that was swapped in after the sync.
func TestMarkOfTheFileRead(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	path := filepath.Join(s.root, "k")
	info := mustPut(t, s, "k", "old", store.IfAbsent())
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	swapped := false
	reader := openTest(t, dir, calls{before: func(call, _ string) error {
		if call == "chmod" && !swapped {
			swapped = true
			mustPut(t, s, "k", "new", store.IfMatch(info.Version))
			return os.Chmod(path, 0o644) // its writer is not that far
		}
		return nil
	}})
	if got := bodyOf(t, reader, "k"); got != "old" || !swapped {
		t.Fatalf("read %q, swapped: %v", got, swapped)
	}
	if fi, err := os.Stat(path); err != nil || !pending(fi.Mode()) {
		t.Errorf("the new object lost its mark: %v, %v", fi.Mode(), err)
	}
}

// TestDirCacheBounded: directories that are remembered are few, and a removed
// one is not taken for another.
func TestDirCacheBounded(t *testing.T) {
	s := openTest(t, t.TempDir(), calls{})
	for i := range maxDirs + 20 {
		mustPut(t, s, strings.Repeat("d", i+1)+"/k", "x", store.IfAbsent())
	}
	if n := len(s.dirs.open); n > maxDirs {
		t.Errorf("%d directories are held open, at most %d should be", n, maxDirs)
	}
	dir := s.at("again")
	known := func() bool {
		e, err := statAt(unix.AT_FDCWD, dir)
		return err == nil && s.dirs.has("again", e)
	}
	mustPut(t, s, "again/k", "x", store.IfAbsent())
	if !known() {
		t.Fatal("a directory is not remembered")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if known() {
		t.Error("a directory made again is taken for the one before")
	}
}

// TestOpenMakesRootDurable: also the directories above it.
func TestOpenMakesRootDurable(t *testing.T) {
	var synced []string
	base := t.TempDir()
	openTest(t, filepath.Join(base, "x", "y", "root"), calls{before: func(call, path string) error {
		if call == "sync" {
			synced = append(synced, path)
		}
		return nil
	}})
	for _, dir := range []string{filepath.Join(base, "x", "y"), filepath.Join(base, "x"), base} {
		if !slices.Contains(synced, dir) {
			t.Errorf("%s was not synced, only %q", dir, synced)
		}
	}
}
