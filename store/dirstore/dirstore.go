//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Store is a directory as a [store.Store]. It is safe for concurrent use, and
// any number of them, in any number of processes, may work on one directory.
type Store struct {
	root  string
	clock clock.Clock
	calls calls
	dirs  dirCache
	// renameMoves: see renameMoves().
	renameMoves bool
}

var _ store.Store = (*Store)(nil)

// Open opens the store in dir, which is created unless Options.NoCreate says
// no, and removes what dead processes left unfinished there. There is nothing
// to close.
//
// Errors: [store.ErrNoBucket] if dir is missing and not to be created,
// [store.ErrDenied], [store.ErrInvalid] if dir is something else,
// [store.ErrUnsupported].
func Open(dir string, opts *Options) (*Store, error) { return open(dir, opts, calls{}) }

func open(dir string, opts *Options, calls calls) (*Store, error) {
	o := opts.withDefaults()
	if dir == "" {
		return nil, &store.Error{Op: "open", Kind: store.ErrInvalid, Hint: "name a directory"}
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, &store.Error{Op: "open", Key: dir, Err: err}
	}
	s := &Store{root: root, clock: o.Clock, calls: calls}
	info, err := os.Stat(root)
	switch {
	case err == nil && !info.IsDir():
		return nil, &store.Error{Op: "open", Key: dir, Kind: store.ErrInvalid, Hint: "it is not a directory"}
	case errors.Is(err, fs.ErrNotExist) && o.NoCreate:
		return nil, &store.Error{Op: "open", Key: dir, Kind: store.ErrNoBucket, Hint: "there is nothing at this path: correct it, or create the directory"}
	case errors.Is(err, fs.ErrNotExist):
		err = s.makeRoot()
	}
	if err == nil {
		// Only the root may be, or be reached by, a symbolic link.
		root, err = filepath.EvalSymlinks(root)
	}
	if err == nil { // else errors name the one that was asked for
		s.root = root
		s.renameMoves, err = renameMoves(s.root)
	}
	if err == nil {
		err = s.prepare()
	}
	if err != nil {
		return nil, s.failure("open", dir, err)
	}
	return s, nil
}

// path maps a key to its path. A directory on the way that is a symbolic link
// is refused: where it leads may be another file system, and nothing above its
// target is known to be durable.
func (s *Store) path(op, key string) (string, error) {
	rel, err := relPath(op, key)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.root, rel)
	return path, s.noLinks(op, key, filepath.Dir(path))
}

func (s *Store) noLinks(op, key, dir string) error {
	if s.dirs.get(dir) != nil {
		return nil // looked at when it was remembered
	}
	for ; len(dir) > len(s.root); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return &store.Error{Op: op, Key: key, Kind: store.ErrInvalid, Hint: dir + " is a symbolic link; directories of a store must not be"}
		}
	}
	return nil
}

// makeRoot creates the root with all above it, durably.
func (s *Store) makeRoot() error {
	exists := filepath.Dir(s.root)
	for exists != filepath.Dir(exists) {
		if _, err := os.Stat(exists); err == nil {
			break
		}
		exists = filepath.Dir(exists)
	}
	if err := os.MkdirAll(s.root, 0o777); err != nil {
		return err
	}
	for dir := filepath.Dir(s.root); ; dir = filepath.Dir(dir) {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = errors.Join(s.calls.sync(f), f.Close())
		if err != nil || dir == exists {
			return err
		}
	}
}

// prepare makes the reserved folder and cleans up. Who may only read does
// without, if a writer has been here.
func (s *Store) prepare() error {
	for _, dir := range []string{filepath.Join(s.root, reserved), s.tempDir(), filepath.Dir(s.listLock())} {
		if err := s.calls.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	lock, err := s.openLock(s.listLock())
	if err != nil {
		return err
	}
	_ = lock.Close()
	if err := s.clean(); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// Get implements [store.Store]. The body is that of the version returned,
// whatever happens to the key meanwhile.
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	path, err := s.path("get", key)
	if err != nil {
		return nil, err
	}
	var o store.GetOptions
	if opts != nil {
		o = *opts
	}
	if o.Offset < 0 || o.Length < 0 {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrInvalid, Hint: "a range has no negative numbers"}
	}
	if ctx.Err() != nil {
		return nil, cancelled(ctx, "get", key)
	}
	f, err := s.calls.open(path, os.O_RDONLY)
	if err != nil {
		if info, e := os.Lstat(path); e == nil && !info.Mode().IsRegular() || isNotDir(err) {
			err = fs.ErrNotExist // a link, a socket, or below an object
		}
		return nil, s.failure("get", key, err)
	}
	obj, err := s.object(f, path, key, o)
	if err != nil {
		_ = f.Close()
		return nil, s.failure("get", key, err)
	}
	return obj, nil
}

// object describes the open file, not the name: the name may stand for another
// object by now.
func (s *Store) object(f *os.File, path, key string, o store.GetOptions) (*store.Object, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	info := s.info(key, fi)
	if o.IfNoneMatch != "" && o.IfNoneMatch == info.Version {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	}
	if o.Offset >= info.Size && (o.Offset > 0 || o.Length > 0) {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrRange, Hint: fmt.Sprintf("the object has %d bytes", info.Size)}
	}
	if err := s.settle(path, f, fi); err != nil {
		return nil, err
	}
	n := info.Size - o.Offset
	if o.Length > 0 {
		n = min(n, o.Length)
	}
	return &store.Object{Info: info, Body: struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, o.Offset, n), f}}, nil
}

func (s *Store) info(key string, fi fs.FileInfo) store.Info {
	return store.Info{Key: key, Version: version(fi), Size: fi.Size(), LastModified: fi.ModTime(), Date: s.clock.Wall()}
}

// version names the state of a key: when it was written, in nanoseconds, in
// which file, of which size. See [Store.finish] for why no state has the version of
// an earlier one: along the swaps of a key the time strictly rises, and a key
// deleted and created again would have to get the same inode number at the same
// nanosecond.
func version(fi fs.FileInfo) store.Version {
	t := fi.ModTime()
	return store.Version(fmt.Sprintf("%x.%09d-%x-%x", t.Unix(), t.Nanosecond(), inode(fi), fi.Size()))
}

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits {
	u := url.URL{Scheme: "file", Path: s.root}
	return store.Traits{Name: u.String(), MultiProcess: true}
}
