//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fencepost/fencepost/store"
)

// TestSecondNameKeepsMode: an object that has another name, perhaps outside, keeps its mode whoever reads it. It is
// synced again each time.
//
// guard:one-name. Without this check: somebody puts a hard link to a file of another directory among the objects. A
// process that only reads takes away the owner's right to write to that file.
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

// TestLockWithSecondName: after a copy with hard links (cp -al) the store goes on.
func TestLockWithSecondName(t *testing.T) {
	eachWay(t, func(t *testing.T, calls calls) {
		s := openTest(t, t.TempDir(), calls)
		mustPut(t, s, "k", "old", store.IfAbsent())
		mustPut(t, s, "k", "new", store.Condition{}) // makes the lock of the key
		for i, rel := range []string{keyLock("k"), listLock} {
			if err := os.Link(s.at(rel), filepath.Join(s.root, fmt.Sprint("copy", i))); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Put(t.Context(), "k", nil, nil)
		if err := errors.Join(err, listed(t, s, ""), s.Delete(t.Context(), "k")); err != nil {
			t.Error(err)
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
