package compactor

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// small makes a compactor do as much as possible with little data.
func small() *Options {
	return &Options{FanIn: 2, Levels: 8, SegmentBytes: 4096, NoCompress: true, Settle: logtest.Quick, Concurrency: 1}
}

// world is a log with a table.
type world struct {
	*logtest.Log
	files map[string]bool // the table: live files
	was   map[string]bool // those that were removed
}

// newWorld is a log without any records.
func newWorld(t testing.TB, grace time.Duration, opts *memstore.Options) *world {
	t.Helper()
	return worldOf(logtest.New(t, logtest.WithGrace(grace), opts))
}

func worldOf(l *logtest.Log) *world {
	return &world{Log: l, files: map[string]bool{}, was: map[string]bool{}}
}

// sample is a log with three leaderships, of which a part is folded. It has segments to
// be merged, seals, and a tail. Of its files some are live, folded or not, some were
// removed, and some were never committed.
func sample(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, 0, nil)
	w.Lead(3)
	a, b := w.file(), w.file()
	w.commit([]string{a, b}, nil)
	w.file()
	w.compact(w.Mem, nil) // nothing to merge by default
	w.Lead(4)
	c := w.file()
	w.commit([]string{c}, []string{a})
	w.compact(w.Mem, nil)
	w.Lead(3)
	w.commit([]string{w.file()}, []string{b, c})
	w.file()
	return w
}

// fork returns a copy on a store of its own.
func (w *world) fork(t testing.TB) *world {
	t.Helper()
	return &world{Log: w.Fork(t, nil), files: maps.Clone(w.files), was: maps.Clone(w.was)}
}

// file is one that the leader has written and not committed.
func (w *world) file() string {
	key := layout.FileKey(w.Epoch, uuid.NewString(), ".parquet")
	w.Put(key, []byte(key))
	return key
}

// commit is an edit of the leader, after all that it has appended.
func (w *world) commit(add, remove []string) {
	w.Helper()
	e := manifest.Edit{Remove: remove}
	for _, key := range add {
		e.Add = append(e.Add, manifest.File{Key: key, Size: int64(len(key))})
		w.files[key] = true
	}
	for _, key := range remove {
		delete(w.files, key)
		w.was[key] = true
	}
	w.edit(&e)
}

func (w *world) edit(e *manifest.Edit) {
	w.Helper()
	doc, err := state.EncodeEdit(e)
	if err != nil {
		w.Fatal(err)
	}
	w.editDoc(doc)
}

func (w *world) editDoc(doc []byte) {
	w.Helper()
	var b frame.Builder
	b.SetEdit(doc)
	p, _ := w.tail()
	h := w.Header(p)
	w.Put(layout.DataKey(p.Position), slices.Clone(b.Finish(&h, frame.Plain)))
}

// tail is the tail of the chain, and the edits that are not folded.
func (w *world) tail() (p frame.Point, edits []state.AppliedEdit) {
	w.Helper()
	p = w.Newest().Floor
	src := chain.Source{Store: w.Mem, Log: w.Format.Log, Limits: w.Format.Limits, Settle: logtest.Quick}
	for step, err := range src.Walk(context.Background(), p) {
		if err == nil && step.Frame.Kind == frame.Edit {
			var e state.AppliedEdit
			e, err = decodeEdit(step)
			edits = append(edits, e)
		}
		if err != nil {
			w.Fatal(err)
		}
		p = step.To
	}
	return p, edits
}

// table is what the log says of the files.
func (w *world) table() map[string]bool {
	w.Helper()
	_, edits := w.tail()
	m, err := w.Newest().Apply(edits)
	if err != nil {
		w.Fatal(err)
	}
	live := map[string]bool{}
	for f, err := range w.State.Files(context.Background(), m) {
		if err != nil {
			w.Fatal(err)
		}
		live[f.Key] = true
	}
	return live
}

// open opens a writer of the next epoch on a store in front of the log's.
func (w *world) open(st store.Store) *writer.Writer {
	w.Helper()
	w.Epoch++
	wr, err := writer.Open(context.Background(), st, fence.NewToken(w.Epoch), &writer.Options{Settle: logtest.Quick, NoCompress: true})
	if err != nil {
		w.Fatal(err)
	}
	return wr
}

func mustNew(t testing.TB, st store.Store, o *Options) *Compactor {
	t.Helper()
	c, err := New(st, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withToken is a compactor of an epoch.
func (w *world) withToken(st store.Store, token fence.Epoch, opts *Options) *Compactor {
	w.Helper()
	o := Options{Settle: logtest.Quick}
	if opts != nil {
		o = *opts
	}
	o.Token = fence.NewToken(token)
	return mustNew(w.TB, st, &o)
}

func (w *world) once(st store.Store, token fence.Epoch, opts *Options) (Report, error) {
	w.Helper()
	return w.withToken(st, token, opts).Once(context.Background())
}

// compact does what there is to do, as a compactor of a new epoch.
func (w *world) compact(st store.Store, opts *Options) Report {
	w.Helper()
	w.Token++
	r, err := w.once(st, w.Token, opts)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// pass is one that is about to begin.
func (w *world) pass(st store.Store, token fence.Epoch, opts *Options) *pass {
	w.Helper()
	c := w.withToken(st, token, opts)
	e, err := c.ownEpoch(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return c.pass(e)
}

// pruneAs prunes as a new epoch, and neither folds nor merges.
func (w *world) pruneAs(token fence.Epoch) Report {
	w.Helper()
	p := w.pass(w.Mem, token, nil)
	_, err := p.updater.Update(context.Background(), func(*state.Change) error { return nil })
	if err == nil {
		err = p.prune(context.Background())
	}
	if err != nil {
		w.Fatal(err)
	}
	return p.report
}

// holds fails the test unless the log holds what it should.
func (w *world) holds(when string) {
	w.Helper()
	got, err := logtest.Read(w.Mem, 0, nil)
	if err != nil || !slices.Equal(got, w.History()) {
		w.Fatalf("%s: the log holds %q, %v; want %q", when, got, err, w.History())
	}
	if got := w.table(); !maps.Equal(got, w.files) {
		w.Fatalf("%s: live are %v; want %v", when, got, w.files)
	}
	for key := range w.files {
		if !w.Has(key) {
			w.Fatalf("%s: %s is live and gone", when, key)
		}
	}
}

// names are the segments and lists that m names.
func (w *world) names(m *state.Manifest) (segments, lists []string) {
	w.Helper()
	for s, err := range w.State.Segments(context.Background(), m, 0) {
		if err != nil {
			w.Fatal(err)
		}
		segments = append(segments, s.Key)
	}
	return slices.Sorted(slices.Values(segments)), slices.Sorted(slices.Values(w.State.Lists(m)))
}

// tidy fails the test if anything is left that nothing needs, or anything is gone that
// stays for ever.
func (w *world) tidy(when string) {
	w.Helper()
	m := w.Newest()
	for d := range w.State.Dropped(context.Background(), m) {
		w.Errorf("%s: dropped and still there is %v", when, d)
	}
	segments, lists := w.names(m)
	var log []string
	for _, s := range m.Seals {
		log = append(log, layout.DataKey(s.Position))
	}
	for _, key := range w.Keys(layout.DataPrefix) {
		if pos, _ := layout.ParseDataKey(key); !pos.Before(m.Floor.Position) {
			log = append(log, key)
		}
	}
	slices.Sort(log)
	for prefix, want := range map[string][]string{layout.SegmentPrefix: segments, layout.ListPrefix: lists, layout.DataPrefix: log} {
		if got := w.Keys(prefix); !slices.Equal(got, want) {
			w.Errorf("%s: there are %q, want %q", when, short(got), short(want))
		}
	}
	for _, key := range w.Keys(layout.FilePrefix) {
		if epoch, _, _, _ := layout.ParseFileKey(key); !w.files[key] && epoch < m.Floor.Position.Epoch {
			w.Errorf("%s: %s is not live and still there", when, key)
		}
	}
	if n := len(w.Keys(layout.ManifestPrefix)); n > 4 {
		w.Errorf("%s: %d manifests are left", when, n)
	}
}

func short(keys []string) []string {
	var all []string
	for _, k := range keys {
		all = append(all, logtest.Short(k))
	}
	return all
}

// watch checks at every delete, by any client, that a durable manifest has made each
// object unnecessary before. Everything else hangs on that rule.
func (w *world) watch(also func(context.Context, faultstore.Op)) {
	w.Faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Delete {
			w.checkDelete(op.Keys)
		}
		if also != nil {
			also(ctx, op)
		}
	})
}

func (w *world) checkDelete(keys []string) {
	m := w.Newest()
	if _, ok := layout.ParseManifestKey(keys[0]); ok && !slices.IsSorted(keys) {
		w.Errorf("deleted out of order: %q", short(keys))
	}
	for _, key := range keys {
		if pos, ok := layout.ParseDataKey(key); ok {
			if s, known, err := w.State.SealOf(context.Background(), m, pos.Epoch); err != nil || !pos.Before(m.Floor.Position) || known && s.Position == pos {
				w.Errorf("%s is deleted, and manifest %d has its floor at %v, and the seal at %v", key, m.Version, m.Floor.Position, s.Position)
			}
		} else if v, ok := layout.ParseManifestKey(key); ok {
			if v >= m.PruneMark {
				w.Errorf("%s is deleted, and manifest %d has the prune mark %d", key, m.Version, m.PruneMark)
			}
		} else if epoch, _, _, ok := layout.ParseFileKey(key); ok {
			if w.files[key] || epoch >= m.Floor.Position.Epoch && !w.was[key] {
				w.Errorf("%s is deleted, and is live, or may still be committed", key)
			}
		} else if _, _, ok := layout.ParseListKey(key); ok {
			if slices.Contains(w.State.Lists(m), key) {
				w.Errorf("%s is deleted, and manifest %d names it", key, m.Version)
			}
		} else if _, _, ok := layout.ParseSegmentKey(key); ok {
			w.checkDeletedSegment(m, key)
		} else if _, ok := layout.ParsePinKey(key); !ok {
			w.Errorf("%s is deleted, and is none of ours", key)
		}
	}
}

func (w *world) checkDeletedSegment(m *state.Manifest, key string) {
	versions, err := w.State.Versions(context.Background())
	if err != nil {
		w.Errorf("%v", err)
	}
	for v := range versions {
		old, _, err := w.State.At(context.Background(), v)
		if v <= m.PruneMark || errors.Is(err, state.ErrPruned) {
			continue
		}
		if err != nil || slices.ContainsFunc(old.Segments, func(s state.Segment) bool { return s.Key == key }) {
			w.Errorf("%s is deleted, and manifest %d names it, above the prune mark %d; %v", key, v, m.PruneMark, err)
		}
	}
}

// place is a request of a compactor that does all it has to do in the same order each
// time (Options.Concurrency 1): the nth of a kind for a key. What uploads and what reads run
// side by side, so the number of a request alone would not tell which it is.
type place struct {
	kind faultstore.Kind
	key  string // without what is random in it
	nth  int
}

var random = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// places returns a function that tells at which place a request of a client is.
func places(client string) func(faultstore.Op) (place, bool) {
	var mu sync.Mutex
	times := map[place]int{}
	return func(op faultstore.Op) (place, bool) {
		if op.Client != client {
			return place{}, false
		}
		at := place{kind: op.Kind, key: random.ReplaceAllString(op.Key, "*")}
		mu.Lock()
		defer mu.Unlock()
		times[at]++
		at.nth = times[at]
		return at, true
	}
}

// once returns a function that reports when a client makes one request, the first time.
func once(client string, want place) func(faultstore.Op) bool {
	of := places(client)
	return func(op faultstore.Op) bool {
		got, ours := of(op)
		return ours && got == want
	}
}

// faultAt injects a fault at one request of a client.
func (w *world) faultAt(client string, at place, fault faultstore.Fault) (reached *atomic.Bool) {
	here, reached := once(client, at), new(atomic.Bool)
	w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
		if !here(op) {
			return faultstore.Fault{}
		}
		reached.Store(true)
		return fault
	})
	return reached
}

// everywhere returns all requests that the compactor of a token makes of a copy of w, if
// nothing interferes.
func (w *world) everywhere(token fence.Epoch, o *Options) []place {
	w.Helper()
	var mu sync.Mutex
	var all []place
	of := places("c")
	c := w.fork(w.TB)
	c.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
		if at, ours := of(op); ours {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, at)
		}
	})
	if _, err := c.once(c.Faulty.Client("c"), token, o); err != nil || len(all) < 30 {
		w.Fatalf("%d requests, %v", len(all), err)
	}
	return all
}
