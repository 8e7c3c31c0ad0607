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

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
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

// compared is how many bytes of an object of the chain are read if the destination has one of its name.
// They have the header, whose nonce differs in two histories of one log.
const compared = 4 << 10

// heartbeat is how often progress is told while nothing arrives.
const heartbeat = time.Second

// otherError: the destination has another object of the same name.
type otherError struct{ key, what, place, advice string }

func (e *otherError) Error() string {
	return fmt.Sprintf("%s %s: %s", e.place, e.advice, e.what)
}

// transfer copies the objects of a log from one place to another.
type transfer struct {
	from, to store.Store
	have     map[string]int64 // what is there already, by key, with its size
	// log is the way of all objects. The files of the table take another one if either place
	// has them in a second store.
	log, files way
	progress   func(done, total int64)
	// advice is what people are told if the destination has another object of the same name.
	advice string
	// look is how people check the place from where the objects come.
	look   string
	limits fence.Limits
	note   func(format string, args ...any)
	// own returns an error if the copy is not that of this call any more. It is asked after the copying, before
	// anything is copied again.
	own func(context.Context) error

	// mark is the version of the format.json that a restore has put into its place, and run is the name in it.
	mark store.Version
	run  fence.ID

	done, total atomic.Int64
	mu          sync.Mutex
	report      *Report
	healed      map[string]bool // the objects that were copied again, by key
}

// begin is a transfer whose files take the way of all objects.
func begin(from, to store.Store, report *Report, o *Options) *transfer {
	t := &transfer{from: from, to: to, report: report, advice: "has another history of this log: back up to a place of its own", look: "verify", log: way{from: from, to: to, sample: layout.FormatKey, tmp: layout.TmpPrefix}}
	t.note, t.healed = o.Note, map[string]bool{}
	t.progress = func(done, total int64) { o.Progress("copying", done, total) }
	return t
}

// item is an object to copy. A size below 0 is not known.
type item struct {
	key  string
	size int64
	// again says that the copy in the destination is damaged, and is to be replaced.
	again bool
}

// existing lists what a store has below a prefix.
func existing(ctx context.Context, st store.Store, prefix string) (map[string]int64, error) {
	have := map[string]int64{}
	for info, err := range store.ListAll(ctx, st, prefix, nil, nil) {
		if err != nil {
			return nil, err
		}
		have[info.Key] = info.Size
	}
	return have, nil
}

// way leads from one store to another.
type way struct {
	from, to store.Store
	// fromDir and toDir are the folders of the files in a second store, and of the same files in
	// the log; empty if names do not change.
	fromDir, toDir string
	// sample is an object that from has, and tmp the folder of short-lived objects in to.
	sample, tmp string
	server      store.Copier // nil: the bytes go through this process
}

// way returns the way of an object, and its names at both ends.
func (t *transfer) way(key string) (w *way, from, to string) {
	if name, ok := strings.CutPrefix(key, layout.FilePrefix); ok && t.files.from != nil {
		return &t.files, t.files.fromDir + name, t.files.toDir + name
	}
	return &t.log, key, key
}

// tryServer finds out which ways the stores copy by themselves.
func (t *transfer) tryServer(ctx context.Context) {
	t.log.tryServer(ctx)
	t.report.ServerSide = t.log.server != nil
	if t.files.from != nil {
		t.files.tryServer(ctx)
		t.report.ServerSide = t.report.ServerSide && t.files.server != nil
	}
}

// tryServer finds out whether the destination copies by itself, and on the condition that
// the key is absent. A store that ignores the condition could replace an object by a late
// copy of a request.
func (w *way) tryServer(ctx context.Context) {
	c, ok := store.As[store.Copier](w.to)
	if !ok {
		return
	}
	obj, err := w.from.Get(ctx, w.sample, nil)
	if err != nil {
		return
	}
	_ = obj.Body.Close()
	key := w.tmp + uuid.NewString()
	_, first := c.CopyFrom(ctx, key, w.from, obj.Info)
	_, second := c.CopyFrom(ctx, key, w.from, obj.Info)
	if first == nil && store.OutcomeOf(second) == store.Refused {
		w.server = c
	}
	if !errors.Is(first, store.ErrUnsupported) {
		_ = store.DeleteAll(ctx, w.to, []string{key}, nil)
	}
}

// all copies objects, several at once. Objects that are there already are left out.
func (t *transfer) all(ctx context.Context, items []item) error {
	defer beat(t.tell)()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, it := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if size, ok := t.present(it.key); ok {
				if err := t.keep(ctx, it, size); err != nil {
					return err
				}
				if it.size >= 0 {
					size = it.size // it may be healed
				}
				t.done.Add(size)
				t.count(it.key, size, true)
				return nil
			}
			n, err := t.one(ctx, it)
			if err != nil {
				return fmt.Errorf("copying %s: %w", it.key, err)
			}
			t.count(it.key, n, false)
			return nil
		})
	}
	return g.Wait()
}

// beat tells people again and again how far the work is, also while one object takes long. The caller ends it.
func beat(tell func()) (end func()) {
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				tell()
			}
		}
	}()
	return func() { close(stop); <-over }
}

func (t *transfer) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.progress(t.done.Load(), t.total.Load())
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
	t.progress(t.done.Load(), t.total.Load())
}

// one copies an object, and returns its size.
func (t *transfer) one(ctx context.Context, it item) (n int64, err error) {
	for pause := 50 * time.Millisecond; ; pause *= 4 {
		if n, err = t.attempt(ctx, it); err == nil {
			return n, nil
		}
		if errors.Is(err, store.ErrNotFound) {
			return 0, gone(err)
		}
		if _, ok := errors.AsType[*originalError](err); ok {
			return 0, err
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
func (t *transfer) attempt(ctx context.Context, it item) (n int64, err error) {
	w, from, to := t.way(it.key)
	if w.server == nil || it.size == 0 || it.again {
		return t.through(ctx, w, it, from, to)
	}
	_, found, err := store.Read(ctx, w.from, from, &store.ReadOptions{Length: 1})
	if err == nil {
		if err := t.long(it, found.Size); err != nil {
			return 0, err
		}
		_, err = w.server.CopyFrom(ctx, to, w.from, found)
	}
	switch {
	case errors.Is(err, store.ErrUnsupported), errors.Is(err, store.ErrRange):
		return t.through(ctx, w, it, from, to)
	case errors.Is(err, store.ErrPrecondition):
		// The answer of an earlier request was lost, or another object is there.
		var there store.Info
		if _, there, err = store.Read(ctx, w.to, to, &store.ReadOptions{Length: 1}); err == nil {
			err = t.keep(ctx, item{key: it.key, size: found.Size}, there.Size)
		}
	}
	if err == nil {
		t.done.Add(found.Size)
	}
	return found.Size, err
}

// through copies an object through this process.
func (t *transfer) through(ctx context.Context, w *way, it item, from, to string) (int64, error) {
	if it.size > small || it.size == 0 {
		return t.stream(ctx, w, it, from, to)
	}
	body, _, err := store.Read(ctx, w.from, from, &store.ReadOptions{Limit: small})
	switch {
	case errors.Is(err, store.ErrTooLarge), err == nil && len(body) == 0:
		return t.stream(ctx, w, it, from, to)
	case err != nil:
		return 0, err
	}
	if err := t.long(it, int64(len(body))); err != nil {
		return 0, err
	}
	if it.again && t.tells(it.key) {
		err = t.unfit(it.key, t.sound(it.key, body, int64(len(body))))
	}
	switch {
	case err != nil:
		return 0, err
	case it.again:
		err = replace(ctx, w.to, to, body)
	default:
		_, err = store.Create(ctx, w.to, to, body, nil)
	}
	if err == nil {
		t.done.Add(int64(len(body)))
	}
	return int64(len(body)), err
}

// stream copies an object of any size in bounded memory.
func (t *transfer) stream(ctx context.Context, w *way, it item, from, to string) (int64, error) {
	obj, err := w.from.Get(ctx, from, nil)
	if err != nil {
		return 0, err
	}
	defer obj.Body.Close()
	if err := t.long(it, obj.Size); err != nil {
		return 0, err
	}
	body := &counted{Reader: obj.Body, done: &t.done}
	o := &store.UploadOptions{SizeHint: obj.Size}
	if it.again {
		// Whoever else writes this name, and if this request comes late, writes the same bytes.
		_, err = w.to.Upload(ctx, to, body, o)
	} else {
		_, err = store.UploadNew(ctx, w.to, to, body, o, nil)
	}
	if err != nil {
		t.done.Add(-body.n)
	}
	return obj.Size, err
}

// counted adds what is read to the progress.
type counted struct {
	io.Reader
	done *atomic.Int64
	n    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	c.done.Add(int64(n))
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
