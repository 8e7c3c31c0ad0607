//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// openTest opens a store as a writer does that is at its first write.
func openTest(t testing.TB, dir string, calls calls) *Store {
	t.Helper()
	s, err := open(dir, nil, calls)
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func mustPut(t testing.TB, s *Store, key, body string, cond store.Condition) store.Info {
	t.Helper()
	info, err := s.Put(t.Context(), key, []byte(body), &store.PutOptions{If: cond})
	if err != nil {
		t.Fatalf("Put(%q): %v", key, err)
	}
	return info
}

// bodyOf is the body under key, or "-" if there is none.
func bodyOf(t testing.TB, s *Store, key string) string {
	t.Helper()
	obj, err := s.Get(t.Context(), key, nil)
	if errors.Is(err, store.ErrNotFound) {
		return "-"
	}
	if err != nil {
		t.Fatalf("Get(%q): %v", key, err)
	}
	defer obj.Body.Close()
	body, err := io.ReadAll(obj.Body)
	if err != nil {
		t.Fatalf("Get(%q): %v", key, err)
	}
	return string(body)
}

func keys(t testing.TB, s *Store, prefix string) []string {
	t.Helper()
	var all []string
	for info, err := range s.List(t.Context(), prefix, nil) {
		if err != nil {
			t.Fatalf("List(%q): %v", prefix, err)
		}
		all = append(all, info.Key)
	}
	return all
}

func temps(t testing.TB, s *Store) []string {
	t.Helper()
	entries, err := os.ReadDir(s.at(tempDir))
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

func TestPlainFiles(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, filepath.Join(dir, "made", "by", "open"), calls{})
	mustPut(t, s, "a/b", "hello", store.IfAbsent())
	mustPut(t, s, ".fencepost/x", "escaped", store.IfAbsent())
	for rel, want := range map[string]string{"a/b": "hello", ".fencepost%/x": "escaped"} {
		path := filepath.Join(s.root, rel)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", rel, got, err, want)
		}
		if info, err := os.Stat(path); err != nil || pending(info.Mode()) {
			t.Errorf("%s is not read-only when it is durable: %v, %v", rel, info.Mode(), err)
		}
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{".fencepost/x", "a/b"}) {
		t.Errorf("List: %q", got)
	}
	if len(temps(t, s)) > 0 {
		t.Errorf("temporary files are left: %q", temps(t, s))
	}
	traits := s.Traits()
	if !traits.MultiProcess || traits.Name != "file://"+s.root {
		t.Errorf("Traits: %+v", traits)
	}
}

// TestForeignFiles: what is no object is neither listed nor read nor deleted,
// and what people put there by hand is an object.
func TestForeignFiles(t *testing.T) {
	ctx := t.Context()
	s := openTest(t, t.TempDir(), calls{})
	at := func(rel string) string { return filepath.Join(s.root, rel) }
	outside := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(
		os.WriteFile(outside, []byte("x"), 0o600),
		os.Mkdir(at("dir"), 0o700),
		os.WriteFile(at("dir/by hand"), []byte("copied"), 0o644),
		os.WriteFile(at("no\nkey"), nil, 0o644),
		os.Symlink(outside, at("link")),
		os.Symlink(filepath.Dir(outside), at("linkdir")),
		unix.Mkfifo(at("pipe"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s, ""); !slices.Equal(got, []string{"dir/by hand"}) {
		t.Errorf("List: %q", got)
	}
	if got := bodyOf(t, s, "dir/by hand"); got != "copied" {
		t.Errorf("the copied file reads %q", got)
	}
	for _, key := range []string{"link", "pipe", "dir", "dir/by hand/below"} {
		if got := bodyOf(t, s, key); got != "-" {
			t.Errorf("Get(%q): %q", key, got)
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete(%q): %v", key, err)
		}
		for _, cond := range []store.Condition{store.IfAbsent(), {}} {
			if _, err := s.Put(ctx, key, nil, &store.PutOptions{If: cond}); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("Put(%q, %v): %v, want %v", key, cond, err, store.ErrInvalid)
			}
		}
		if _, err := s.Put(ctx, key, nil, &store.PutOptions{If: store.IfMatch("x")}); !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("Put(%q, if match): %v, want %v", key, err, store.ErrPrecondition)
		}
	}
	if _, err := s.Put(ctx, "linkdir/x", nil, &store.PutOptions{If: store.IfAbsent()}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Put below a link: %v", err)
	}
	if _, err := s.Get(ctx, "linkdir/secret", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("Get below a link: %v", err)
	}
	for _, err := range s.List(ctx, "linkdir/", nil) {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("List of a link: %v", err)
		}
	}
	for _, rel := range []string{"link", "linkdir", "pipe", "dir/by hand", "no\nkey"} {
		if _, err := os.Lstat(at(rel)); err != nil {
			t.Errorf("%q: %v", rel, err)
		}
	}
	if len(temps(t, s)) > 0 {
		t.Errorf("temporary files are left: %q", temps(t, s))
	}
}

// TestDirectoryConflicts: no key is another's directory; an empty directory
// that a crash left is no obstacle.
func TestDirectoryConflicts(t *testing.T) {
	ctx := t.Context()
	s := openTest(t, t.TempDir(), calls{})
	mustPut(t, s, "a/b", "x", store.IfAbsent())
	for _, key := range []string{"a", "a/b/c", "a/b/c/d"} {
		for _, cond := range []store.Condition{store.IfAbsent(), {}} {
			_, err := s.Put(ctx, key, nil, &store.PutOptions{If: cond})
			if e := (*store.Error)(nil); !errors.Is(err, store.ErrInvalid) || !errors.As(err, &e) || e.Hint == "" {
				t.Errorf("Put(%q, %v): %v, want %v and a hint", key, cond, err, store.ErrInvalid)
			}
		}
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("Delete(%q): %v", key, err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, "empty", "object", store.IfAbsent())
	if got := keys(t, s, ""); !slices.Equal(got, []string{"a/b", "empty"}) {
		t.Errorf("List: %q", got)
	}
}

// TestDeletePrunes: directories go with their last object, the root stays.
func TestDeletePrunes(t *testing.T) {
	s := openTest(t, t.TempDir(), calls{})
	for _, key := range []string{"a/b/c/d", "a/b/e", "f"} {
		mustPut(t, s, key, "x", store.IfAbsent())
	}
	left := func(want ...string) {
		t.Helper()
		var got []string
		entries, err := os.ReadDir(s.root)
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if err != nil || !slices.Equal(got, append([]string{reserved}, want...)) {
			t.Errorf("in the root are %q, %v; want %q", got, err, want)
		}
	}
	for _, step := range []struct {
		key  string
		left []string
	}{{"a/b/c/d", []string{"a", "f"}}, {"a/b/e", []string{"f"}}, {"f", nil}} {
		if err := s.Delete(t.Context(), step.key); err != nil {
			t.Fatalf("Delete(%q): %v", step.key, err)
		}
		left(step.left...)
	}
	mustPut(t, s, "a/b/c/d", "again", store.IfAbsent())
}

// TestCreateAgainstPrune: a create whose directory is removed as empty, again
// and again, makes it again.
func TestCreateAgainstPrune(t *testing.T) {
	dir := t.TempDir()
	n := 0
	s := openTest(t, dir, calls{before: func(call, path string) error {
		if call == "link" && n < 5 {
			n++
			_ = os.Remove(filepath.Join(dir, "a", "b"))
			_ = os.Remove(filepath.Join(dir, "a"))
		}
		return nil
	}})
	mustPut(t, s, "a/b/c", "x", store.IfAbsent())
	if got := bodyOf(t, s, "a/b/c"); got != "x" || n != 5 {
		t.Errorf("got %q after %d removals", got, n)
	}
}

func TestURL(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with space #1?")
	u := url.URL{Scheme: "file", Path: dir}
	if _, err := store.Open(t.Context(), u.String()+"?create=false"); !errors.Is(err, store.ErrNoBucket) {
		t.Errorf("create=false: %v, want %v", err, store.ErrNoBucket)
	}
	st, err := store.Open(t.Context(), u.String())
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if got := st.Traits().Name; got != u.String() {
		t.Errorf("Name is %q, want the URL %q", got, u.String())
	}
	for raw, hint := range map[string]string{
		"file://relative/dir":       "relative",
		"file://./dir":              "relative",
		"file:dir":                  "relative",
		"file://":                   "file:///",
		"file:///x?shared=1":        "shared",
		"file:///x?create=maybe":    "true or false",
		"file:///x#y":               "%23",
		"file://user:secret@/x":     "user",
		"file://user:secret@host/x": "relative",
		"file://user:/secret@x/y":   "relative",
		"file:///x?create=secret":   "true or false",
	} {
		_, err := store.Open(t.Context(), raw)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q): %v, want %v that says %q", raw, err, store.ErrInvalid, hint)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir  string
		opts *Options
		want error
	}{
		{"", nil, store.ErrInvalid},
		{file, nil, store.ErrInvalid},
		{filepath.Join(file, "below"), nil, store.ErrInvalid},
		{filepath.Join(dir, "none"), &Options{NoCreate: true}, store.ErrNoBucket},
	} {
		if _, err := Open(tt.dir, tt.opts); !errors.Is(err, tt.want) {
			t.Errorf("Open(%q): %v, want %v", tt.dir, err, tt.want)
		}
	}
	for _, path := range []string{"/", "/below", "/far/below"} {
		if _, err := store.Open(t.Context(), "file://"+file+path); err == nil || !strings.Contains(err.Error(), file+" is a file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	// The root itself may be a link.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, link, calls{})
	mustPut(t, s, "a/b", "x", store.IfAbsent())
}

func TestRootGone(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "root")
	s := openTest(t, dir, calls{})
	mustPut(t, s, "a/b", "x", store.IfAbsent())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, getErr := s.Get(ctx, "a/b", nil)
	_, putErr := s.Put(ctx, "a/b", nil, &store.PutOptions{If: store.IfAbsent()})
	_, upErr := s.Upload(ctx, "a/b", strings.NewReader(""), nil)
	var listErr error
	for _, err := range s.List(ctx, "a/", nil) {
		listErr = err
	}
	for what, err := range map[string]error{"Get": getErr, "Put": putErr, "Upload": upErr, "List": listErr, "Delete": s.Delete(ctx, "a/b")} {
		if !errors.Is(err, store.ErrNoBucket) {
			t.Errorf("%s without the directory: %v, want %v", what, err, store.ErrNoBucket)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made again")
	}
}

// fixedClock is a wall clock that stands still, or is set back.
type fixedClock struct {
	clock.Clock
	now time.Time
}

func (c *fixedClock) Wall() time.Time { return c.now }

// TestVersionsWithoutClock: along swaps versions never repeat and times rise,
// although the wall clock stands still or goes back, and inode numbers come
// again at once.
func TestVersionsWithoutClock(t *testing.T) {
	wall := &fixedClock{Clock: clock.System(), now: time.Unix(1_700_000_000, 0)}
	s, err := Open(t.TempDir(), &Options{Clock: wall})
	if err != nil {
		t.Fatal(err)
	}
	now := mustPut(t, s, "k", "0000", store.IfAbsent())
	seen := map[store.Version]bool{now.Version: true}
	for i := range 100 {
		if i%10 == 0 {
			wall.now = wall.now.Add(-time.Hour)
		}
		cond := store.IfMatch(now.Version)
		if i%3 == 0 {
			cond = store.Condition{}
		}
		next := mustPut(t, s, "k", fmt.Sprintf("%04d", i), cond)
		if seen[next.Version] {
			t.Fatalf("version %q comes twice", next.Version)
		}
		if !next.LastModified.After(now.LastModified) {
			t.Fatalf("LastModified went from %v to %v", now.LastModified, next.LastModified)
		}
		seen[next.Version] = true
		now = next
	}
}

// TestOvertakenPut: an unconditional Put whose file was ready before another
// swap became visible is still later than it.
func TestOvertakenPut(t *testing.T) {
	dir := t.TempDir()
	other := openTest(t, dir, calls{})
	first := mustPut(t, other, "k", "first", store.IfAbsent())
	var second store.Info
	s := openTest(t, dir, calls{before: func(call, path string) error {
		if call == "flock" && strings.Contains(path, "key-") && second.Version == "" {
			second = mustPut(t, other, "k", "second", store.IfMatch(first.Version))
		}
		return nil
	}})
	third := mustPut(t, s, "k", "third", store.Condition{})
	if !third.LastModified.After(second.LastModified) {
		t.Errorf("the later write has time %v, the earlier %v", third.LastModified, second.LastModified)
	}
	if _, err := s.Put(t.Context(), "k", nil, &store.PutOptions{If: store.IfMatch(third.Version)}); err != nil {
		t.Errorf("the version that Put returned is not the one stored: %v", err)
	}
}

// TestCoarseTimes: a file system that cuts times is refused, as versions could
// repeat.
func TestCoarseTimes(t *testing.T) {
	wall := &fixedClock{Clock: clock.System(), now: time.Unix(1_700_000_000, 5)}
	s, err := Open(t.TempDir(), &Options{Clock: wall})
	if err != nil {
		t.Fatal(err)
	}
	s.calls.before = func(call, path string) error {
		if call == "sync" && strings.HasPrefix(path, s.at(tempDir)) {
			return os.Chtimes(path, time.Time{}, time.Unix(1_700_000_000, 0))
		}
		return nil
	}
	if _, err := s.Put(t.Context(), "k", nil, &store.PutOptions{If: store.IfAbsent()}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Put where times are in seconds: %v, want %v", err, store.ErrUnsupported)
	}
}

// TestListWhileDeleting: a caller may delete what it lists, as it lists.
func TestListWhileDeleting(t *testing.T) {
	ctx := t.Context()
	s := openTest(t, t.TempDir(), calls{})
	for i := range 20 {
		mustPut(t, s, fmt.Sprintf("d/%d", i), "x", store.IfAbsent())
	}
	n := 0
	for info, err := range s.List(ctx, "d/", nil) {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(ctx, info.Key); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 20 || len(keys(t, s, "")) != 0 {
		t.Errorf("listed %d of 20, left %q", n, keys(t, s, ""))
	}
}

// TestStartAfterSkips: directories all of whose keys are not greater are not
// read.
func TestStartAfterSkips(t *testing.T) {
	ctx := t.Context()
	read := map[string]bool{}
	dir := t.TempDir()
	s := openTest(t, dir, calls{before: func(call, path string) error {
		if call == "readdir" {
			read[filepath.Base(path)] = true
		}
		return nil
	}})
	for _, key := range []string{"d/01/a", "d/02/a", "d/02/b", "d/03/a", "d/02.x"} {
		mustPut(t, s, key, "x", store.IfAbsent())
	}
	clear(read)
	var got []string
	for info, err := range s.List(ctx, "d/", &store.ListOptions{StartAfter: "d/02/a"}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
	}
	if !slices.Equal(got, []string{"d/02/b", "d/03/a"}) {
		t.Errorf("listed %q", got)
	}
	if want := map[string]bool{"d": true, "02": true, "03": true}; !maps.Equal(read, want) {
		t.Errorf("read the directories %v, want %v", read, want)
	}
}

// TestUploadMemory: an upload is written as it is read.
func TestUploadMemory(t *testing.T) {
	s := openTest(t, t.TempDir(), calls{})
	const size = 64 << 20
	largest := 0
	body := io.LimitReader(readerFunc(func(p []byte) (int, error) {
		largest = max(largest, len(p))
		return copy(p, bytes.Repeat([]byte{7}, 4096)), nil
	}), size)
	info, err := s.Upload(t.Context(), "u", body, nil)
	if err != nil || info.Size != size {
		t.Fatalf("Upload: %d bytes, %v", info.Size, err)
	}
	if largest > 1<<20 {
		t.Errorf("it reads %d bytes at once", largest)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestCancelCause: an error tells both that the context ended and why.
func TestCancelCause(t *testing.T) {
	s := openTest(t, t.TempDir(), calls{})
	why := errors.New("the lease is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, err := s.Put(ctx, "k", nil, nil)
	if !errors.Is(err, why) || !errors.Is(err, context.Canceled) || store.OutcomeOf(err) != store.Unknown {
		t.Errorf("got %v", err)
	}
}
