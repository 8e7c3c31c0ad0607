//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// calls are the system calls that change or order something, each under a name. Tests put
// an error, a kill or a stop before one of them.
type calls struct {
	before func(call, path string) error
}

func (c calls) do(call, path string, f func() error) error {
	if c.before != nil {
		if err := c.before(call, path); err != nil {
			return &fs.PathError{Op: call, Path: path, Err: err}
		}
	}
	return f()
}

// open does not follow a link at path itself, and does not block on a pipe.
func (c calls) open(path string, flag int) (f *os.File, err error) {
	err = c.do("open", path, func() error {
		f, err = os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o666)
		return err
	})
	return f, err
}

func (c calls) write(f *os.File, b []byte) error {
	return c.do("write", f.Name(), func() error {
		_, err := f.Write(b)
		return err
	})
}

func (c calls) sync(f *os.File) error { return c.do("sync", f.Name(), f.Sync) }

func (c calls) chtimes(path string, t time.Time) error {
	return c.do("chtimes", path, func() error { return os.Chtimes(path, t, t) })
}

func (c calls) chmod(f *os.File, mode os.FileMode) error {
	return c.do("chmod", f.Name(), func() error { return f.Chmod(mode) })
}

func (c calls) link(from, to string) error {
	return c.do("link", to, func() error { return os.Link(from, to) })
}

// rename is not os.Rename, which makes a system call more while the lock is held.
func (c calls) rename(from, to string) error {
	return c.do("rename", to, func() error { return pathError("rename", to, unix.Rename(from, to)) })
}

func (c calls) mkdir(path string) error {
	return c.do("mkdir", path, func() error { return os.Mkdir(path, 0o777) })
}

// unlink and rmdir are not os.Remove, which does either. What was a directory a moment ago
// may be an object now.
func (c calls) unlink(path string) error {
	return c.do("unlink", path, func() error { return pathError("unlink", path, unix.Unlink(path)) })
}

func (c calls) rmdir(path string) error {
	return c.do("rmdir", path, func() error { return pathError("rmdir", path, unix.Rmdir(path)) })
}

func (c calls) readdir(f *os.File, n int) (entries []fs.DirEntry, err error) {
	err = c.do("readdir", f.Name(), func() error {
		entries, err = f.ReadDir(n)
		return err
	})
	return entries, err
}

// tryLock reports false if another open file holds a lock that excludes how.
func (c calls) tryLock(f *os.File, how int) (ok bool, err error) {
	err = c.do("flock", f.Name(), func() error {
		for {
			switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err {
			case nil:
				ok = true
				return nil
			case unix.EINTR:
			case unix.EWOULDBLOCK:
				return nil
			default:
				return pathError("flock", f.Name(), err)
			}
		}
	})
	return ok, err
}

// unlock releases a lock before the file is closed. Closing is not enough: a child that
// another goroutine is forking holds a copy of the descriptor until it executes.
func (c calls) unlock(f *os.File) {
	// It cannot fail on an open file. If it did, the lock would end with the descriptor.
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
}

func pathError(call, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: call, Path: path, Err: err}
}
