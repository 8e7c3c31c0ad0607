//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// # Who has seen an object must not lose it
//
// A new name is visible to every process before it is durable: link and rename
// act at once, the directory is on the disk only after fsync. A writer that
// waits for its own fsync is not enough:
//
//	writer   link data/7/42 … (stopped before fsync)
//	reader   reads data/7/42, tells the world
//	         the machine loses power; data/7/42 never was
//	writer'  creates data/7/42 with other records
//
// So whoever is shown an object makes it durable first. To tell which objects
// need it, a file carries a mark from its creation, which its writer takes off
// after the fsync of the directory: the owner's write permission. Objects are
// never changed in place, so that files without it are the natural final state.
// The mark is taken off only after the entry is durable; if taking it off is
// itself lost in a crash, somebody syncs once more. Files that people put into
// the directory look marked, which costs a sync and does no harm.
const pendingMark os.FileMode = 0o200

func pending(info fs.FileInfo) bool { return info.Mode()&pendingMark != 0 }

// settle makes sure that the object at path, open as f, is there after a crash.
func (s *Store) settle(path string, f *os.File, info fs.FileInfo) error {
	if !pending(info) {
		return nil
	}
	if err := s.persist(filepath.Dir(path)); err != nil {
		return err
	}
	// The mark is that of the open file, never of whatever is at path by now: a
	// swap may have put an object there that is newer than the sync. Another
	// user's file keeps its mark.
	_ = s.calls.chmod(f, info.Mode().Perm()&^0o222)
	return nil
}

// persist makes the entries of dir durable, and dir itself with all above it. A
// dir that is gone by now is durable once its absence is.
func (s *Store) persist(dir string) error {
	if f := s.dirs.get(dir); f != nil {
		// This very directory was made durable before; its entries are synced.
		if err := s.calls.sync(f); !errors.Is(err, fs.ErrClosed) {
			return err
		}
	}
	f, err := s.calls.open(dir, os.O_RDONLY|unix.O_DIRECTORY)
	if dir != s.root && errors.Is(err, fs.ErrNotExist) {
		return s.persist(filepath.Dir(dir))
	}
	if err != nil {
		return err
	}
	err = s.calls.sync(f)
	if err == nil && dir != s.root {
		// Not only whoever made dir syncs its parent: it may have been stopped
		// between mkdir and fsync, and what is written below would hang in the air.
		err = s.persist(filepath.Dir(dir))
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	s.dirs.put(dir, f)
	return nil
}

// dirCache remembers directories that are durable, with all above them. It
// holds them open: as long as it does, their inode numbers are not given to
// others, so that a directory that was removed and made again is told from the
// one remembered. What is above a directory cannot have been removed while it
// is there.
type dirCache struct {
	mu   sync.Mutex
	open map[string]*os.File
}

const maxDirs = 64

// get returns the open directory that is at path now, or nil. Another goroutine
// may close it: then using it is [fs.ErrClosed].
func (c *dirCache) get(path string) *os.File {
	c.mu.Lock()
	f := c.open[path]
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	now, err := os.Lstat(path)
	if err != nil {
		return nil
	}
	then, err := f.Stat()
	if err != nil || !os.SameFile(now, then) {
		return nil
	}
	return f
}

func (c *dirCache) put(path string, f *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]*os.File{}
	}
	if old := c.open[path]; old != nil {
		_ = old.Close()
	} else if len(c.open) >= maxDirs {
		for other, f := range c.open { // any one
			_ = f.Close()
			delete(c.open, other)
			break
		}
	}
	c.open[path] = f
}

func (c *dirCache) drop(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.open[path]; f != nil {
		_ = f.Close()
		delete(c.open, path)
	}
}
