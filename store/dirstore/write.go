//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
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
	rel, err := relPath(op, key)
	if err != nil {
		return store.Info{}, err
	}
	if ctx.Err() != nil {
		return store.Info{}, cancelled(ctx, op, key)
	}
	// Everything slow comes before the decision, and without a lock. If the condition does
	// not hold already, that is the answer.
	p, err := s.place(rel)
	if err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	defer p.close()
	old, err := p.stat()
	if err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	if !holds(cond, old) {
		return store.Info{}, s.refuse(op, key, p)
	}
	if err := s.prepare(); err != nil {
		return store.Info{}, s.failure(op, key, err)
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
		after = old.time
	}
	if err := s.finish(t, after); err != nil {
		return store.Info{}, s.failure(op, key, err)
	}
	switch err := s.publish(ctx, t, key, p, cond); {
	case errors.Is(err, errTaken):
		if err := p.open(); err != nil { // the directory may be another by now
			return store.Info{}, s.failure(op, key, err)
		}
		return store.Info{}, s.refuse(op, key, p)
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return store.Info{}, cancelled(ctx, op, key)
	case err != nil:
		return store.Info{}, s.failure(op, key, err)
	}
	// The object is visible. An error from here on leaves the outcome unknown.
	if err := s.persistDir(path.Dir(rel), p.dir); err != nil {
		return store.Info{}, unsure(op, key, err)
	}
	// guard:root-acknowledged. A write is acknowledged only if its directory is still at its path.
	if err := p.stays(); err != nil {
		return store.Info{}, unsure(op, key, err)
	}
	_ = s.calls.chmod(t.f, t.mode&^0o222) // durable: see pendingMark
	return s.info(key, t.info), nil
}

func holds(cond store.Condition, old *entry) bool {
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
func (s *Store) refuse(op, key string, p *place) error {
	e, err := p.stat()
	if err == nil && e != nil && pending(e.mode) {
		err = s.persistDir(path.Dir(p.rel), p.dir)
	}
	if err == nil {
		err = s.checkRoot()
	}
	if err != nil {
		return s.failure(op, key, err)
	}
	return refused(op, key)
}

// publish makes the finished file visible at p if cond holds; else it is errTaken. After
// an error the file is not visible.
func (s *Store) publish(ctx context.Context, t *temp, key string, p *place, cond store.Condition) error {
	if cond == store.IfAbsent() {
		return s.create(t, p)
	}
	for range maxTries {
		replaced, err := s.replace(ctx, t, key, p, cond)
		if replaced || err != nil {
			return err
		}
		// There is no object, and cond does not ask for one. Linking needs no lock, and
		// cannot replace what a concurrent create puts there.
		if err := s.create(t, p); !errors.Is(err, errTaken) {
			return err
		}
	}
	return fmt.Errorf("dirstore: the object was created and deleted again and again")
}

// create links the file to its name. Of several links to one name one succeeds.
func (s *Store) create(t *temp, p *place) error {
	var err error
	for range maxTries {
		if err := s.checkRoot(); err != nil {
			return err
		}
		if err = p.missing; p.dir != nil {
			err = s.calls.link(t.dir, t.name, p.dir, p.base)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrNotExist):
			// The directory is missing, or a delete has removed it, since it was empty. With
			// the link in it no delete can.
			if err := s.mkdirs(path.Dir(p.rel)); err != nil {
				return err
			}
			if err := p.open(); err != nil {
				return err
			}
		case errors.Is(err, fs.ErrExist):
			e, statErr := p.entry()
			switch {
			case errors.Is(statErr, fs.ErrNotExist): // deleted just now
			case statErr != nil:
				return statErr
			case e.mode.IsRegular():
				return errTaken
			case !e.mode.IsDir():
				return &store.Error{Op: "put", Key: s.at(p.rel), Kind: store.ErrInvalid, Hint: "something is there that is neither an object nor a directory"}
			default:
				// There are objects below it, or a process died between mkdir and link.
				if err := s.calls.rmdir(p.dir, p.base); err != nil {
					return unix.EISDIR
				}
			}
		default:
			return err
		}
	}
	return err
}

// mkdirs creates the directory at rel and what is missing above it, but never the root.
func (s *Store) mkdirs(rel string) error {
	for range maxTries {
		if err := s.checkRoot(); err != nil {
			return err
		}
		if rel == "." {
			return nil
		}
		above, err := s.openDir(path.Dir(rel), searchOnly)
		if err == nil {
			err = s.calls.mkdir(above, path.Base(rel), 0o777)
			above.close()
		}
		switch {
		case err == nil, errors.Is(err, fs.ErrExist):
			return nil // what is there may be no directory: the next open finds out
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := s.mkdirs(path.Dir(rel)); err != nil {
			return err
		}
	}
	return fmt.Errorf("dirstore: %s is deleted as fast as it is made", s.at(rel))
}

// replace renames the file over the object at p under the key's lock. It reports false
// if there is no object and cond does not ask for one.
//
// It needs the lock because rename takes no condition. Under the lock it makes a stat, a
// comparison and the rename, which takes microseconds: a process that is stopped here
// blocks every other swap of the key until it continues or dies.
func (s *Store) replace(ctx context.Context, t *temp, key string, p *place, cond store.Condition) (bool, error) {
	lock, err := s.makeLock(keyLock(key))
	if err != nil {
		return false, err
	}
	defer lock.close()
	locks := []*lockFile{lock}
	if s.renameMoves {
		list, err := s.makeLock(listLock)
		if err != nil {
			return false, err
		}
		defer list.close()
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
	old, err := p.stat()
	switch {
	case err != nil:
		return false, err
	case !holds(cond, old):
		return false, errTaken
	case old == nil:
		return false, nil
	case !t.info.time.After(old.time):
		// An unconditional Put was overtaken; a swap has a later time, since it knows what it
		// replaces. The time of a key must rise, and must be durable like the content.
		if err := s.finish(t, old.time); err != nil {
			return false, err
		}
	}
	if err := s.checkRoot(); err != nil {
		return false, err
	}
	return true, s.calls.rename(t.dir, t.name, p.dir, p.base)
}
