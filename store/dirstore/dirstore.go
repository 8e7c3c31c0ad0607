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
	"path"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Store keeps objects in a directory. It is safe for concurrent use. Any number of Stores,
// in any number of processes, may work on one directory.
type Store struct {
	asked string   // the root as Open got it, made absolute
	root  string   // the same without links, for errors; see top
	top   *os.File // the root
	is    *entry   // which directory that is
	// unlisted: top is searchOnly, since this process may not read the root.
	unlisted bool
	walks    bool // see Store.open
	clock    clock.Clock
	calls    calls
	dirs     dirCache
	// renameMoves: see renameMoves().
	renameMoves bool

	preparing sync.Mutex
	prepared  atomic.Bool
}

var _ store.Store = (*Store)(nil)

// Open opens the store in dir. It creates the directory, unless Options.NoCreate is set.
// There is nothing to close. What is in the directory stays as it is until the first write
// of this Store, which deletes unfinished files of dead processes.
//
// Errors: [store.ErrNoBucket] if NoCreate is set and dir is missing; [store.ErrDenied],
// [store.ErrInvalid] if dir is not a directory, or if what should be the store's own folder
// is a symbolic link or a file; [store.ErrUnsupported].
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
	s := &Store{asked: root, root: root, walks: calls.walk || !canOpenBeneath(), clock: o.Clock, calls: calls}
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
		s.top, s.unlisted, err = s.calls.openRoot(root)
	}
	if err == nil {
		s.is, err = statOf(int(s.top.Fd()))
	}
	if err == nil {
		err = s.checkFileSystem()
	}
	if err == nil {
		err = s.checkReserved()
	}
	if err != nil {
		return nil, s.failure("open", dir, err)
	}
	return s, nil
}

// checkFileSystem refuses file systems that cannot keep the promises.
func (s *Store) checkFileSystem() error {
	magic := s.calls.magic
	if magic == 0 {
		var err error
		if magic, err = fileSystem(s.top); err != nil {
			return err
		}
	}
	s.renameMoves = renameMoves(magic)
	// guard:no-network. A directory on a file system of several machines is refused, where the system tells.
	if name, network := networks[magic]; network {
		return &store.Error{Op: "open", Key: s.root, Kind: store.ErrUnsupported,
			Hint: s.root + " is on a network file system (" + name + "), whose machines see the writes of others late; use a local disk or an object store"}
	}
	return nil
}

// notDir says which part of path is a file.
func notDir(file string) string {
	for {
		info, err := os.Stat(file)
		if err == nil && !info.IsDir() {
			return file + " is a file; name a directory"
		}
		if err == nil || file == filepath.Dir(file) {
			return "it is not a directory"
		}
		file = filepath.Dir(file)
	}
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

// checkReserved looks at the reserved folder, if there is one.
func (s *Store) checkReserved() error {
	for _, rel := range reservedDirs {
		d, err := s.openDir(rel, searchOnly)
		if err == nil {
			d.close()
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// prepare makes the reserved folder and cleans up, before the first write. A Store that
// only reads changes nothing.
func (s *Store) prepare() error {
	if s.prepared.Load() {
		return nil
	}
	s.preparing.Lock()
	defer s.preparing.Unlock()
	if s.prepared.Load() {
		return nil
	}
	if err := s.checkRoot(); err != nil {
		return err
	}
	for _, rel := range reservedDirs {
		d, err := s.openDir(path.Dir(rel), searchOnly)
		if err != nil {
			return err
		}
		mode := uint32(0o777)
		if rel == tempDir {
			mode = 0o700 // who can open an unfinished file can lock it
		}
		err = s.calls.mkdir(d, path.Base(rel), mode)
		d.close()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	lock, err := s.makeLock(listLock)
	if err != nil {
		return err
	}
	lock.close()
	s.clean()
	s.prepared.Store(true)
	return nil
}

// Get implements [store.Store]. The body is that of the returned version, whatever happens
// to the key while it is read.
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	rel, err := relPath("get", key)
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
	f, err := s.openFile(rel)
	if moved := s.checkRoot(); moved != nil { // also what is not there decides
		if err == nil {
			_ = f.Close()
		}
		return nil, s.failure("get", key, moved)
	}
	if err != nil {
		if isNotDir(err) || !errors.Is(err, fs.ErrNotExist) && s.isOther(rel, err) {
			err = fs.ErrNotExist // a link, a socket, or below an object
		}
		return nil, s.failure("get", key, err)
	}
	obj, err := s.object(f, rel, key, o)
	if err != nil {
		_ = f.Close()
		return nil, s.failure("get", key, err)
	}
	return obj, nil
}

// isOther reports whether there is something at rel, which cannot be opened, that is no file.
func (s *Store) isOther(rel string, err error) bool {
	if link := (*linkError)(nil); errors.As(err, &link) {
		return link.path == s.at(rel)
	}
	p, err := s.place(rel)
	if err != nil {
		return false
	}
	defer p.close()
	e, err := p.entry()
	return err == nil && !e.mode.IsRegular()
}

// object describes the open file, not the name, which may belong to another object by now.
func (s *Store) object(f *os.File, rel, key string, o store.GetOptions) (*store.Object, error) {
	e, err := statOf(int(f.Fd()))
	if err != nil {
		return nil, pathError("stat", f.Name(), err)
	}
	if !e.mode.IsRegular() {
		return nil, fs.ErrNotExist
	}
	info := s.info(key, e)
	if o.IfNoneMatch != "" && o.IfNoneMatch == info.Version {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	}
	if o.Offset >= info.Size && (o.Offset > 0 || o.Length > 0) {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrRange, Hint: fmt.Sprintf("the object has %d bytes", info.Size)}
	}
	if err := s.secure(rel, f, e); err != nil {
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

func (s *Store) info(key string, e *entry) store.Info {
	return store.Info{Key: key, Version: version(e), Size: e.size, LastModified: e.time, Date: s.clock.Wall()}
}

// version names one state of a key by its time in nanoseconds, its inode and its size. No
// two states of a key have the same version. Along the swaps of a key the time rises (see
// [Store.finish]). A key that is deleted and created again would need the same inode in
// the same nanosecond.
func version(e *entry) store.Version {
	return store.Version(fmt.Sprintf("%x.%09d-%x-%x", e.time.Unix(), e.time.Nanosecond(), e.ino, e.size))
}

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits {
	u := url.URL{Scheme: "file", Path: s.root}
	return store.Traits{Name: u.String(), MultiProcess: true}
}

// Expiries implements [store.ExpiryTeller]: a directory deletes nothing by its age.
func (s *Store) Expiries(context.Context, string) ([]store.Expiry, error) { return nil, nil }
