//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// eachWay runs a test with openat2, if the system has it, and without.
func eachWay(t *testing.T, test func(*testing.T, calls)) {
	for _, walk := range []bool{false, true} {
		t.Run(fmt.Sprintf("walk=%v", walk), func(t *testing.T) { test(t, calls{walk: walk}) })
	}
}

// victim is a directory that no store may touch. It looks like everything that a store looks for.
func victim(t *testing.T) (dir string, untouched func()) {
	t.Helper()
	dir = t.TempDir()
	for _, rel := range []string{"tmp", "lock", "k", "d", "a"} {
		if err := os.Mkdir(filepath.Join(dir, rel), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{rand.Text(), "k", "list", "thesis"} {
			if err := os.WriteFile(filepath.Join(dir, rel, name), []byte("mine"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	look := func() (all []string) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			all = append(all, fmt.Sprint(path, info.Mode(), info.ModTime(), info.Size()))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := look()
	return dir, func() {
		t.Helper()
		if after := look(); !slices.Equal(before, after) {
			t.Errorf("outside of the root was %q, is %q", before, after)
		}
	}
}

// everything makes each call of a store, and returns the errors of those that write and of those that read.
func everything(t *testing.T, s *Store, key string) (writes, reads []error) {
	t.Helper()
	ctx := t.Context()
	_, put := s.Put(ctx, key, []byte("x"), nil)
	_, create := s.Put(ctx, key+"2", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	_, upload := s.Upload(ctx, key, strings.NewReader("x"), nil)
	writes = []error{put, create, upload, s.Delete(ctx, key)}
	obj, get := s.Get(ctx, key, nil)
	if get == nil {
		_ = obj.Body.Close()
	}
	reads = []error{get}
	for _, err := range s.List(ctx, "", nil) {
		reads = append(reads, err)
	}
	return writes, reads
}

func names(t *testing.T, err error, link string) {
	t.Helper()
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), link+" is a symbolic link") {
		t.Errorf("%v: it should be %v, and name %s", err, store.ErrInvalid, link)
	}
}

// TestReservedLink: a link where the store's own folder should be, or a part of it, is an error
// that names it, before the store is opened and later. Nothing is followed.
func TestReservedLink(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		for _, rel := range reservedDirs {
			for what, target := range map[string]func(root string) string{
				"outside":  func(string) string { dir, _ := victim(t); return dir },
				"parent":   func(string) string { return ".." },
				"inside":   func(root string) string { return filepath.Join(root, "moved") },
				"dangling": func(string) string { return "/nowhere" },
				"file":     func(root string) string { return filepath.Join(root, "k") },
			} {
				t.Run(rel+"/"+what, func(t *testing.T) {
					dir := t.TempDir()
					outside, untouched := victim(t)
					to := target(dir)
					if what == "outside" {
						to = outside
					}
					s, err := open(dir, nil, calls)
					if err != nil {
						t.Fatal(err)
					}
					mustPut(t, s, "k", "old", store.Condition{})
					if err := errors.Join(os.Rename(s.at(rel), s.at("moved")), os.Symlink(to, s.at(rel))); err != nil {
						t.Fatal(err)
					}
					for _, o := range []*Options{{NoCreate: true}, nil} {
						_, err := open(dir, o, calls)
						names(t, err, s.at(rel))
					}
					writes, _ := everything(t, s, "k") // which is open already
					for i, err := range writes {
						if rel == tempDir && i == 3 { // a delete needs locks only
							continue
						}
						if rel == lockDir && i == 1 { // a create needs none
							continue
						}
						names(t, err, s.at(rel))
					}
					untouched()
				})
			}
		}
	})
}

// TestLockLink: so is a link where a lock file should be. A listing needs one.
func TestLockLink(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		outside, untouched := victim(t)
		s := openTest(t, t.TempDir(), calls)
		mustPut(t, s, "k", "old", store.IfAbsent())
		for _, rel := range []string{listLock, keyLock("k")} {
			_ = os.Remove(s.at(rel))
			if err := os.Symlink(filepath.Join(outside, "lock", "list"), s.at(rel)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Put(t.Context(), "k", nil, nil)
		names(t, err, s.at(keyLock("k")))
		names(t, s.Delete(t.Context(), "k"), s.at(listLock))
		for _, err := range s.List(t.Context(), "", nil) {
			names(t, err, s.at(listLock))
		}
		untouched()
	})
}

// TestReservedFile: what is no directory is an error that says so.
func TestReservedFile(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		for _, rel := range reservedDirs {
			dir := t.TempDir()
			if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, rel)), 0o755), os.WriteFile(filepath.Join(dir, rel), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			if _, err := open(dir, nil, calls); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "needs the directory .fencepost") {
				t.Errorf("%s is a file: %v", rel, err)
			}
		}
	})
}

// TestLinkAmongDirectories: no key leads through a link, wherever it is and leads to.
//
// guard:beneath. Without this check: the store finds the directory a. Somebody puts a link to another directory
// there. The store writes a/k, outside of its root.
//
// guard:beneath-walk. Without this check: the store finds the directory a. Somebody puts a link to another directory
// there. The store writes a/k, outside of its root.
func TestLinkAmongDirectories(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		outside, untouched := victim(t)
		for _, link := range []string{"a", "a/b", "a/b/c"} {
			for _, to := range []string{outside, "..", "/nowhere", "inside"} {
				s := openTest(t, t.TempDir(), calls)
				if err := errors.Join(os.MkdirAll(filepath.Dir(s.at(link)), 0o755), os.Mkdir(filepath.Join(filepath.Dir(s.at(link)), "inside"), 0o755), os.Symlink(to, s.at(link))); err != nil {
					t.Fatal(err)
				}
				writes, reads := everything(t, s, "a/b/c/k")
				for _, err := range append(writes, reads[0]) {
					names(t, err, s.at(link))
				}
				if got := keys(t, s, ""); len(got) > 0 {
					t.Errorf("List: %q", got)
				}
				if left := temps(t, s); len(left) > 0 {
					t.Errorf("temporary files: %q", left)
				}
			}
		}
		untouched()
	})
}

// TestLinkAtKey: a link is no object. It is neither read nor replaced nor deleted.
func TestLinkAtKey(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		outside, untouched := victim(t)
		for _, to := range []string{filepath.Join(outside, "a", "k"), "/nowhere", "other", outside} {
			s := openTest(t, t.TempDir(), calls)
			mustPut(t, s, "d/other", "x", store.IfAbsent())
			if err := os.Symlink(to, s.at("d/k")); err != nil {
				t.Fatal(err)
			}
			writes, reads := everything(t, s, "d/k")
			if !errors.Is(writes[0], store.ErrInvalid) || !errors.Is(writes[2], store.ErrInvalid) || writes[3] != nil || !errors.Is(reads[0], store.ErrNotFound) {
				t.Errorf("a link to %s: %v, %v", to, writes, reads)
			}
			if now, err := os.Readlink(s.at("d/k")); now != to {
				t.Errorf("the link is %q, %v", now, err)
			}
		}
		untouched()
	})
}

// TestReaderLeavesAll: a Store that only reads makes nothing and deletes nothing. The first write
// of a Store cleans up.
func TestReaderLeavesAll(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		dir := t.TempDir()
		read := func(want ...string) {
			t.Helper()
			for _, o := range []*Options{nil, {NoCreate: true}} {
				s, err := open(dir, o, calls)
				if err != nil {
					t.Fatal(err)
				}
				if got := keys(t, s, ""); !slices.Equal(got, want) {
					t.Errorf("List: %q", got)
				}
				bodyOf(t, s, "a/k")
			}
		}
		read()
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("a reader made %v, %v", entries, err)
		}
		mustPut(t, openTest(t, dir, calls), "a/k", "x", store.IfAbsent())
		dead := filepath.Join(dir, tempDir, rand.Text())
		if err := os.WriteFile(dead, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		read("a/k")
		if _, err := os.Lstat(dead); err != nil {
			t.Errorf("a reader cleaned up: %v", err)
		}
		s, err := open(dir, &Options{NoCreate: true}, calls)
		if err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "a/k", "y", store.Condition{})
		if _, err := os.Lstat(dead); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a writer did not clean up: %v", err)
		}
	})
}

// TestForeignTemporaries: of what is in the folder for temporary files only what a store made is deleted.
//
// guard:own-files. Without this check: somebody puts files into the folder for temporary files, or the backup of a
// stranger has some. The next write deletes them.
func TestForeignTemporaries(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		outside, untouched := victim(t)
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, tempDir, name) }
		mustPut(t, openTest(t, dir, calls), "k", "x", store.IfAbsent())
		socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		own, linked, long := rand.Text(), rand.Text(), rand.Text()
		left := []string{"thesis", strings.ToLower(rand.Text()), rand.Text()[1:], rand.Text() + "A", rand.Text()[1:] + "1", rand.Text()[1:] + "="}
		for _, name := range left {
			if err := os.WriteFile(at(name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for what, plant := range map[string]func(path string) error{
			"directory": func(path string) error { return os.Mkdir(path, 0o755) },
			"pipe":      func(path string) error { return unix.Mkfifo(path, 0o644) },
			"socket":    func(path string) error { return os.Rename(socket.Addr().String(), path) },
			"link":      func(path string) error { return os.Symlink(filepath.Join(outside, "a", "k"), path) },
			"three links": func(path string) error {
				return errors.Join(os.WriteFile(path, nil, 0o644), os.Link(path, filepath.Join(dir, "one")), os.Link(path, filepath.Join(dir, "two")))
			},
		} {
			name := rand.Text()
			if err := plant(at(name)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			left = append(left, name)
		}
		if err := errors.Join(os.WriteFile(at(own), nil, 0o644), os.WriteFile(at(linked), nil, 0o644), os.Link(at(linked), filepath.Join(dir, "object")), os.WriteFile(at(long), nil, 0o444)); err != nil {
			t.Fatal(err)
		}
		s := openTest(t, dir, calls)
		slices.Sort(left)
		if got := temps(t, s); !slices.Equal(got, left) {
			t.Errorf("left are %q, want %q", got, left)
		}
		untouched()
	})
}

// TestSwappedFolder: while somebody swaps a directory for a link again and again, at every system call of
// the store, nothing happens outside of the root.
func TestSwappedFolder(t *testing.T) {
	for _, rel := range []string{"a", "a/b", reserved, tempDir, lockDir} {
		eachWay(t, func(t *testing.T, calls calls) {
			outside, untouched := victim(t)
			dir := t.TempDir()
			mustPut(t, openTest(t, dir, calls), "a/b/k", "x", store.IfAbsent())
			at, aside, swapped := filepath.Join(dir, rel), filepath.Join(dir, "aside"), false
			swap := func() {
				if swapped = !swapped; swapped {
					if os.Rename(at, aside) == nil {
						_ = os.Symlink(outside, at)
					}
				} else if info, err := os.Lstat(at); err == nil && info.Mode().Type() == fs.ModeSymlink {
					_ = os.Remove(at)
					_ = os.Rename(aside, at)
				}
			}
			// In turn before each system call alone, and before it and all that follow.
			for n := 1; n < 60; n++ {
				for _, always := range []bool{false, true} {
					s, err := open(dir, nil, calls)
					if err != nil {
						t.Fatal(err)
					}
					made := 0
					s.calls.before = func(string, string) error {
						if made++; made == n || always && made > n {
							swap()
						}
						return nil
					}
					_, _ = everything(t, s, "a/b/k")
					if swapped {
						swap()
					}
				}
			}
			untouched()
		})
	}
}

// TestSwappedFolderAtOnce: so does a goroutine that swaps as fast as it can.
func TestSwappedFolderAtOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		outside, untouched := victim(t)
		s := openTest(t, t.TempDir(), calls)
		mustPut(t, s, "a/k", "x", store.IfAbsent())
		stop, done := make(chan struct{}), make(chan struct{})
		if err := os.Symlink(outside, s.at("link")); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = os.Rename(s.at("a"), s.at("aside"))
				_ = os.Rename(s.at("link"), s.at("a"))
				_ = os.Rename(s.at("a"), s.at("link"))
				_ = os.Rename(s.at("aside"), s.at("a"))
			}
		}()
		for range 100 {
			everything(t, s, "a/k")
			if obj, err := s.Get(t.Context(), "a/thesis", nil); err == nil {
				t.Error("a file outside of the root was read")
				_ = obj.Body.Close()
			}
			_ = s.Delete(t.Context(), "a/thesis")
		}
		close(stop)
		<-done
		untouched()
	})
}

// TestListWithoutLock: a listing in a directory where nobody ever wrote through a store needs no
// lock. If one appears meanwhile, so may a delete have.
//
// guard:no-list-lock. Without this check: the listing reads half of a directory. A process that writes for the first
// time makes the lock, creates 51 in that half, and deletes 50. The listing shows neither.
func TestListWithoutLock(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "n"), 0o755), os.WriteFile(filepath.Join(dir, "n", "49"), nil, 0o644), os.WriteFile(filepath.Join(dir, "n", "50"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	scans := 0
	s, err := open(dir, nil, calls{before: func(call, path string) error {
		if call != "readdir" || filepath.Base(path) != "n" {
			return nil
		}
		switch scans++; scans {
		case 1:
			other := openTest(t, dir, calls{})
			if err := other.Delete(t.Context(), "n/50"); err != nil {
				t.Error(err)
			}
		case 2:
			return os.WriteFile(filepath.Join(dir, "n", "51"), nil, 0o644)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s, ""); !slices.Contains(got, "n/51") {
		t.Errorf("List: %q after %d scans", got, scans)
	}
}

// TestTimesOfTheOpenFile: the time is set on the file that was written, not on what has its name by then.
func TestTimesOfTheOpenFile(t *testing.T) {
	s := openTest(t, t.TempDir(), calls{})
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	then := time.Unix(1_700_000_000, 0)
	if err := os.Chtimes(other, then, then); err != nil {
		t.Fatal(err)
	}
	s.calls.before = func(call, path string) error {
		if call == "chtimes" && strings.HasPrefix(path, s.at(tempDir)) {
			return errors.Join(os.Remove(path), os.Symlink(other, path))
		}
		return nil
	}
	_, _ = s.Put(t.Context(), "k", []byte("x"), nil)
	if info, err := os.Stat(other); err != nil || !info.ModTime().Equal(then) {
		t.Errorf("a file outside of the root has another time: %v, %v", info.ModTime(), err)
	}
}
