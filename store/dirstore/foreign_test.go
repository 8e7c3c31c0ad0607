//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// TestSecondNameKeepsMode: an object that has another name, perhaps outside, keeps its mode whoever reads it. It is
// synced again each time.
func TestSecondNameKeepsMode(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		root, outside := t.TempDir(), filepath.Join(t.TempDir(), "thesis")
		if err := errors.Join(os.WriteFile(outside, []byte("mine"), 0o644), os.Link(outside, filepath.Join(root, "k"))); err != nil {
			t.Fatal(err)
		}
		syncs := 0
		calls.before = func(call, _ string) error {
			if call == "sync" {
				syncs++
			}
			return nil
		}
		s, err := open(root, &Options{NoCreate: true}, calls)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			if got := bodyOf(t, s, "k"); got != "mine" || syncs != n {
				t.Errorf("it reads %q after %d syncs, want %d", got, syncs, n)
			}
		}
		keys(t, s, "")
		if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("a file outside of the root has the mode %v, %v", info.Mode(), err)
		}
	})
}

// TestLockWithSecondName: a lock that has another name, perhaps outside, is an error that names it.
func TestLockWithSecondName(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		outside := filepath.Join(t.TempDir(), "thesis")
		if err := os.WriteFile(outside, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(outside)
		if err != nil {
			t.Fatal(err)
		}
		put := func(s *Store) error { _, err := s.Put(t.Context(), "k", nil, nil); return err }
		for _, c := range []struct {
			what, rel string
			fresh     bool // a Store at its first write
			do        func(*Store) error
		}{
			{"Put", keyLock("k"), false, put},
			{"Delete", keyLock("k"), false, func(s *Store) error { return s.Delete(t.Context(), "k") }},
			{"Delete", listLock, false, func(s *Store) error { return s.Delete(t.Context(), "k") }},
			{"List", listLock, false, func(s *Store) error { return listed(t, s, "") }},
			{"the first Put", listLock, true, put},
		} {
			s := openTest(t, t.TempDir(), calls)
			mustPut(t, s, "k", "old", store.IfAbsent())
			_ = os.Remove(s.at(c.rel))
			if err := os.Link(outside, s.at(c.rel)); err != nil {
				t.Fatal(err)
			}
			s.prepared.Store(!c.fresh)
			if err := c.do(s); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), s.at(c.rel)) || !strings.Contains(err.Error(), "2 names") {
				t.Errorf("%s: %v, want %v that names %s", c.what, err, store.ErrInvalid, c.rel)
			}
			if err := errors.Join(os.Remove(s.at(c.rel)), c.do(s)); err != nil {
				t.Errorf("%s when the link is gone: %v", c.what, err)
			}
		}
		if after, err := os.Stat(outside); err != nil || !after.ModTime().Equal(before.ModTime()) {
			t.Errorf("a file outside of the root has another time: %v, %v", after.ModTime(), err)
		}
	})
}

// TestDeleteSparesDirectories: a delete removes a directory that it has emptied, and those above that it has
// emptied with it. Others may be somebody's.
func TestDeleteSparesDirectories(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		s := openTest(t, t.TempDir(), calls)
		if err := os.MkdirAll(s.at("mine/empty"), 0o755); err != nil {
			t.Fatal(err)
		}
		mustPut(t, s, "a/b/k", "x", store.IfAbsent())
		mustPut(t, s, "a/b/l", "x", store.IfAbsent())
		if err := s.Delete(t.Context(), "mine/empty/nothing", "mine/nothing", "mine/empty", "mine", "a/b/k", "a/b/l", "a/b/nothing"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(s.at("mine/empty")); err != nil {
			t.Errorf("a directory in which nothing was deleted: %v", err)
		}
		if _, err := os.Stat(s.at("a")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a directory that was emptied: %v", err)
		}
	})
}
