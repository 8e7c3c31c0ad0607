//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
)

// Delete implements [store.Store]. When it returns nil, the keys stay absent even if the
// machine crashes.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	rels := make([]string, len(keys))
	for i, key := range keys {
		rel, err := relPath("delete", key)
		if err != nil {
			return err
		}
		rels[i] = rel
	}
	if len(keys) == 0 {
		return nil
	}
	if err := s.prepare(); err != nil {
		return s.failure("delete", keys[0], err)
	}
	list, err := s.makeLock(listLock)
	if err != nil {
		return s.failure("delete", keys[0], err)
	}
	defer list.close()
	var dirs []string // each once, in order
	emptied := map[string]bool{}
	for i, key := range keys {
		if ctx.Err() != nil {
			return cancelled(ctx, "delete", key)
		}
		deleted, err := s.deleteOne(ctx, list, key, rels[i])
		if err != nil {
			if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
				return cancelled(ctx, "delete", key)
			}
			return s.failure("delete", key, err)
		}
		// Even for a missing key: the process that deleted it may not have synced yet.
		dir := path.Dir(rels[i])
		if _, seen := emptied[dir]; !seen {
			dirs = append(dirs, dir)
		}
		emptied[dir] = emptied[dir] || deleted
	}
	for _, dir := range dirs {
		if err := s.persist(dir); err != nil && !isNotDir(err) {
			return s.failure("delete", keys[0], err)
		}
		if emptied[dir] { // else the directory may be somebody else's
			s.prune(dir)
		}
	}
	if err := s.checkRoot(); err != nil {
		return s.failure("delete", keys[0], err)
	}
	return nil
}

// deleteOne deletes one object. It reports whether there was one.
func (s *Store) deleteOne(ctx context.Context, list *lockFile, key, rel string) (deleted bool, err error) {
	for range maxTries {
		done, err := s.deleteHere(ctx, list, key, rel)
		deleted = deleted || done
		if !done || !errors.Is(err, errMoved) {
			return deleted, err
		}
		// The path leads to another directory now, which may have an object, too, or to none.
	}
	return deleted, fmt.Errorf("dirstore: the directory of %q is replaced again and again", key)
}

// deleteHere unlinks one object. It holds the key's lock, so that no swap of the key brings
// it back, and the list lock, so that a listing sees what was created before the delete
// (see [Store.List]). It reports whether there was one.
func (s *Store) deleteHere(ctx context.Context, list *lockFile, key, rel string) (bool, error) {
	p, err := s.place(rel)
	if err != nil {
		return false, err
	}
	defer p.close()
	if e, err := p.stat(); err != nil || e == nil {
		return false, err
	}
	lock, err := s.makeLock(keyLock(key))
	if err != nil {
		return false, err
	}
	defer lock.close()
	// Both or none: a delete that waits for a stopped lister must not block swaps.
	unlock, err := s.lockAll(ctx, lock, list)
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := s.announce(list); err != nil {
		return false, err
	}
	e, err := p.stat()
	if err != nil || e == nil {
		return false, err
	}
	if err := s.checkRoot(); err != nil {
		return false, err
	}
	if err := s.calls.unlink(p.dir, p.base); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return false, err
	}
	// guard:deleted-here. A delete counts only if the directory of the key is still at its path, or has no such object there.
	if err := p.stays(); err != nil {
		return true, err
	}
	return true, nil
}

// prune removes empty directories, from dir upwards, but never the root. The kernel refuses
// to remove one that is not empty. A create whose directory vanishes makes it again.
func (s *Store) prune(dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		above, err := s.openDir(path.Dir(dir), searchOnly)
		if err == nil {
			err = s.calls.rmdir(above, path.Base(dir))
			above.close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return
		}
		s.dirs.drop(dir)
	}
}
