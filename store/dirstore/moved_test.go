//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// replacements move the directory of a store, at base/dir/root, and put something else there or nothing.
// They return where it is then.
var replacements = map[string]func(base string) (moved string, err error){
	"copy": func(base string) (string, error) {
		root, moved := filepath.Join(base, "dir", "root"), filepath.Join(base, "moved")
		return moved, errors.Join(os.Rename(root, moved), os.CopyFS(root, os.DirFS(moved)))
	},
	"copy first": func(base string) (string, error) { // what is there is a directory at each instant but one
		root, next, moved := filepath.Join(base, "dir", "root"), filepath.Join(base, "next"), filepath.Join(base, "moved")
		return moved, errors.Join(os.CopyFS(next, os.DirFS(root)), os.Rename(root, moved), os.Rename(next, root))
	},
	"nothing": func(base string) (string, error) {
		return filepath.Join(base, "moved"), os.Rename(filepath.Join(base, "dir", "root"), filepath.Join(base, "moved"))
	},
	"empty": func(base string) (string, error) {
		root, moved := filepath.Join(base, "dir", "root"), filepath.Join(base, "moved")
		return moved, errors.Join(os.Rename(root, moved), os.Mkdir(root, 0o755))
	},
	"file": func(base string) (string, error) {
		root, moved := filepath.Join(base, "dir", "root"), filepath.Join(base, "moved")
		return moved, errors.Join(os.Rename(root, moved), os.WriteFile(root, nil, 0o644))
	},
	"link": func(base string) (string, error) {
		root, moved, other := filepath.Join(base, "dir", "root"), filepath.Join(base, "moved"), filepath.Join(base, "other")
		return moved, errors.Join(os.Rename(root, moved), os.CopyFS(other, os.DirFS(moved)), os.Symlink(other, root))
	},
	"link switched": func(base string) (string, error) { // as releases/current is; the directory stays
		root, target, other := filepath.Join(base, "dir", "root"), filepath.Join(base, "real"), filepath.Join(base, "other")
		return target, errors.Join(os.CopyFS(other, os.DirFS(target)), os.Remove(root), os.Symlink(other, root))
	},
	"link to itself": func(base string) (string, error) {
		root, moved := filepath.Join(base, "dir", "root"), filepath.Join(base, "moved")
		return moved, errors.Join(os.Rename(root, moved), os.Symlink(root, root))
	},
	"directory above": func(base string) (string, error) {
		dir, moved := filepath.Join(base, "dir"), filepath.Join(base, "moved")
		return filepath.Join(moved, "root"), errors.Join(os.Rename(dir, moved), os.CopyFS(dir, os.DirFS(moved)))
	},
	"file above": func(base string) (string, error) {
		dir, moved := filepath.Join(base, "dir"), filepath.Join(base, "moved")
		return filepath.Join(moved, "root"), errors.Join(os.Rename(dir, moved), os.WriteFile(dir, nil, 0o644))
	},
}

// tree is what is below dir, and since when. What is in the store's own folder does not count.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		all = append(all, fmt.Sprint(path, info.Mode(), info.ModTime(), info.Size()))
		if err == nil && path == filepath.Join(dir, reserved) {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// moving are the operations of a store that are asked after its root is another one.
var moving = slices.Concat(operations, []operation{
	{"create beside another", "", "", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Put(t.Context(), "d/new", nil, &store.PutOptions{If: store.IfAbsent()})
		return err
	}},
	{"delete nothing", "", "", func(t *testing.T, s *Store, _ store.Version) error { return s.Delete(t.Context(), "none") }},
	{"get", "", "", func(t *testing.T, s *Store, _ store.Version) error { return got(s.Get(t.Context(), "k", nil)) }},
	{"get nothing", "", "", func(t *testing.T, s *Store, _ store.Version) error { return got(s.Get(t.Context(), "none", nil)) }},
	{"get a change", "", "", func(t *testing.T, s *Store, v store.Version) error {
		return got(s.Get(t.Context(), "k", &store.GetOptions{IfNoneMatch: v}))
	}},
	{"list", "", "", func(t *testing.T, s *Store, _ store.Version) error { return listed(t, s, "") }},
	{"list nothing", "", "", func(t *testing.T, s *Store, _ store.Version) error { return listed(t, s, "none/") }},
	{"refused create", "", "", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Put(t.Context(), "k", nil, &store.PutOptions{If: store.IfAbsent()})
		return err
	}},
	{"refused swap", "", "", func(t *testing.T, s *Store, _ store.Version) error {
		_, err := s.Put(t.Context(), "k", nil, &store.PutOptions{If: store.IfMatch("other")})
		return err
	}},
})

func got(obj *store.Object, err error) error {
	if err == nil {
		_ = obj.Body.Close()
	}
	return err
}

func listed(t *testing.T, s *Store, prefix string) (last error) {
	for _, err := range s.List(t.Context(), prefix, nil) {
		last = err
	}
	return last
}

// TestRootMoved: a store whose directory was moved, or replaced, answers nothing and changes nothing: a
// process that opens the path now works on another directory.
//
// guard:same-root. Without this check: A leads. Somebody moves the directory of the log, and puts a copy there. B
// finds A's lock in the copy, where nobody renews it, and leads. A goes on in the moved directory.
func TestRootMoved(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		for how, move := range replacements {
			for _, written := range []bool{true, false} {
				base := t.TempDir()
				root, target := filepath.Join(base, "dir", "root"), filepath.Join(base, "real")
				if err := errors.Join(os.Mkdir(filepath.Dir(root), 0o755), os.Mkdir(target, 0o755)); err != nil {
					t.Fatal(err)
				}
				if how == "link switched" {
					if err := os.Symlink(target, root); err != nil {
						t.Fatal(err)
					}
				}
				s, err := open(root, nil, calls)
				if err != nil {
					t.Fatal(err)
				}
				version := store.Version("none")
				if written { // else the folder for locks is not made in what was moved
					version = mustPut(t, s, "k", "old", store.IfAbsent()).Version
					mustPut(t, s, "d/k", "old", store.IfAbsent())
				}
				moved, err := move(base)
				if err != nil {
					t.Fatal(err)
				}
				before := tree(t, moved)
				for _, op := range moving {
					err := op.do(t, s, version)
					if !errors.Is(err, store.ErrNoBucket) || !strings.Contains(err.Error(), root+" was moved") {
						t.Errorf("%s, written %v, %s: %v, want %v and a hint", how, written, op.name, err, store.ErrNoBucket)
					}
				}
				if after := tree(t, moved); !slices.Equal(before, after) {
					t.Errorf("%s: what was moved away was\n%q, is\n%q", how, before, after)
				}
			}
		}
	})
}

// TestRootMovedAtEachCall: somebody moves the directory, and puts a copy there, before the first system call of
// an operation, the second, and so on. What is acknowledged is in the copy, and what is rejected is nowhere.
func TestRootMovedAtEachCall(t *testing.T) {
	for _, op := range operations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel() // it waits for the disk
			unknown := 0
			for n := 1; ; n++ {
				base := t.TempDir()
				root := filepath.Join(base, "dir", "root")
				s := openTest(t, root, calls{})
				version := mustPut(t, s, "k", "old", store.IfAbsent()).Version
				mustPut(t, s, "d/k", "old", store.IfAbsent())
				before := bodyOf(t, s, op.key)
				made, last, moved := 0, "", ""
				s.calls.before = func(call, path string) (err error) {
					if made++; made == n {
						last = call + " " + filepath.Base(path)
						moved, err = replacements["copy"](base)
					}
					return err
				}
				err := op.do(t, s, version)
				if made < n {
					if unknown == 0 && op.name != "delete" {
						t.Error("no move was noticed after the effect")
					}
					return
				}
				at := fmt.Sprintf("moved before call %d, %s", n, last)
				here, there := bodyOf(t, openTest(t, root, calls{}), op.key), bodyOf(t, openTest(t, moved, calls{}), op.key)
				switch outcome := store.OutcomeOf(err); {
				case outcome == store.Applied && here != op.want:
					t.Errorf("%s: acknowledged, but %q holds %q where the directory was", at, op.key, here)
				case outcome == store.Rejected && op.name != "delete" && (here != before || there != before):
					t.Errorf("%s: it says %v, but %q holds %q, and %q in what was moved", at, err, op.key, here, there)
				case outcome == store.Refused:
					t.Errorf("%s: the condition held, but it says %v", at, err)
				case outcome == store.Unknown:
					unknown++
				}
			}
		})
	}
}

// TestRootByAnotherPath: a store goes on while its path leads to its directory, through whatever.
func TestRootByAnotherPath(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		base := t.TempDir()
		root, moved := filepath.Join(base, "root"), filepath.Join(base, "moved")
		s := openTest(t, root, calls)
		works := func(what string) {
			t.Helper()
			for _, op := range moving {
				info := mustPut(t, s, "k", "old", store.Condition{})
				mustPut(t, s, "d/k", "old", store.Condition{})
				if err := op.do(t, s, info.Version); errors.Is(err, store.ErrNoBucket) || store.OutcomeOf(err) == store.Unknown &&
					!errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrNotModified) {
					t.Errorf("%s, %s: %v", what, op.name, err)
				}
				if err := s.Delete(t.Context(), "k", "d/k", "d/new", "a/b/c"); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		works("as opened")
		if err := errors.Join(os.Rename(root, moved), os.Symlink(moved, root)); err != nil {
			t.Fatal(err)
		}
		works("moved, with a link in its place")
		link := filepath.Join(base, "link")
		if err := os.Symlink("root", link); err != nil {
			t.Fatal(err)
		}
		s = openTest(t, link, calls)
		works("opened through two links")
		if err := errors.Join(os.Remove(link), os.Symlink("moved", link), os.Remove(root)); err != nil {
			t.Fatal(err)
		}
		works("through another link")
		if err := errors.Join(os.Remove(link), os.Rename(moved, link)); err != nil {
			t.Fatal(err)
		}
		works("through none")
	})
}

// TestFolderMovedAtEachCall: the same of a folder in the directory. A write that is acknowledged is at its path.
//
// guard:root-acknowledged. Without this check: A is about to link a record. Somebody moves the directory, or the
// folder in it that the record goes to, and puts a copy there. A's record is acknowledged, but is only in what was
// moved. B leads in the copy, and creates another record under the same key.
func TestFolderMovedAtEachCall(t *testing.T) {
	for name, write := range map[string]func(s *Store, v store.Version) error{
		"create d/new": func(s *Store, _ store.Version) error {
			_, err := s.Put(t.Context(), "d/new", []byte("new"), &store.PutOptions{If: store.IfAbsent()})
			return err
		},
		"swap d/k": func(s *Store, v store.Version) error {
			_, err := s.Put(t.Context(), "d/k", []byte("new"), &store.PutOptions{If: store.IfMatch(v)})
			return err
		},
	} {
		_, key, _ := strings.Cut(name, " ")
		for n := 1; ; n++ {
			root := t.TempDir()
			s := openTest(t, root, calls{})
			version := mustPut(t, s, "d/k", "old", store.IfAbsent()).Version
			made, last := 0, ""
			s.calls.before = func(call, path string) (err error) {
				if made++; made == n {
					last = call + " " + filepath.Base(path)
					d, moved := filepath.Join(root, "d"), filepath.Join(root, "moved")
					// The copy keeps the times: the version in it is another one all the same.
					err = errors.Join(os.Rename(d, moved), os.CopyFS(d, os.DirFS(moved)))
				}
				return err
			}
			err := write(s, version)
			if made < n {
				break
			}
			s.calls.before = nil
			if here := bodyOf(t, s, key); err == nil && here != "new" {
				t.Errorf("%s, moved before call %d, %s: acknowledged, but %q holds %q", name, n, last, key, here)
			}
		}
	}
}

// TestFolderMovedDuringADelete: the same of a delete. What is deleted is not at its path.
//
// guard:deleted-here. Without this check: A is about to delete an object. Somebody moves the folder that it is in, and puts a copy
// there. A's delete is acknowledged, but only what was moved lacks the object. A takes it for gone, and readers find it.
func TestFolderMovedDuringADelete(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		for n := 1; ; n++ {
			root := t.TempDir()
			s := openTest(t, root, calls)
			mustPut(t, s, "d/k", "old", store.IfAbsent())
			mustPut(t, s, "d/l", "old", store.IfAbsent())
			made, last := 0, ""
			s.calls.before = func(call, path string) (err error) {
				if made++; made == n {
					last = call + " " + filepath.Base(path)
					d, moved := filepath.Join(root, "d"), filepath.Join(root, "moved")
					err = errors.Join(os.Rename(d, moved), os.CopyFS(d, os.DirFS(moved)))
				}
				return err
			}
			err := s.Delete(t.Context(), "d/k")
			if made < n {
				break
			}
			s.calls.before = nil
			if _, got := s.Get(t.Context(), "d/k", nil); err == nil && !errors.Is(got, store.ErrNotFound) {
				t.Errorf("moved before call %d, %s: acknowledged, but it is there: %v", n, last, got)
			}
		}
	})
}

// Two delete the last objects of a folder: one removes the folder while the other looks whether it is still there.
func TestFolderRemovedDuringADelete(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		for n := 1; ; n++ {
			root := t.TempDir()
			s, other := openTest(t, root, calls), openTest(t, root, calls)
			mustPut(t, s, "d/k", "old", store.IfAbsent())
			made := 0
			s.calls.before = func(call, _ string) error {
				if call == "open" || call == "rmdir" {
					if made++; made == n {
						_ = os.Remove(other.at("d")) // as prune does
					}
				}
				return nil
			}
			if err := s.Delete(t.Context(), "d/k"); err != nil {
				t.Errorf("removed before call %d: %v", n, err)
			}
			if made < n {
				break
			}
		}
	})
}

// TestLocksRemoved: somebody removes the store's own folder while a swap waits for a lock in it, since its holder
// hangs. Another process makes the folder again, and holds the same lock in a new file.
//
// guard:same-lock. Without this check: C is frozen, and holds a lock; A waits for it. An operator removes the folder of
// the locks. B makes it again, locks, and compares the version. C is killed. A has the lock in the old file, and compares
// the version, too. Both replace the object, and both lead.
func TestLocksRemoved(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		root := t.TempDir()
		version := mustPut(t, openTest(t, root, calls), "k", "old", store.IfAbsent()).Version
		swap := func(s *Store, body string) error {
			_, err := s.Put(t.Context(), "k", []byte(body), &store.PutOptions{If: store.IfMatch(version)})
			return err
		}
		holds, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
		s, removed := openTest(t, root, calls), false
		s.calls.before = func(call, path string) (err error) {
			if call == "flock" && strings.HasPrefix(filepath.Base(path), "key-") && !removed {
				removed = true
				err = os.RemoveAll(filepath.Join(root, reserved, "lock"))
				other := openTest(t, root, calls)
				other.calls.before = func(call, path string) error {
					if call == "rename" && filepath.Base(path) == "k" {
						close(holds)
						<-goOn
					}
					return nil
				}
				go func() { done <- swap(other, "other") }()
				select {
				case <-holds:
				case err := <-done:
					t.Fatal(err)
				}
			}
			return err
		}
		err := swap(s, "mine")
		close(goOn)
		if otherErr := <-done; err == nil || otherErr != nil {
			t.Errorf("%v, and the other one: %v", err, otherErr)
		}
		if got := bodyOf(t, s, "k"); got != "other" {
			t.Errorf("it holds %q", got)
		}
	})
}

// TestListLockRemoved: the same while a listing reads.
//
// guard:same-list-lock. Without this check: a lister has opened the list lock, and reads the first half of a folder. An operator
// removes the folder of the locks. Another process makes it again, creates 51 in that half, and deletes 50, which it announces
// in the new file. The listing shows neither.
func TestListLockRemoved(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		root := t.TempDir()
		s := openTest(t, root, calls)
		mustPut(t, s, "d/50", "old", store.IfAbsent())
		made := false
		s.calls.before = func(call, path string) (err error) {
			if call == "readdir" && !made {
				made = true
				err = os.RemoveAll(filepath.Join(root, reserved))
				mustPut(t, openTest(t, root, calls), "other", "new", store.IfAbsent())
			}
			return err
		}
		if err := listed(t, s, "d/"); err == nil || store.Permanent(err) {
			t.Errorf("the listing counts: %v", err)
		}
		if err := listed(t, s, "d/"); err != nil {
			t.Error(err)
		}
	})
}
