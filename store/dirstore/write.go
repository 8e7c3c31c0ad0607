//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// maxTries bounds loops that another process could keep going for ever.
const maxTries = 1000

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	return s.write(ctx, "put", key, opts.Condition(), func(t *temp) error {
		return s.calls.write(t.f, body)
	})
}

// Upload implements [store.Store]. The body goes into a file that becomes visible when it
// is complete. Create always holds.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	var cond store.Condition
	if opts != nil && opts.Create {
		cond = store.IfAbsent()
	}
	return s.write(ctx, "upload", key, cond, func(t *temp) error {
		buf := make([]byte, 256<<10)
		for {
			if ctx.Err() != nil {
				return cancelled(ctx, "upload", key)
			}
			n, readErr := body.Read(buf)
			if err := s.calls.write(t.f, buf[:n]); err != nil {
				return err
			}
			if readErr == io.EOF {
				return nil
			}
			if readErr != nil {
				return &store.Error{Op: "upload", Key: key, Err: readErr, Hint: "the body could not be read; nothing was written"}
			}
		}
	})
}

func (s *Store) write(ctx context.Context, op, key string, cond store.Condition, fill func(*temp) error) (store.Info, error) {
	path, err := s.path(op, key)
	if err != nil {
		return store.Info{}, err
	}
	if ctx.Err() != nil {
		return store.Info{}, cancelled(ctx, op, key)
	}
	// Everything slow comes before the decision, and without a lock. If the condition does
	// not hold already, that is the answer.
	old, err := s.stat(path)
	if err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	if !holds(cond, old) {
		return store.Info{}, s.refuse(op, key, path)
	}
	t, err := s.newTemp()
	if err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	defer s.discard(t)
	if err := fill(t); err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	var after time.Time
	if old != nil {
		after = old.ModTime()
	}
	if err := s.finish(t, after); err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	switch err := s.publish(ctx, t, key, path, cond); {
	case errors.Is(err, errTaken):
		return store.Info{}, s.refuse(op, key, path)
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return store.Info{}, cancelled(ctx, op, key)
	case err != nil:
		return store.Info{}, s.failure(op, key, err)
	}
	// The object is visible. An error from here on leaves the outcome unknown.
	if err := s.persist(filepath.Dir(path)); err != nil {
		return store.Info{}, unsure(op, key, err)
	}
	_ = s.calls.chmod(t.f, t.mode&^0o222) // durable: see pendingMark
	return s.info(key, t.info), nil
}

// stat returns what is at path, nil if that is no object.
func (s *Store) stat(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), isNotDir(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, nil
	}
	return info, nil
}

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }

func holds(cond store.Condition, old fs.FileInfo) bool {
	if cond == store.IfAbsent() {
		return old == nil
	}
	if match, ok := cond.Match(); ok {
		return old != nil && version(old) == match
	}
	return true
}

// refuse returns the error of a condition that does not hold. Before that it makes the
// object durable because of which the condition fails: a caller that yields to it must not
// find it gone after a crash.
func (s *Store) refuse(op, key, path string) error {
	info, err := s.stat(path)
	if err == nil && info != nil && pending(info) {
		err = s.persist(filepath.Dir(path))
	}
	if err != nil {
		return s.failure(op, key, err)
	}
	return refused(op, key)
}

// publish makes the finished file visible at path if cond holds; else it is errTaken. After
// an error the file is not visible.
func (s *Store) publish(ctx context.Context, t *temp, key, path string, cond store.Condition) error {
	if cond == store.IfAbsent() {
		return s.create(t, path)
	}
	for range maxTries {
		replaced, err := s.replace(ctx, t, key, path, cond)
		if replaced || err != nil {
			return err
		}
		// There is no object, and cond does not ask for one. Linking needs no lock, and
		// cannot replace what a concurrent create puts there.
		if err := s.create(t, path); !errors.Is(err, errTaken) {
			return err
		}
	}
	return fmt.Errorf("dirstore: the object was created and deleted again and again")
}

// create links the file to its name. Of several links to one name one succeeds.
func (s *Store) create(t *temp, path string) error {
	var err error
	for range maxTries {
		err = s.calls.link(t.path, path)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist):
			// The directory is missing, or a delete has removed it, since it was empty. With
			// the link in it no delete can.
			if err := s.mkdirs(filepath.Dir(path)); err != nil {
				return err
			}
		case errors.Is(err, fs.ErrExist):
			info, statErr := os.Lstat(path)
			switch {
			case errors.Is(statErr, fs.ErrNotExist): // deleted just now
			case statErr != nil:
				return statErr
			case info.Mode().IsRegular():
				return errTaken
			case !info.IsDir():
				return &store.Error{Op: "put", Key: path, Kind: store.ErrInvalid, Hint: "something is there that is neither an object nor a directory"}
			default:
				// There are objects below it, or a process died between mkdir and link.
				if err := s.calls.rmdir(path); err != nil {
					return unix.EISDIR
				}
			}
		default:
			return err
		}
	}
	return err
}

// mkdirs creates dir and what is missing above it, but never the root.
func (s *Store) mkdirs(dir string) error {
	for range maxTries {
		if dir == s.root {
			_, err := os.Stat(dir)
			return err
		}
		err := s.calls.mkdir(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrExist):
			return nil // a file there makes the link fail with ENOTDIR
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := s.mkdirs(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return fmt.Errorf("dirstore: %s is deleted as fast as it is made", dir)
}

// replace renames the file over the object at path under the key's lock. It reports false
// if there is no object and cond does not ask for one.
//
// It needs the lock because rename takes no condition. Under the lock it makes a stat, a
// comparison and the rename, which takes microseconds: a process that is stopped here
// blocks every other swap of the key until it continues or dies.
func (s *Store) replace(ctx context.Context, t *temp, key, path string, cond store.Condition) (bool, error) {
	lock, err := s.openLock(s.keyLock(key))
	if err != nil {
		return false, err
	}
	defer lock.Close()
	locks := []*os.File{lock}
	if s.renameMoves {
		list, err := s.openLock(s.listLock())
		if err != nil {
			return false, err
		}
		defer list.Close()
		locks = append(locks, list)
	}
	unlock, err := s.lockAll(ctx, locks...)
	if err != nil {
		return false, err
	}
	defer unlock()
	if s.renameMoves {
		if err := s.announce(locks[1]); err != nil {
			return false, err
		}
	}
	old, err := s.stat(path)
	switch {
	case err != nil:
		return false, err
	case !holds(cond, old):
		return false, errTaken
	case old == nil:
		return false, nil
	case !t.info.ModTime().After(old.ModTime()):
		// An unconditional Put was overtaken; a swap has a later time, since it knows what it
		// replaces. The time of a key must rise, and must be durable like the content.
		if err := s.finish(t, old.ModTime()); err != nil {
			return false, err
		}
	}
	return true, s.calls.rename(t.path, path)
}
