//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Delete implements [store.Store]. When it returns nil, the absence of the keys
// survives a crash.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	paths := make([]string, len(keys))
	for i, key := range keys {
		path, err := s.path("delete", key)
		if err != nil {
			return err
		}
		paths[i] = path
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := os.Stat(s.root); err != nil {
		return s.failure("delete", keys[0], err)
	}
	list, err := s.openLock(s.listLock())
	if err != nil {
		return s.failure("delete", keys[0], err)
	}
	defer list.Close()
	var dirs []string // each once, in order; they share few
	seen := map[string]bool{}
	for i, key := range keys {
		if ctx.Err() != nil {
			return cancelled(ctx, "delete", key)
		}
		if err := s.deleteOne(ctx, list, key, paths[i]); err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return cancelled(ctx, "delete", key)
			}
			return s.failure("delete", key, err)
		}
		// Also if it was missing: whoever deleted it may not have come to the sync.
		if dir := filepath.Dir(paths[i]); !seen[dir] {
			seen[dir] = true
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		if err := s.persist(dir); err != nil && !isNotDir(err) {
			return s.failure("delete", keys[0], err)
		}
		s.prune(dir)
	}
	return nil
}

// deleteOne holds the key's lock, so that no swap puts back what it is about to
// replace, and the list lock, for one unlink: a listing must see what was
// created before (see [Store.List]).
func (s *Store) deleteOne(ctx context.Context, list *os.File, key, path string) error {
	if info, err := s.look(path); err != nil || info == nil {
		return err
	}
	lock, err := s.openLock(s.keyLock(key))
	if err != nil {
		return err
	}
	defer lock.Close()
	// Both or none: a delete that waits for a stopped lister holds up no swap.
	unlock, err := s.lockAll(ctx, lock, list)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.announce(list); err != nil {
		return err
	}
	info, err := s.look(path)
	if err != nil || info == nil {
		return err
	}
	if err := s.calls.unlink(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// prune removes directories that are empty now, from dir upwards, never the
// root. The kernel refuses one that is not empty, and a create that loses its
// directory in this way makes it again.
func (s *Store) prune(dir string) {
	for ; dir != s.root; dir = filepath.Dir(dir) {
		if err := s.calls.rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		s.dirs.drop(dir)
	}
}
