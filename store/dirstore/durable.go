//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"
)

// # An object that was seen must survive a crash
//
// A new name is visible to every process before it is durable: link and rename act at
// once, but the directory is on the disk only after fsync. It is not enough that the
// writer waits for its own fsync:
//
//	writer A  links data/7/42 and is stopped before fsync
//	reader    reads data/7/42 and passes its records on
//	          the machine loses power; data/7/42 is gone
//	writer B  creates data/7/42 with other records
//
// So a process that reads or lists an object makes it durable first. A mark tells which
// objects need that: the owner's write permission. Every file has it from its creation,
// and the writer clears it after the fsync of the directory. Objects are never changed in
// place, so files without write permission are the natural final state. If a crash undoes
// the clearing, some process syncs once more. A file that a person puts into the directory
// has the mark too, which costs one sync.
const pendingMark os.FileMode = 0o200

func pending(mode os.FileMode) bool { return mode&pendingMark != 0 }

// secure makes sure that the object at rel, open as f, is there after a crash.
func (s *Store) secure(rel string, f *os.File, e *entry) error {
	if !pending(e.mode) {
		return nil
	}
	if err := s.persist(path.Dir(rel)); err != nil {
		return err
	}
	// Clear the mark of the open file, not of the file that is at rel now: a swap may
	// have put an object there after the sync. Another user's file keeps its mark.
	//
	// guard:one-name. A file keeps its mark while it has another name, too.
	if e.links != 1 {
		return nil
	}
	_ = s.calls.chmod(f, e.mode.Perm()&^0o222)
	return nil
}

// persist makes the entries of the directory at rel durable, and the directory itself with
// all above it. If it is gone, persist makes that durable.
func (s *Store) persist(rel string) error {
	d, err := s.openDir(rel, unix.O_RDONLY)
	if rel != "." && errors.Is(err, fs.ErrNotExist) {
		return s.persist(path.Dir(rel))
	}
	if err != nil {
		return err
	}
	defer d.close()
	return s.persistDir(rel, d)
}

// persistDir is persist for the directory that was opened at rel.
func (s *Store) persistDir(rel string, d *dir) error {
	if err := s.calls.syncDir(d); err != nil || rel == "." {
		return err
	}
	e, err := statOf(d.fd)
	if err != nil {
		return pathError("stat", d.path, err)
	}
	if s.dirs.has(rel, e) {
		return nil // this very directory is durable
	}
	// The process that made the directory may have been stopped before it synced the parent.
	// Then what is written into it would be lost with it.
	if err := s.persist(path.Dir(rel)); err != nil {
		return err
	}
	s.dirs.put(rel, e, d)
	return nil
}

// dirCache remembers directories that are durable, with all above them. It keeps them
// open, so that their inode numbers are not used again: a directory that was removed and
// made again is not taken for the old one. A directory above another one cannot be removed
// while that exists.
type dirCache struct {
	mu   sync.Mutex
	open map[string]durableDir
}

type durableDir struct {
	*entry
	f *os.File
}

const maxDirs = 64

// has reports whether e, which is at rel, is known to be durable.
func (c *dirCache) has(rel string, e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.open[rel]
	return ok && known.same(e)
}

// put remembers d, with a descriptor of its own.
func (c *dirCache) put(rel string, e *entry, d *dir) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, err := unix.FcntlInt(uintptr(d.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return // it is synced again the next time
	}
	if c.open == nil {
		c.open = map[string]durableDir{}
	}
	if old, ok := c.open[rel]; ok {
		_ = old.f.Close()
	} else if len(c.open) >= maxDirs {
		for other, known := range c.open { // any one
			_ = known.f.Close()
			delete(c.open, other)
			break
		}
	}
	// Closed also if the Store is forgotten.
	c.open[rel] = durableDir{e, os.NewFile(uintptr(own), d.path)}
}

func (c *dirCache) drop(rel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.open[rel]; ok {
		_ = known.f.Close()
		delete(c.open, rel)
	}
}
