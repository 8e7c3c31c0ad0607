package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

const (
	// parallel is how many objects are copied at once.
	parallel = 16
	// small objects are copied in memory.
	small = 4 << 20
	// tries is how often a lock that changes meanwhile is copied before its error counts.
	tries = 5
)

// errGone: an object is not in the log any more.
var errGone = errors.New("an object is gone")

// errNotOurs: the place of the copy is another call's, or it is not known to be of this log.
var errNotOurs = errors.New("")

// gone returns errGone for an object that is not there, and else err.
func gone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return err
}

// side is one of the two places of a copy. A log may keep the files of its table in a second store, where they have
// other names. Its backup has them in itself, under their keys in the log.
type side struct {
	log    store.Store
	second store.Store // has the files; nil: log has them
	dir    string      // of the files in second
}

// with returns the side whose files are in a second store, unless that is nil.
func (s side) with(second store.Store, f manifest.Format) side {
	if second != nil {
		f.Files = &manifest.Files{}
		s.second, s.dir = second, f.FileName(inspect.File.Prefix())
	}
	return s
}

// at returns where the object of a key is, and its name there.
func (s side) at(key string) (st store.Store, name string) {
	if name, ok := strings.CutPrefix(key, inspect.File.Prefix()); ok && s.second != nil {
		return s.second, s.dir + name
	}
	return s.log, key
}

// where returns the name of an object and that of its store, for people.
func (s side) where(key string) (name, place string) {
	st, name := s.at(key)
	return name, st.Traits().Name
}

// list returns what is there below some prefixes, by key, with its size.
func (s side) list(ctx context.Context, prefixes ...string) (map[string]int64, error) {
	have := map[string]int64{}
	for _, prefix := range prefixes {
		st, name := s.at(prefix)
		for info, err := range store.ListAll(ctx, st, name, nil, nil) {
			if err != nil {
				return nil, err
			}
			have[prefix+strings.TrimPrefix(info.Key, name)] = info.Size
		}
	}
	return have, nil
}

// transfer copies the objects of a log from one place to another.
type transfer struct {
	Options
	from, to side
	have     map[string]int64 // what is there already, by key, with its size
	limits   fence.Limits
	// look is how people check the place from where the objects come.
	look string
	// own returns an error if the copy is not that of this call any more. It is asked before anything is copied again.
	own func(context.Context) error

	done, total atomic.Int64
	mu          sync.Mutex
	report      *Report
	healed      map[string]bool // the objects that were copied again, by key
}

// all copies objects, several at once, by their keys and sizes; a size below 0 is not known. Objects that are there already are
// left out. Of what a compactor may delete because nobody names it, nothing need be there: the check of the copy tells what is missing.
func (t *transfer) all(ctx context.Context, items map[string]int64) error {
	for _, size := range items {
		t.total.Add(max(size, 0))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for key, want := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() (err error) {
			t.mu.Lock()
			size, there := t.have[key]
			t.mu.Unlock()
			if there && want >= 0 && size != want {
				err = t.heal(ctx, key) // a part of the copy: no store makes a part of an object visible
				size = want
			} else if !there {
				size, err = t.one(ctx, key, false)
			}
			kind := inspect.Parse(key).Kind
			switch {
			case errors.Is(err, errGone) && (kind == inspect.Segment || kind == inspect.List || kind == inspect.File):
				t.total.Add(-max(want, 0))
				return nil
			case err != nil:
				return err
			case there:
				t.done.Add(size)
			}
			t.count(key, size, there)
			return nil
		})
	}
	return g.Wait()
}

func (t *transfer) tell() {
	if t.Progress == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Progress("copying", t.done.Load(), t.total.Load())
}

func (t *transfer) count(key string, n int64, there bool) {
	t.mu.Lock()
	t.report.Objects++
	t.report.Bytes += n
	if there {
		t.report.Present++
	} else {
		t.have[key] = n
	}
	t.mu.Unlock()
	t.tell()
}

// one copies an object, and returns its size. Again says that the copy in the destination is damaged, and is to be replaced.
func (t *transfer) one(ctx context.Context, key string, again bool) (n int64, err error) {
	name, place := t.to.where(key)
	for pause := 50 * time.Millisecond; ; pause *= 4 {
		n, err = t.attempt(ctx, key, again)
		_, original := errors.AsType[*originalError](err)
		switch {
		case err == nil, original, errors.Is(err, errNotOurs):
			return n, err
		case errors.Is(err, store.ErrPrecondition):
			return n, fmt.Errorf("somebody else has put another %s into %s meanwhile, perhaps of another history of this log: give a place of its own: %w", name, place, err)
		case errors.Is(err, store.ErrNotFound), store.Permanent(err), ctx.Err() != nil, pause > 5*time.Second:
			return n, fmt.Errorf("copying %s: %w", key, gone(err))
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// attempt copies an object once: a small one in memory, and a large one as a stream.
func (t *transfer) attempt(ctx context.Context, key string, again bool) (n int64, err error) {
	from, name := t.from.at(key)
	to, dest := t.to.at(key)
	body, info, err := store.Read(ctx, from, name, &store.ReadOptions{Limit: small})
	large := errors.Is(err, store.ErrTooLarge)
	if err != nil && !large {
		return 0, err
	}
	if again {
		if err := t.sound(key, body, info.Size); err != nil {
			return 0, err
		}
		if err := t.own(ctx); err != nil {
			return 0, fmt.Errorf("%w%w", errNotOurs, err)
		}
	}
	switch {
	case large:
		return t.stream(ctx, key, again)
	case again:
		err = replace(ctx, to, dest, body)
	default:
		_, err = store.Create(ctx, to, dest, body, nil)
	}
	if err == nil {
		t.done.Add(info.Size)
	}
	return info.Size, err
}

func (t *transfer) stream(ctx context.Context, key string, again bool) (int64, error) {
	from, name := t.from.at(key)
	to, dest := t.to.at(key)
	obj, err := from.Get(ctx, name, nil)
	if err != nil {
		return 0, err
	}
	defer obj.Body.Close()
	body := &counted{obj.Body, t, 0}
	o := &store.UploadOptions{SizeHint: obj.Size}
	if again {
		// Whoever else writes this name, and if this request comes late, writes the same bytes.
		_, err = to.Upload(ctx, dest, body, o)
	} else {
		_, err = store.UploadNew(ctx, to, dest, body, o, nil)
	}
	if err != nil {
		t.done.Add(-body.n)
	}
	return obj.Size, err
}

// counted tells people about what is read.
type counted struct {
	io.Reader
	t *transfer
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	c.t.done.Add(int64(n))
	c.t.tell()
	return n, err
}

// replace writes an object that may be there with other content.
func replace(ctx context.Context, st store.Store, key string, body []byte) error {
	for range tries {
		_, err := store.Create(ctx, st, key, body, nil)
		conflict, ok := errors.AsType[*store.ConflictError](err)
		if !ok {
			return err
		}
		if conflict.Found.Version == "" {
			continue
		}
		_, err = store.Swap(ctx, st, key, body, conflict.Found.Version, nil)
		if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
	}
	return fmt.Errorf("%s in %s changes all the time: is another backup running to the same place?", key, st.Traits().Name)
}

// head is what a copy needs to know of a manifest.
type head struct {
	// Floor is where the chain begins that no segment has.
	Floor struct {
		Position fence.Position `json:"position"`
	} `json:"floor"`
	// Roles are the epochs that have written, by who leads: "writer" or "compactor".
	Roles map[string]struct {
		Epoch fence.Epoch `json:"epoch"`
	} `json:"roles"`
}

// readHead reads a version of the manifest.
func readHead(ctx context.Context, st store.Store, version uint64, limits fence.Limits) (h head, err error) {
	key := inspect.Name{Kind: inspect.Manifest, Number: version}.Key()
	body, _, err := store.Read(ctx, st, key, &store.ReadOptions{Limit: limits.Manifest})
	if err == nil {
		err = document.Decode(key, body, &h)
	}
	return h, err
}

// newest returns the highest number of the objects of a kind that are there; 0 if there is none.
func newest(have map[string]int64, kind inspect.Kind) (n uint64) {
	for key := range have {
		if name := inspect.Parse(key); name.Kind == kind {
			n = max(n, name.Number)
		}
	}
	return n
}

// needless reports whether a version needs neither a manifest nor a lock of this name, because they are older or
// of another version. So it does no harm if one is damaged that the log has no longer.
func needless(have map[string]int64, version uint64) func(key string) bool {
	locks := map[inspect.Kind]uint64{inspect.Lock: newest(have, inspect.Lock), inspect.CompactorLock: newest(have, inspect.CompactorLock)}
	return func(key string) bool {
		n := inspect.Parse(key)
		last, lock := locks[n.Kind]
		return lock && n.Number < last || n.Kind == inspect.Manifest && n.Number != version
	}
}
