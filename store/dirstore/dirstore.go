//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"cmp"
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

// Store keeps objects in a directory. It is safe for concurrent use. Any number of Stores,
// in any number of processes, may work on one directory.
type Store struct {
	root  string
	clock clock.Clock
	calls calls
	dirs  dirCache
	// renameMoves: see renameMoves().
	renameMoves bool
}

var _ store.Store = (*Store)(nil)

// Open opens the store in dir. It creates the directory, unless Options.NoCreate is set,
// and deletes unfinished files of dead processes. There is nothing to close.
//
// Errors: [store.ErrNoBucket] if NoCreate is set and dir is missing, or is empty and not
// this user's to write; [store.ErrDenied],
// [store.ErrInvalid] if dir is not a directory, [store.ErrUnsupported].
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
	case err == nil && !info.IsDir(), isNotDir(err):
		return nil, &store.Error{Op: "open", Key: dir, Kind: store.ErrInvalid, Hint: notDir(root)}
	case errors.Is(err, fs.ErrNotExist) && o.NoCreate:
		return nil, &store.Error{Op: "open", Key: dir, Kind: store.ErrNoBucket, Hint: "correct the path, or create the directory"}
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
	if _, none := os.Lstat(filepath.Join(s.root, reserved)); o.NoCreate && errors.Is(err, fs.ErrPermission) && errors.Is(none, fs.ErrNotExist) {
		return nil, &store.Error{Op: "open", Key: dir, Kind: store.ErrNoBucket, Err: err,
			Hint: "there is no log here: nobody has written to this directory, and this process may not"}
	}
	if err != nil {
		return nil, s.failure("open", dir, err)
	}
	return s, nil
}

// notDir says which part of path is a file.
func notDir(path string) string {
	for {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			return path + " is a file; name a directory"
		}
		if err == nil || path == filepath.Dir(path) {
			return "it is not a directory"
		}
		path = filepath.Dir(path)
	}
}

// path maps a key to its path. A symbolic link among its directories is an error: the link
// may lead to another file system, and what is above its target may not be durable.
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
		return nil // it was checked when it was remembered
	}
	for ; len(dir) > len(s.root); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return &store.Error{Op: op, Key: key, Kind: store.ErrInvalid, Hint: dir + " is a symbolic link; directories of a store must not be"}
		}
	}
	return nil
}

// makeRoot creates the root and the directories above it, durably.
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

// prepare makes the reserved folder and cleans up. A process that may only read can use
// what a writer has made.
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

// Get implements [store.Store]. The body is that of the returned version, whatever happens
// to the key while it is read.
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	path, err := s.path("get", key)
	if err != nil {
		return nil, err
	}
	o := *cmp.Or(opts, &store.GetOptions{})
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

// object describes the open file, not the name, which may belong to another object by now.
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
	if err := s.secure(path, f, fi); err != nil {
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

// version names one state of a key by its time in nanoseconds, its inode and its size. No
// two states of a key have the same version. Along the swaps of a key the time rises (see
// [Store.finish]). A key that is deleted and created again would need the same inode in
// the same nanosecond.
func version(fi fs.FileInfo) store.Version {
	t := fi.ModTime()
	return store.Version(fmt.Sprintf("%x.%09d-%x-%x", t.Unix(), t.Nanosecond(), inode(fi), fi.Size()))
}

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits {
	u := url.URL{Scheme: "file", Path: s.root}
	return store.Traits{Name: u.String(), MultiProcess: true}
}
