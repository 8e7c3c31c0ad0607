package backup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

const (
	// parallel is how many objects are copied at once.
	parallel = 16
	// small objects are copied in memory.
	small = 4 << 20
	// tries is how often an object is copied before its error counts.
	tries = 5
)

// errGone: an object is not in the log any more.
var errGone = errors.New("an object is gone")

// transfer copies objects from one store to another.
type transfer struct {
	from, to store.Store
	have     map[string]int64 // what is there already, by key, with its size
	server   store.Copier     // nil: the bytes go through this process
	progress func(done, total int64)

	done, total atomic.Int64
	mu          sync.Mutex
	report      *Report
}

// item is an object to copy. A size below 0 is not known.
type item struct {
	key  string
	size int64
}

// existing lists what the destination has.
func existing(ctx context.Context, st store.Store) (map[string]int64, error) {
	have := map[string]int64{}
	for info, err := range store.ListAll(ctx, st, "", nil, nil) {
		if err != nil {
			return nil, err
		}
		have[info.Key] = info.Size
	}
	return have, nil
}

// tryServer finds out whether the destination copies by itself, and on the condition that
// the key is absent. A store that ignores the condition could replace an object by a late
// copy of a request.
func (t *transfer) tryServer(ctx context.Context) {
	c, ok := store.As[store.Copier](t.to)
	if !ok {
		return
	}
	obj, err := t.from.Get(ctx, layout.FormatKey, nil)
	if err != nil {
		return
	}
	_ = obj.Body.Close()
	key := layout.TmpPrefix + uuid.NewString()
	_, first := c.CopyFrom(ctx, key, t.from, obj.Info)
	_, second := c.CopyFrom(ctx, key, t.from, obj.Info)
	if first == nil && store.OutcomeOf(second) == store.Refused {
		t.server, t.report.ServerSide = c, true
	}
	if !errors.Is(first, store.ErrUnsupported) {
		_ = store.DeleteAll(ctx, t.to, []string{key}, nil)
	}
}

// all copies objects, several at once. Objects that are there already are left out.
func (t *transfer) all(ctx context.Context, items []item) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, it := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if size, ok := t.present(it.key); ok && (it.size < 0 || size == it.size) {
				t.count(it.key, size, true)
				return nil
			} else if ok {
				return fmt.Errorf("%s in %s has %d bytes, not %d: it is not of this backup", it.key, t.to.Traits().Name, size, it.size)
			}
			n, err := t.one(ctx, it)
			if err != nil {
				return fmt.Errorf("copying %s: %w", it.key, err)
			}
			if it.size >= 0 && n != it.size {
				return fmt.Errorf("copying %s: it has %d bytes, not %d", it.key, n, it.size)
			}
			t.count(it.key, n, false)
			return nil
		})
	}
	return g.Wait()
}

// present returns the size of an object that the destination has.
func (t *transfer) present(key string) (size int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	size, ok = t.have[key]
	return size, ok
}

func (t *transfer) count(key string, n int64, there bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.report.Objects++
	t.report.Bytes += n
	if there {
		t.report.Present++
	} else {
		t.have[key] = n
	}
	if t.progress != nil {
		t.progress(t.done.Add(n), t.total.Load())
	}
}

// one copies an object, and returns its size.
func (t *transfer) one(ctx context.Context, it item) (n int64, err error) {
	for pause := 50 * time.Millisecond; ; pause *= 4 {
		if n, err = t.attempt(ctx, it); err == nil {
			return n, nil
		}
		if errors.Is(err, store.ErrNotFound) {
			return 0, fmt.Errorf("%w: %w", errGone, err)
		}
		if ctx.Err() != nil || store.Permanent(err) || errors.Is(err, store.ErrPrecondition) || pause > 5*time.Second {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// attempt copies an object once, in the way that suits it.
func (t *transfer) attempt(ctx context.Context, it item) (int64, error) {
	if t.server != nil && it.size != 0 {
		_, found, err := store.Read(ctx, t.from, it.key, &store.ReadOptions{Length: 1})
		if err == nil {
			_, err = t.server.CopyFrom(ctx, it.key, t.from, found)
		}
		switch {
		case errors.Is(err, store.ErrPrecondition):
			return t.there(ctx, it.key, found.Size)
		case !errors.Is(err, store.ErrUnsupported) && !errors.Is(err, store.ErrRange):
			return found.Size, err
		}
	}
	if it.size > small || it.size == 0 {
		return t.stream(ctx, it.key)
	}
	body, _, err := store.Read(ctx, t.from, it.key, &store.ReadOptions{Limit: small})
	switch {
	case errors.Is(err, store.ErrTooLarge), err == nil && len(body) == 0:
		return t.stream(ctx, it.key)
	case err != nil:
		return 0, err
	}
	_, err = store.Create(ctx, t.to, it.key, body, nil)
	return int64(len(body)), err
}

// stream copies an object of any size in bounded memory.
func (t *transfer) stream(ctx context.Context, key string) (int64, error) {
	obj, err := t.from.Get(ctx, key, nil)
	if err != nil {
		return 0, err
	}
	defer obj.Body.Close()
	_, err = store.UploadNew(ctx, t.to, key, obj.Body, &store.UploadOptions{SizeHint: obj.Size}, nil)
	return obj.Size, err
}

// there checks an object whose copy was refused: the answer of an earlier request was lost.
func (t *transfer) there(ctx context.Context, key string, size int64) (int64, error) {
	_, info, err := store.Read(ctx, t.to, key, &store.ReadOptions{Length: 1})
	switch {
	case err != nil:
		return 0, err
	case info.Size != size:
		return 0, &store.Error{Op: "copy", Key: key, Kind: store.ErrPrecondition, Hint: "another object is there"}
	}
	return size, nil
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
