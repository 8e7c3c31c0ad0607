package certmagicstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/store"
)

// maxValue bounds what Load reads, in bytes.
const maxValue = 16 << 20

// Storage is a certmagic.Storage and a certmagic.TryLocker. It is safe for concurrent use.
type Storage struct {
	st    store.Store
	locks *lock.Locker

	mu   sync.Mutex
	held map[string][]*lock.Lock // by name; several if some were lost, and not unlocked yet
}

var (
	_ certmagic.Storage   = (*Storage)(nil)
	_ certmagic.TryLocker = (*Storage)(nil)
)

// New returns a Storage whose objects are those below a prefix of a store. All machines use the same prefix, and Lockers with
// one place. It sends no request. The caller closes the Locker. The error is store.ErrInvalid.
func New(st store.Store, prefix string, locks *lock.Locker) (*Storage, error) {
	if store.IsNil(st) || locks == nil {
		return nil, fmt.Errorf("certmagicstore: %w: it needs a store and a Locker", store.ErrInvalid)
	}
	sub, err := store.Sub(st, prefix)
	if err != nil {
		return nil, err
	}
	return &Storage{st: sub, locks: locks, held: map[string][]*lock.Lock{}}, nil
}

// String says where it is: certmagic compares and logs that.
func (s *Storage) String() string { return "certmagicstore:" + s.st.Traits().Name }

// Lock implements certmagic.Locker.
func (s *Storage) Lock(ctx context.Context, name string) error {
	k, err := s.locks.Acquire(ctx, name)
	return s.hold(k, err)
}

// TryLock implements certmagic.TryLocker.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	k, err := s.locks.TryAcquire(ctx, name)
	if errors.Is(err, lock.ErrHeld) {
		return false, nil
	}
	return err == nil, s.hold(k, err)
}

func (s *Storage) hold(k *lock.Lock, err error) error {
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[k.Name()] = append(s.held[k.Name()], k)
	}
	return err
}

// Unlock implements certmagic.Locker. A lock that was lost meanwhile is an error: others may have done the same work.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	k := s.oldest(name)
	if k == nil {
		return fmt.Errorf("certmagicstore: %q is not locked here", name)
	}
	return k.Release(ctx)
}

// oldest takes the lock of a name that was acquired first: all but the last one are lost.
func (s *Storage) oldest(name string) *lock.Lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.held[name]
	if len(all) == 0 {
		return nil
	}
	if s.held[name] = all[1:]; len(all) == 1 {
		delete(s.held, name)
	}
	return all[0]
}

// Store implements certmagic.Storage. It replaces the version that it has read, so that a request of an earlier call, which
// lands late, never replaces a later value.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	if len(value) == 0 { // nothing tells it from another one
		_, err := s.st.Put(ctx, key, value, nil)
		return err
	}
	for {
		found, err := s.stat(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			_, err = store.Create(ctx, s.st, key, value, nil)
		case err == nil:
			_, err = store.Swap(ctx, s.st, key, value, found.Version, nil)
		}
		if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
	}
}

// stat reads no more of an object than it must.
func (s *Storage) stat(ctx context.Context, key string) (store.Info, error) {
	_, info, err := store.Read(ctx, s.st, key, &store.ReadOptions{Length: 1})
	if errors.Is(err, store.ErrRange) { // it is empty
		_, info, err = store.Read(ctx, s.st, key, &store.ReadOptions{Limit: 1})
	}
	return info, err
}

// Load implements certmagic.Storage. A key that does not exist is fs.ErrNotExist.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	value, _, err := store.Read(ctx, s.st, key, &store.ReadOptions{Limit: maxValue})
	return value, missing(err)
}

func missing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// Delete implements certmagic.Storage.
func (s *Storage) Delete(ctx context.Context, key string) error {
	below, err := s.below(ctx, key)
	if err != nil {
		return err
	}
	return store.DeleteAll(ctx, s.st, append(below, key), nil)
}

// below lists the keys below a directory.
func (s *Storage) below(ctx context.Context, dir string) (keys []string, err error) {
	if dir = strings.Trim(dir, "/"); dir != "" {
		dir += "/"
	}
	for info, err := range store.ListAll(ctx, s.st, dir, nil, nil) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, info.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Exists implements certmagic.Storage. If the store does not say, it is true, as in certmagic's FileStorage: a certificate that
// seems to be missing is obtained anew.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return !errors.Is(err, fs.ErrNotExist)
}

// List implements certmagic.Storage. A directory that does not exist is fs.ErrNotExist, as in certmagic's FileStorage.
func (s *Storage) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	keys, err := s.below(ctx, path)
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("%w: nothing is below %q", fs.ErrNotExist, path)
	}
	if err != nil || recursive {
		return keys, err
	}
	dir := len(strings.Trim(path, "/"))
	for i, key := range keys {
		skip := min(dir+1, len(key))
		if dir == 0 {
			skip = 0
		}
		name, _, _ := strings.Cut(key[skip:], "/")
		keys[i] = key[:skip] + name
	}
	return slices.Compact(keys), nil
}

// Stat implements certmagic.Storage.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	info, err := s.stat(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		if below, lerr := s.below(ctx, key); lerr != nil || len(below) > 0 {
			return certmagic.KeyInfo{Key: key}, lerr
		}
	}
	if err != nil {
		return certmagic.KeyInfo{}, missing(err)
	}
	return certmagic.KeyInfo{Key: key, Modified: info.LastModified, Size: info.Size, IsTerminal: true}, nil
}
