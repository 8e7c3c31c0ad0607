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

func pending(info fs.FileInfo) bool { return info.Mode()&pendingMark != 0 }

// secure makes sure that the object at path, open as f, is there after a crash.
func (s *Store) secure(path string, f *os.File, info fs.FileInfo) error {
	if !pending(info) {
		return nil
	}
	if err := s.persist(filepath.Dir(path)); err != nil {
		return err
	}
	// Clear the mark of the open file, not of the file that is at path now: a swap may
	// have put an object there after the sync. Another user's file keeps its mark.
	_ = s.calls.chmod(f, info.Mode().Perm()&^0o222)
	return nil
}

// persist makes the entries of dir durable, and dir itself with all directories above it.
// If dir is gone, it makes that durable.
func (s *Store) persist(dir string) error {
	if f := s.dirs.get(dir); f != nil {
		// This very directory is durable; sync its entries.
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
		// The process that made dir may have been stopped before it synced the parent. Then
		// what is written into dir would be lost with it.
		err = s.persist(filepath.Dir(dir))
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	s.dirs.put(dir, f)
	return nil
}

// dirCache remembers directories that are durable, with all above them. It keeps them
// open, so that their inode numbers are not used again: a directory that was removed and
// made again is not taken for the old one. A directory above another one cannot be removed
// while that exists.
type dirCache struct {
	mu   sync.Mutex
	open map[string]*os.File
}

const maxDirs = 64

// get returns the open directory that is at path now, or nil. If another goroutine closes
// it, its use is [fs.ErrClosed].
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
