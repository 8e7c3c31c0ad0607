//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// calls are the system calls that change or order something, each under a name. Tests put
// an error, a kill or a stop before one of them.
type calls struct {
	before func(call, path string) error
	// walk leaves openat2 out, as on systems that do not have it.
	walk bool
	// magic is the kind of file system that a test wants.
	magic uint32
}

// do returns the error of f as one of the call and the path.
func (c calls) do(call, path string, f func() error) error {
	if c.before != nil {
		if err := c.before(call, path); err != nil {
			return &fs.PathError{Op: call, Path: path, Err: err}
		}
	}
	return pathError(call, path, f())
}

// again repeats a system call that a signal has interrupted.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// openRoot opens the directory below which all others are opened. Who may not list it may still get what
// is below, on systems that can open it so: then unlisted is true.
func (c calls) openRoot(path string) (f *os.File, unlisted bool, err error) {
	open := func(flag int) error {
		return c.do("open", path, func() error {
			f, err = os.OpenFile(path, flag, 0)
			return err
		})
	}
	err = open(unix.O_RDONLY | unix.O_DIRECTORY)
	if unlisted = errors.Is(err, unix.EACCES); unlisted {
		err = open(searchOnly)
	}
	return f, unlisted, err
}

func (c calls) write(f *os.File, b []byte) error {
	return c.do("write", f.Name(), func() error {
		_, err := f.Write(b)
		return err
	})
}

func (c calls) sync(f *os.File) error { return c.do("sync", f.Name(), f.Sync) }

func (c calls) syncDir(d *dir) error {
	return c.do("sync", d.path, func() error { return syncDir(d.fd) })
}

func (c calls) chmod(f *os.File, mode os.FileMode) error {
	return c.do("chmod", f.Name(), func() error { return f.Chmod(mode) })
}

func (c calls) link(from *dir, old string, to *dir, name string) error {
	return c.do("link", to.at(name), func() error {
		return again(func() error { return unix.Linkat(from.fd, old, to.fd, name, 0) })
	})
}

func (c calls) rename(from *dir, old string, to *dir, name string) error {
	return c.do("rename", to.at(name), func() error {
		return again(func() error { return unix.Renameat(from.fd, old, to.fd, name) })
	})
}

func (c calls) mkdir(d *dir, name string, mode uint32) error {
	return c.do("mkdir", d.at(name), func() error {
		return again(func() error { return unix.Mkdirat(d.fd, name, mode) })
	})
}

// unlink and rmdir are two. What was a directory a moment ago may be an object now.
func (c calls) unlink(d *dir, name string) error {
	return c.do("unlink", d.at(name), func() error {
		return again(func() error { return unix.Unlinkat(d.fd, name, 0) })
	})
}

func (c calls) rmdir(d *dir, name string) error {
	return c.do("rmdir", d.at(name), func() error {
		return again(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) })
	})
}

// readdir returns names only: os.File would look up what they are by path.
func (c calls) readdir(f *os.File, n int) (names []string, err error) {
	err = c.do("readdir", f.Name(), func() error {
		names, err = f.Readdirnames(n)
		return err
	})
	return names, err
}

// tryLock reports false if another open file holds a lock that excludes how.
func (c calls) tryLock(fd int, path string, how int) (ok bool, err error) {
	err = c.do("flock", path, func() error {
		err := again(func() error { return unix.Flock(fd, how|unix.LOCK_NB) })
		ok = err == nil
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil
		}
		return err
	})
	return ok, err
}

// unlock releases a lock before the file is closed. Closing is not enough: a child that
// another goroutine is forking holds a copy of the descriptor until it executes.
func (c calls) unlock(f *lockFile) {
	// It cannot fail on an open file. If it did, the lock would end with the descriptor.
	_ = unix.Flock(f.fd, unix.LOCK_UN)
}

// pathError says what call failed, on what path, unless err does.
func pathError(call, path string, err error) error {
	if errno, ok := err.(unix.Errno); ok { //nolint:errorlint // not one that is wrapped already
		return &fs.PathError{Op: call, Path: path, Err: errno}
	}
	return err
}
