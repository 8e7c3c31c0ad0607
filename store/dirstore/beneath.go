//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// # Nothing outside of the root
//
// Others may write to the directory, or it is a backup that a stranger made. So no path is
// resolved by the kernel's usual rules, which follow links:
//
//	store     checks that a/ is a directory
//	other     renames a/, and puts a link to /home there
//	store     writes a/k: that is /home/k
//
// The root is opened once. Every other path is resolved below its descriptor, without any
// link. A call that changes something gets the descriptor of the directory, and a name in it.
//
// # One directory at a path
//
// Processes meet at a path. If the directory is moved and another one is put there, a Store that
// stays with the old one, and one that opens the new one, do not see each other:
//
//	A    leads
//	     mv log log.old; cp -a log.old log
//	B    finds A's lock in log, never renewed, and leads
//	A    renews its lock in log.old, and leads, too
//
// So a Store asks at each request whether the path still leads to its directory: see checkRoot. A write
// asks twice. Before its effect: what was moved away may be somebody's backup. And before it is
// acknowledged, since the directory may be moved between the first check and the effect. What was
// acknowledged was at the path afterwards, so a copy that was made after the move has it. A lock that
// was renewed just before the move is valid no longer than it would be anyway, since the holder counts from the
// time of its request. The next renewal fails.

// dir is an open directory: the root, or one below it.
type dir struct {
	fd   int
	path string
	// keep is set if fd is that of another file, which is kept open meanwhile.
	keep *os.File
}

func (d *dir) close() {
	if d != nil && d.keep == nil {
		_ = unix.Close(d.fd)
	}
	runtime.KeepAlive(d)
}

// at is the path of a name in d, for errors and tests.
func (d *dir) at(name string) string { return d.path + "/" + name }

// at is the path of what is at rel, for errors and tests.
func (s *Store) at(rel string) string { return filepath.Join(s.root, rel) }

// linkError: there is a symbolic link where none is followed.
type linkError struct{ path string }

func (e *linkError) Error() string { return e.path + " is a symbolic link" }

// open opens what is at rel, through no link and not at a link.
func (s *Store) open(rel string, flag int) (fd int, err error) {
	defer runtime.KeepAlive(s)
	err = s.calls.do("open", s.at(rel), func() error {
		root := int(s.top.Fd())
		if !s.walks {
			err := again(func() error {
				fd, err = openBeneath(root, rel, flag, lockMode)
				return err
			})
			if !errors.Is(err, unix.ELOOP) {
				return err
			}
			// Which one is it? Nothing may be created for the answer.
			fd, walked := walk(root, rel, unix.O_RDONLY|unix.O_NONBLOCK)
			if e := (*linkAtError)(nil); errors.As(walked, &e) {
				return &linkError{s.at(e.rel)}
			}
			if walked == nil {
				_ = unix.Close(fd)
			}
			return err
		}
		fd, err = walk(root, rel, flag)
		if e := (*linkAtError)(nil); errors.As(err, &e) {
			return &linkError{s.at(e.rel)}
		}
		return err
	})
	return fd, err
}

// linkAtError: a link is at rel.
type linkAtError struct{ rel string }

func (e *linkAtError) Error() string { return e.rel + " is a symbolic link" }

// walk opens what is at rel, one directory after the other.
func walk(root int, rel string, flag int) (int, error) {
	dir, parts := root, strings.Split(rel, "/")
	for i, part := range parts {
		how := searchOnly
		if i == len(parts)-1 {
			how = flag
		}
		var fd int
		err := again(func() (err error) {
			// guard:beneath-walk. Each directory is opened in the one above, and none is a link, where there is no openat2.
			//
			//mutant:replace how|unix.O_NOFOLLOW => how
			fd, err = unix.Openat(dir, part, how|unix.O_NOFOLLOW|unix.O_CLOEXEC, lockMode)
			return err
		})
		if err != nil {
			// Systems have different errors for a link.
			if e, statErr := statAt(dir, part); statErr == nil && e.mode.Type() == fs.ModeSymlink {
				err = &linkAtError{path.Join(parts[:i+1]...)}
			}
		}
		if dir != root {
			_ = unix.Close(dir)
		}
		if err != nil {
			return -1, err
		}
		dir = fd
	}
	return dir, nil
}

// openFile opens the file at rel to read it. It does not block on a pipe.
func (s *Store) openFile(rel string) (*os.File, error) {
	fd, err := s.open(rel, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0) // it needs no poller from here on
	return os.NewFile(uintptr(fd), s.at(rel)), nil
}

// openDir opens the directory at rel. The caller closes it.
func (s *Store) openDir(rel string, flag int) (*dir, error) {
	if rel == "." && (flag == searchOnly || !s.unlisted) {
		return &dir{fd: int(s.top.Fd()), path: s.root, keep: s.top}, nil
	}
	fd, err := s.open(rel, flag|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &dir{fd: fd, path: s.at(rel)}, nil
}

// errMoved: the path of the root leads to another directory, or to none.
var errMoved = errors.New("dirstore: the directory was moved or replaced")

// checkRoot is errMoved if the path that Open got does not lead to the directory that Open found. The
// path may lead there through links, and other ones than before. The number of the directory is not
// used again, since it is open.
func (s *Store) checkRoot() error {
	var st unix.Stat_t
	err := again(func() error { return unix.Stat(s.asked, &st) })
	switch {
	case errors.Is(err, fs.ErrNotExist), isNotDir(err), errors.Is(err, unix.ELOOP):
		return errMoved
	case err != nil:
		return pathError("stat", s.asked, err)
	}
	// guard:same-root. The path of the root leads to the directory that was opened.
	if !entryOf(&st).same(s.is) {
		return errMoved
	}
	return nil
}

// entry is what a directory has under a name.
type entry struct {
	mode     fs.FileMode // permissions and type
	size     int64
	time     time.Time
	dev, ino uint64
	links    uint64
	owner    uint32
}

func (e *entry) same(other *entry) bool { return e.dev == other.dev && e.ino == other.ino }

// statAt follows no link.
func statAt(dir int, name string) (*entry, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return entryOf(&st), err
}

// statOf tells about an open file.
func statOf(fd int) (*entry, error) {
	var st unix.Stat_t
	err := again(func() error { return unix.Fstat(fd, &st) })
	return entryOf(&st), err
}

//nolint:unconvert // types differ between platforms
func entryOf(st *unix.Stat_t) *entry {
	e := &entry{mode: fs.FileMode(st.Mode & 0o777), size: st.Size, time: time.Unix(st.Mtim.Unix()),
		dev: uint64(st.Dev), ino: uint64(st.Ino), links: uint64(st.Nlink), owner: st.Uid}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		e.mode |= fs.ModeDir
	case unix.S_IFLNK:
		e.mode |= fs.ModeSymlink
	default:
		e.mode |= fs.ModeIrregular
	}
	return e
}

// place is where the object of a key is, or would be: a name in a directory.
type place struct {
	s         *Store
	rel, base string
	dir       *dir  // nil if there is no directory
	missing   error // why
}

// place opens the directory of rel. The caller closes the place.
func (s *Store) place(rel string) (*place, error) {
	p := &place{s: s, rel: rel, base: path.Base(rel)}
	return p, p.open()
}

// open opens what the directory is now.
func (p *place) open() error {
	p.close()
	p.dir, p.missing = p.s.openDir(path.Dir(p.rel), unix.O_RDONLY)
	if p.missing != nil && !errors.Is(p.missing, fs.ErrNotExist) && !isNotDir(p.missing) {
		return p.missing
	}
	return nil
}

// stays is errMoved if the path of p, or that of the root, leads to another directory than before.
func (p *place) stays() error {
	if err := p.s.checkRoot(); err != nil {
		return err
	}
	now, err := p.s.openDir(path.Dir(p.rel), searchOnly)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return errMoved
	}
	if err != nil {
		return err
	}
	defer now.close()
	is, err := statOf(now.fd)
	was, wasErr := statOf(p.dir.fd)
	if err = errors.Join(err, wasErr); err == nil && !is.same(was) {
		err = errMoved
	}
	return err
}

func (p *place) close() {
	p.dir.close()
	p.dir = nil
}

// stat returns nil if there is no object.
func (p *place) stat() (*entry, error) {
	e, err := p.entry()
	switch {
	case errors.Is(err, fs.ErrNotExist), isNotDir(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !e.mode.IsRegular():
		return nil, nil
	}
	return e, nil
}

func (p *place) entry() (*entry, error) {
	if p.dir == nil {
		return nil, fs.ErrNotExist
	}
	e, err := statAt(p.dir.fd, p.base)
	return e, pathError("stat", p.s.at(p.rel), err)
}

func isNotDir(err error) bool { return errors.Is(err, unix.ENOTDIR) }
