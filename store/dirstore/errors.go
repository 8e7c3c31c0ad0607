//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/store"
)

// failure turns the error of a system call into a [store.Error]. Use it only before a write
// takes effect, since some of its kinds say that nothing was written.
func (s *Store) failure(op, key string, err error) error {
	if e := (*store.Error)(nil); errors.As(err, &e) {
		return err
	}
	e := &store.Error{Op: op, Key: key, Err: err}
	link := (*linkError)(nil)
	switch {
	case s.top == nil && errors.Is(err, fs.ErrNotExist), s.isMoved(err):
		e.Kind, e.Err = store.ErrNoBucket, nil
		e.Hint = "the directory " + s.asked + " was moved, replaced or removed after it was opened: open the store again"
	case errors.As(err, &link):
		e.Kind, e.Err, e.Hint = store.ErrInvalid, nil, s.unlinked(link.path)
	case errors.Is(err, fs.ErrNotExist):
		if op == "get" {
			e.Kind, e.Err = store.ErrNotFound, nil
		} else {
			e.Hint = "if the folder " + reserved + " in " + s.root + " was removed, open the store again"
		}
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Hint = store.ErrDenied, s.denied(err)
	case errors.Is(err, unix.EROFS):
		e.Kind, e.Hint = store.ErrDenied, "the file system of "+s.root+" is mounted read-only"
	case errors.Is(err, unix.ENOTDIR) && s.isReserved(pathOf(err)):
		e.Kind, e.Hint = store.ErrInvalid, "the store needs the directory "+reserved+" in "+s.root+" for itself, with directories tmp and lock: remove what is there instead"
	case errors.Is(err, unix.ENOTDIR):
		e.Kind, e.Hint = store.ErrInvalid, "a leading part of this key is an object itself; no key may be another's directory"
	case errors.Is(err, unix.EISDIR):
		e.Kind, e.Hint = store.ErrInvalid, "there are objects below this key; no key may be another's directory"
	case errors.Is(err, unix.ENAMETOOLONG):
		e.Kind, e.Hint = store.ErrInvalid, "the key is too long for a path below "+s.root
	case errors.Is(err, unix.EXDEV):
		e.Kind, e.Hint = store.ErrUnsupported, "everything below "+s.root+" must lie on one file system"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Hint = "the disk or the quota is full: free space in " + s.root
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		e.Hint = "too many open files: raise the limit (ulimit -n)"
	}
	return e
}

// isMoved reports whether err is that the root is another one now, or comes from that.
func (s *Store) isMoved(err error) bool {
	return errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) && errors.Is(s.checkRoot(), errMoved)
}

// denied says to whom the path of a refused system call belongs, and what to do.
func (s *Store) denied(err error) string {
	path, e := s.nearest(pathOf(err))
	who := "another user"
	if e != nil {
		if int(e.owner) == os.Geteuid() {
			return "the mode of " + path + " does not allow it: chmod it"
		}
		who = fmt.Sprintf("user %d", e.owner)
		if u, err := user.LookupId(fmt.Sprint(e.owner)); err == nil {
			who = u.Username
		}
	}
	return path + " belongs to " + who + ": run as that user, or give this one rights there; all processes that write a log run as one user"
}

// nearest is what is at file, or the next directory above that can be seen.
func (s *Store) nearest(file string) (string, *entry) {
	rel, below := strings.CutPrefix(file, s.root+"/")
	for ; below && s.top != nil && rel != "."; rel = path.Dir(rel) {
		d, err := s.openDir(path.Dir(rel), searchOnly)
		if err != nil {
			continue
		}
		e, err := statAt(d.fd, path.Base(rel))
		d.close()
		if err == nil {
			return s.at(rel), e
		}
	}
	for file = s.root; ; file = filepath.Dir(file) { // the root, or above it
		if e, err := statAt(unix.AT_FDCWD, file); err == nil {
			return file, e
		} else if file == filepath.Dir(file) {
			return file, nil
		}
	}
}

func pathOf(err error) string {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Path
	}
	return ""
}

func (s *Store) isReserved(file string) bool {
	return file == s.at(reserved) || strings.HasPrefix(file, s.at(reserved)+"/")
}

// unlinked says what to do about a symbolic link.
func (s *Store) unlinked(link string) string {
	what := link + " is a symbolic link, and a store follows none: "
	if s.isReserved(link) {
		return what + "remove the link, and look who made it; the next write makes " + reserved + " anew"
	}
	return what + "put a directory there instead, and look who made the link"
}

// unsure is the error after a write may have taken effect: its outcome is unknown.
func unsure(op, key string, err error) error {
	hint := "the change is visible, but may not survive a crash of the machine"
	if errors.Is(err, errMoved) {
		hint = "the change is in the directory that was moved, and perhaps not in what is at its path now: open the store again"
	}
	return &store.Error{Op: op, Key: key, Kind: store.ErrUnknown, Err: err, Hint: hint}
}

// cancelled is the error of a context that ended before the write took effect. It has no
// Kind, since none means "not written, and can be retried". Callers take the outcome for
// unknown, which is safe.
func cancelled(ctx context.Context, op, key string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &store.Error{Op: op, Key: key, Err: err, Hint: "nothing was done"}
}

// errTaken: a create found its name taken.
var errTaken = errors.New("dirstore: name taken")

// refused is the error of a condition that does not hold.
func refused(op, key string) error {
	return &store.Error{Op: op, Key: key, Kind: store.ErrPrecondition}
}
