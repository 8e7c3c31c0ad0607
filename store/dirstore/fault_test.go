//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// errDead is what every call of a dead process would return, if it could.
var errDead = errors.New("this process is dead")

// operation is one method at work on a store in which "k" and "d/k" hold "old".
type operation struct {
	name string
	key  string // what it changes
	want string // what the key holds afterwards
	do   func(*testing.T, *Store, store.Version) error
}

var operations = []operation{
	{"create", "a/b/c", "new", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Put(t.Context(), "a/b/c", []byte("new"), &store.PutOptions{If: store.IfAbsent()})
		return err
	}},
	{"swap", "k", "new", func(t *testing.T, s *Store, v store.Version) error {
		_, err := s.Put(t.Context(), "k", []byte("new"), &store.PutOptions{If: store.IfMatch(v)})
		return err
	}},
	{"put over", "k", "new", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Put(t.Context(), "k", []byte("new"), nil)
		return err
	}},
	{"put anew", "a/b/c", "new", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Put(t.Context(), "a/b/c", []byte("new"), nil)
		return err
	}},
	{"upload", "a/b/c", "new", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Upload(t.Context(), "a/b/c", strings.NewReader("new"), &store.UploadOptions{Create: true})
		return err
	}},
	{"delete", "d/k", "-", func(t *testing.T, s *Store, _ store.Version) error {
		return s.Delete(t.Context(), "d/k")
	}},
}

// prepared is a store for an operation.
func prepared(t *testing.T, op operation) (dir string, version store.Version, before string) {
	dir = t.TempDir()
	s := openTest(t, dir, calls{})
	version = mustPut(t, s, "k", "old", store.IfAbsent()).Version
	mustPut(t, s, "d/k", "old", store.IfAbsent())
	return dir, version, bodyOf(t, s, op.key)
}

// TestCrashAtEachCall: a process dies before its first system call, its second,
// and so on to the last. The others find the object as it was or as it is to
// be, nothing else, and the next Open cleans up.
func TestCrashAtEachCall(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel() // it waits for the disk
			for n := 1; ; n++ {
				dir, version, before := prepared(t, op)
				made, last := 0, ""
				s := openTest(t, dir, calls{})
				s.calls.before = func(call, path string) error {
					if made++; made >= n {
						if made == n {
							last = call + " " + filepath.Base(path)
						}
						return errDead
					}
					return nil
				}
				err := op.do(t, s, version)
				if made < n {
					if err != nil {
						t.Fatalf("without a crash: %v", err)
					}
					if n < 8 {
						t.Fatalf("%d system calls: this tests nothing", n)
					}
					return
				}
				other := openTest(t, dir, calls{})
				at := fmt.Sprintf("death before call %d, %s", n, last)
				got := bodyOf(t, other, op.key)
				if got != before && got != op.want {
					t.Errorf("%s: %q holds %q", at, op.key, got)
				}
				if err == nil && got != op.want {
					t.Errorf("%s: acknowledged, but %q holds %q", at, op.key, got)
				}
				if left := temps(t, other); len(left) > 0 {
					t.Errorf("%s: Open leaves %q", at, left)
				}
				for _, key := range keys(t, other, "") {
					if body := bodyOf(t, other, key); body != "old" && body != "new" {
						t.Errorf("%s: %q holds %q", at, key, body)
					}
				}
				// Nothing that it left stands in the way.
				mustPut(t, other, op.key, "next", store.Condition{})
				if err := other.Delete(t.Context(), op.key, "k", "d/k"); err != nil {
					t.Errorf("%s: Delete: %v", at, err)
				}
				if left := keys(t, other, ""); len(left) > 0 {
					t.Errorf("%s: left are %q", at, left)
				}
			}
		})
	}
}

// TestFaultAtEachCall: each system call fails once, in several ways. What the
// caller is told agrees with what is there, and no temporary file stays.
func TestFaultAtEachCall(t *testing.T) {
	for _, op := range operations {
		for _, errno := range []unix.Errno{unix.EIO, unix.ENOSPC, unix.EACCES} {
			t.Run(fmt.Sprintf("%s/%v", op.name, errno), func(t *testing.T) {
				t.Parallel()
				failed := 0
				for n := 1; ; n++ {
					dir, version, before := prepared(t, op)
					made, last := 0, ""
					s := openTest(t, dir, calls{})
					s.calls.before = func(call, path string) error {
						if made++; made == n {
							last = call + " " + filepath.Base(path)
							return errno
						}
						return nil
					}
					err := op.do(t, s, version)
					if made < n {
						if failed < 5 {
							t.Errorf("only %d faults were noticed", failed)
						}
						return
					}
					at := fmt.Sprintf("%v at call %d, %s", errno, n, last)
					got := bodyOf(t, openTestNoClean(t, dir), op.key)
					switch outcome := store.OutcomeOf(err); {
					case got != before && got != op.want:
						t.Errorf("%s: %q holds %q", at, op.key, got)
					case outcome == store.Applied && got != op.want:
						t.Errorf("%s: acknowledged, but %q holds %q", at, op.key, got)
					case outcome == store.Refused:
						t.Errorf("%s: the condition held, but it says %v", at, err)
					case outcome == store.Rejected && got != before && op.name != "delete":
						t.Errorf("%s: it says %v, but %q holds %q", at, err, op.key, got)
					case outcome == store.Rejected && errno != unix.EACCES:
						t.Errorf("%s: it says for ever: %v", at, err)
					case err != nil:
						failed++
						e := (*store.Error)(nil)
						if !errors.As(err, &e) || !errors.Is(err, errno) {
							t.Errorf("%s: %#v is no *store.Error with its cause", at, err)
						} else if errno == unix.ENOSPC && got == before && !strings.Contains(e.Hint, "full") {
							t.Errorf("%s: the hint is %q", at, e.Hint)
						} else if errno == unix.EACCES && got == before && !errors.Is(err, store.ErrDenied) {
							t.Errorf("%s: %v, want %v", at, err, store.ErrDenied)
						}
					}
					if left := temps(t, s); len(left) > 0 && !strings.HasPrefix(last, "unlink") {
						t.Errorf("%s: left in tmp are %q", at, left)
					}
				}
			})
		}
	}
}

// openTestNoClean looks at a directory and leaves it as it is.
func openTestNoClean(t *testing.T, dir string) *Store {
	s, err := open(dir, nil, calls{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFaultyReads: reads tell why they fail.
func TestFaultyReads(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	mustPut(t, s, "a/k", "x", store.IfAbsent())
	for errno, kind := range map[unix.Errno]error{unix.EACCES: store.ErrDenied, unix.EIO: unix.EIO, unix.EMFILE: unix.EMFILE} {
		s.calls.before = func(string, string) error { return errno }
		if _, err := s.Get(t.Context(), "a/k", nil); !errors.Is(err, kind) {
			t.Errorf("Get with %v: %v, want %v", errno, err, kind)
		}
		var listErr error
		for _, err := range s.List(t.Context(), "a/", nil) {
			listErr = err
		}
		if !errors.Is(listErr, kind) {
			t.Errorf("List with %v: %v, want %v", errno, listErr, kind)
		}
		if _, err := open(dir, nil, s.calls); !errors.Is(err, kind) {
			t.Errorf("Open with %v: %v, want %v", errno, err, kind)
		}
	}
	s.calls.before = func(string, string) error { return unix.EACCES }
	if os.Geteuid() == 0 {
		dir := t.TempDir()
		if err := os.Chown(dir, 4242, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := open(dir, nil, s.calls); err == nil || !strings.Contains(err.Error(), dir+" belongs to user 4242: run as that user") {
			t.Errorf("Open of another's directory: %v", err)
		}
		return // to whom nothing is forbidden
	}
	s.calls.before = nil
	if err := os.Chmod(filepath.Join(dir, "a"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, "a"), 0o700)
	if _, err := s.Get(t.Context(), "a/k", nil); !errors.Is(err, store.ErrDenied) {
		t.Errorf("Get where nobody may read: %v, want %v", err, store.ErrDenied)
	}
}

// TestCleanerLeavesTheLiving: a temporary file that somebody is at work on
// stays; one that a cleaner took between its creation and its lock is given up.
func TestCleanerLeavesTheLiving(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	half := readerFunc(func([]byte) (int, error) {
		openTest(t, dir, calls{})
		if n := len(temps(t, s)); n != 1 {
			t.Errorf("%d temporary files while one is at work", n)
		}
		return 0, os.ErrClosed
	})
	if _, err := s.Upload(t.Context(), "u", half, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Upload: %v", err)
	}
	cleaned := 0
	s.calls.before = func(call, path string) error {
		if call == "flock" && filepath.Dir(path) == s.at(tempDir) && cleaned < 3 {
			cleaned++
			openTest(t, dir, calls{}) // removes it: nobody holds its lock yet
		}
		return nil
	}
	mustPut(t, s, "k", "x", store.IfAbsent())
	if cleaned != 3 || bodyOf(t, s, "k") != "x" {
		t.Errorf("cleaned %d times, k holds %q", cleaned, bodyOf(t, s, "k"))
	}
}

// TestCleanIsBounded: the first write of a Store removes so many, that of the next the others.
func TestCleanIsBounded(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	for range maxClean + 10 {
		if err := os.WriteFile(filepath.Join(s.at(tempDir), rand.Text()), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{10, 0} {
		openTest(t, dir, calls{})
		if n := len(temps(t, s)); n != want {
			t.Errorf("%d temporary files are left, want %d", n, want)
		}
	}
}

// TestT37_DeleteDuringScan: somebody creates the next number and deletes the
// newest while a listing is half way. The listing notices and reads again.
func TestT37_DeleteDuringScan(t *testing.T) {
	for _, renames := range []bool{false, true} {
		dir := t.TempDir()
		other := openTest(t, dir, calls{})
		other.renameMoves = renames
		mustPut(t, other, "n/0", "x", store.IfAbsent())
		info := mustPut(t, other, "n/1", "x", store.IfAbsent())
		scans := 0
		s := openTest(t, dir, calls{before: func(call, path string) error {
			if call != "readdir" || filepath.Base(path) != "n" {
				return nil
			}
			if scans++; scans == 1 {
				// Between the two, as if the entry moved behind the reader.
				if renames {
					mustPut(t, other, "n/1", "y", store.IfMatch(info.Version))
				} else if err := other.Delete(t.Context(), "n/1"); err != nil {
					t.Error(err)
				}
			}
			return nil
		}})
		keys(t, s, "n/")
		if scans < 3 { // each scan reads twice, the second time to see the end
			t.Errorf("renames %v: the listing did not begin again", renames)
		}
	}
}

// TestT37_StoppedDeleteDuringScan: a delete that was stopped after it had
// announced itself goes on while a listing, which could not wait for it, is half
// way. The listing has read twice and shows the object or the next.
func TestT37_StoppedDeleteDuringScan(t *testing.T) {
	dir := t.TempDir()
	other := openTest(t, dir, calls{})
	mustPut(t, other, "n/49", "x", store.IfAbsent())
	mustPut(t, other, "n/50", "x", store.IfAbsent())
	lock := holdListLock(t, other, unix.LOCK_EX)
	if err := other.announce(lock); err != nil {
		t.Fatal(err)
	}
	reads := 0
	s := openTest(t, dir, calls{before: func(call, path string) error {
		if call != "readdir" || filepath.Base(path) != "n" {
			return nil
		}
		// The reader cannot tell in which order this happens: to it, 50 is gone
		// when it comes there, and 51 was not there yet when it passed its place.
		switch reads++; reads {
		case 1:
			return os.Remove(filepath.Join(dir, "n", "50"))
		case 2:
			mustPut(t, other, "n/51", "x", store.IfAbsent())
		}
		return nil
	}})
	got := keys(t, s, "n/")
	lock.close()
	if !slices.Contains(got, "n/50") && !slices.Contains(got, "n/51") {
		t.Errorf("List shows %q: neither the newest when it began nor the next", got)
	}
}

// patient is a store whose every wait for the lock file at path ends after some
// tries, and the context for that.
func patient(t *testing.T, dir, path string) (*Store, context.Context) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	tries := 0
	return openTest(t, dir, calls{before: func(call, p string) error {
		if call == "flock" && p == path {
			if tries++; tries == 4 {
				cancel()
			}
		}
		return nil
	}}), ctx
}

// TestListEnds: a listing beside deletes that never end keeps them out after
// some tries.
func TestListEnds(t *testing.T) {
	dir := t.TempDir()
	scans, kept := 0, 0
	s := openTest(t, dir, calls{})
	mustPut(t, s, "n/0", "x", store.IfAbsent())
	s.calls.before = func(call, path string) error {
		if call != "readdir" || filepath.Base(path) != "n" {
			return nil
		}
		if scans++; scans > 10*undisturbed {
			return errDead
		}
		other, ctx := patient(t, dir, s.at(listLock))
		mustPut(t, other, "n/1", "x", store.Condition{})
		if err := other.Delete(ctx, "n/1"); err != nil {
			kept++
		}
		return nil
	}
	if got := keys(t, s, "n/"); len(got) == 0 || got[0] != "n/0" {
		t.Errorf("List: %q", got)
	}
	if kept == 0 || scans <= undisturbed {
		t.Errorf("%d reads, %d deletes kept out: this tests nothing", scans, kept)
	}
}

// TestSwapIsAtomic: neither a delete nor another write slips in between the
// comparison and the rename of a swap. After a delete it would bring the key back.
func TestSwapIsAtomic(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, calls{})
	info := mustPut(t, s, "k", "old", store.IfAbsent())
	s.calls.before = func(call, _ string) error {
		if call == "rename" {
			other, ctx := patient(t, dir, s.at(keyLock("k")))
			if err := other.Delete(ctx, "k"); err == nil {
				t.Error("Delete within a swap")
			}
			for _, cond := range []store.Condition{store.IfMatch(info.Version), {}} {
				other, ctx := patient(t, dir, s.at(keyLock("k")))
				if _, err := other.Put(ctx, "k", []byte("other"), &store.PutOptions{If: cond}); err == nil {
					t.Errorf("Put %v within a swap", cond)
				}
			}
		}
		return nil
	}
	mustPut(t, s, "k", "new", store.IfMatch(info.Version))
	if got := bodyOf(t, s, "k"); got != "new" {
		t.Errorf("after the swap: %q", got)
	}
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if got := bodyOf(t, s, "k"); got != "-" {
		t.Errorf("after the delete: %q", got)
	}
}
