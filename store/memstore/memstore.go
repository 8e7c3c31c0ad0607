package memstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // an ETag that other stores compute so, not a safeguard
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/store"
)

// Store keeps objects in memory. It is safe for concurrent use.
type Store struct {
	opts Options

	mu sync.RWMutex
	// dirs holds the objects by folder, which is the key up to its last slash, and then by
	// key. A listing reads only the folders under its prefix, so listing a few manifests
	// does not walk a million log objects.
	dirs    map[string]map[string]*object
	count   int
	bytes   int64
	writes  uint64     // numbers the versions
	listing *rand.Rand // nil without a seed, and so are the hints
	hints   *rand.Rand
}

// object is immutable once it is in the map: a Put replaces it as a whole. So readers
// need no copy of the body.
type object struct {
	key      string
	version  store.Version
	modified time.Time
	body     []byte
}

var _ store.Store = (*Store)(nil)

// New returns an empty store, which nobody else sees. Opts may be nil.
func New(opts *Options) *Store {
	o := opts.withDefaults()
	s := &Store{opts: o, dirs: map[string]map[string]*object{}}
	if o.Seed != 0 {
		s.listing, s.hints = rand.New(rand.NewPCG(o.Seed, 0)), rand.New(rand.NewPCG(o.Seed, 1))
	}
	return s
}

// Len returns how many objects there are, and the sum of their sizes in bytes.
func (s *Store) Len() (objects int, size int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count, s.bytes
}

// Traits implements [store.Store].
func (s *Store) Traits() store.Traits { return store.Traits{Name: s.opts.Name} }

func dir(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

func (o *object) info(date time.Time) store.Info {
	return store.Info{Key: o.key, Version: o.version, Size: int64(len(o.body)), LastModified: o.modified, Date: date}
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := check(ctx, "get", key); err != nil {
		return nil, err
	}
	get := *cmp.Or(opts, &store.GetOptions{})
	if get.Offset < 0 || get.Length < 0 {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrInvalid, Hint: "offset and length must not be negative"}
	}
	s.mu.RLock()
	o := s.dirs[dir(key)][key]
	s.mu.RUnlock()
	if o == nil {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotFound}
	}
	if get.IfNoneMatch != "" && get.IfNoneMatch == o.version {
		return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrNotModified}
	}
	body := o.body
	if get.Offset > 0 || get.Length > 0 {
		if get.Offset >= int64(len(body)) {
			return nil, &store.Error{Op: "get", Key: key, Kind: store.ErrRange}
		}
		body = body[get.Offset:]
		if get.Length > 0 {
			body = body[:min(get.Length, int64(len(body)))]
		}
	}
	return &store.Object{Info: o.info(s.opts.Clock.Wall()), Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if err := check(ctx, "put", key); err != nil {
		return store.Info{}, err
	}
	return s.put("put", key, bytes.Clone(body), opts.Condition())
}

// put stores body itself, not a copy.
func (s *Store) put(op, key string, body []byte, cond store.Condition) (store.Info, error) {
	now := s.opts.Clock.Wall()
	o := &object{key: key, modified: now, body: body}
	if s.opts.ContentVersions {
		sum := md5.Sum(body) //nolint:gosec // see the import
		o.version = store.Version(`"` + hex.EncodeToString(sum[:]) + `"`)
	}
	d := dir(key)

	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.dirs[d][key]
	match, matching := cond.Match()
	if cond == store.IfAbsent() && old != nil || matching && (old == nil || old.version != match) {
		return store.Info{}, &store.Error{Op: op, Key: key, Kind: store.ErrPrecondition}
	}
	if o.version == "" {
		s.writes++
		o.version = version(s.writes)
	}
	if s.dirs[d] == nil {
		s.dirs[d] = map[string]*object{}
	}
	s.dirs[d][key] = o
	s.bytes += int64(len(body))
	if old != nil {
		s.bytes -= int64(len(old.body))
	} else {
		s.count++
	}
	return o.info(now), nil
}

// version spreads a counter over 64 bits. The factor is odd, so no version comes twice, and
// large, so versions have no visible order.
func version(n uint64) store.Version {
	var b [16]byte
	return store.Version(strconv.AppendUint(b[:0], n*0x9e3779b97f4a7c15, 36))
}

// Upload implements [store.Store]. It needs as much memory as the object.
func (s *Store) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	if err := check(ctx, "upload", key); err != nil {
		return store.Info{}, err
	}
	whole, err := io.ReadAll(readerFunc(func(p []byte) (int, error) {
		if err := done(ctx); err != nil {
			return 0, err
		}
		return body.Read(p)
	}))
	if err != nil {
		return store.Info{}, &store.Error{Op: "upload", Key: key, Err: err}
	}
	var cond store.Condition
	if opts != nil && opts.Create {
		cond = store.IfAbsent()
	}
	return s.put("upload", key, slices.Clip(whole), cond)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// List implements [store.Store]. The listing is a snapshot of the instant at
// which the iteration begins.
//
// It has to be a snapshot. A walk could come too late for manifest 50, which was just
// deleted, and too early for manifest 51, and so show 49 as the newest.
func (s *Store) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		err := store.CheckPrefix("list", prefix)
		if err == nil {
			err = check(ctx, "list", "")
		}
		if err != nil {
			yield(store.Info{}, err)
			return
		}
		after := ""
		if opts != nil && opts.StartAfter != "" && s.takesHint() {
			after = opts.StartAfter
		}
		date := s.opts.Clock.Wall()
		for _, o := range s.snapshot(prefix, after) {
			if err := check(ctx, "list", ""); err != nil {
				yield(store.Info{}, err)
				return
			}
			if !yield(o.info(date), nil) {
				return
			}
		}
	}
}

// takesHint decides at random whether a listing honours StartAfter. It is a hint, which
// S3's directory buckets refuse.
func (s *Store) takesHint() bool {
	if s.hints == nil {
		return rand.IntN(2) == 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hints.IntN(2) == 0
}

func (s *Store) snapshot(prefix, after string) []*object {
	var found []*object
	s.mu.RLock()
	for d, objects := range s.dirs {
		if !strings.HasPrefix(d, prefix) {
			continue
		}
		for key, o := range objects {
			if key > after {
				found = append(found, o)
			}
		}
	}
	s.mu.RUnlock()
	shuffle := func(i, j int) { found[i], found[j] = found[j], found[i] }
	if s.listing == nil {
		rand.Shuffle(len(found), shuffle)
		return found
	}
	slices.SortFunc(found, func(a, b *object) int { return strings.Compare(a.key, b.key) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listing.Shuffle(len(found), shuffle)
	return found
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := check(ctx, "delete", key); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		d := dir(key)
		o := s.dirs[d][key]
		if o == nil {
			continue
		}
		delete(s.dirs[d], key)
		if len(s.dirs[d]) == 0 {
			delete(s.dirs, d)
		}
		s.count--
		s.bytes -= int64(len(o.body))
	}
	return nil
}

// check returns an error for a bad key or a context that has ended. Listings have no key.
func check(ctx context.Context, op, key string) error {
	if op != "list" {
		if err := store.CheckKey(op, key); err != nil {
			return err
		}
	}
	if err := done(ctx); err != nil {
		return &store.Error{Op: op, Key: key, Err: err}
	}
	return nil
}

// done returns the context's error with its cause, nil while the context goes on.
func done(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// Expiries implements [store.ExpiryTeller]: nothing here is deleted by its age.
func (s *Store) Expiries(context.Context, string) ([]store.Expiry, error) { return nil, nil }
