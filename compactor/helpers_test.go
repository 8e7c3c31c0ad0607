package compactor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// quick lets nobody wait for a store that is in memory.
var quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 3}

// small makes a compactor do as much as possible with little data.
func small() *Options {
	return &Options{FanIn: 2, Levels: 8, SegmentBytes: 4096, NoCompress: true, Settle: quick, Parallel: 1}
}

// format is that of every test's log: made once, because the store is probed
// before.
var format = sync.OnceValue(func() manifest.Format {
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: -1})
	if err != nil {
		panic(err)
	}
	return f
})

// world is a log on a store whose every request a test can interfere with.
type world struct {
	testing.TB
	mem    *memstore.Store
	faulty *faultstore.Store
	log    *state.Log
	grace  time.Duration

	want  []string        // the history
	files map[string]bool // the table: live files
	was   map[string]bool // those that were removed
	epoch uint64          // the writers' last
	token uint64          // the compactors' last
}

// newWorld has a log without any records.
func newWorld(t testing.TB, grace time.Duration, opts *memstore.Options) *world {
	t.Helper()
	f := format()
	f.Grace = manifest.Duration(grace)
	body, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	w := worldOf(t, memstore.New(opts), f)
	w.put(layout.FormatKey, body)
	return w
}

func worldOf(t testing.TB, mem *memstore.Store, f manifest.Format) *world {
	w := &world{TB: t, mem: mem, grace: time.Duration(f.Grace)}
	w.files, w.was = map[string]bool{}, map[string]bool{}
	w.faulty = faultstore.New(mem, nil)
	w.log = state.With(mem, f, &state.Options{Settle: quick})
	return w
}

// sample is a log with three leaderships, of which a part is folded: it has
// segments to be merged, seals, a tail; files that are live, folded or not, that
// were removed, and that nobody ever committed.
func sample(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, 0, nil)
	w.lead(3)
	a, b := w.file(), w.file()
	w.commit([]string{a, b}, nil)
	w.file()
	w.compact(w.mem, nil) // nothing to merge by default
	w.lead(4)
	c := w.file()
	w.commit([]string{c}, []string{a})
	w.compact(w.mem, nil)
	w.lead(3)
	w.commit([]string{w.file()}, []string{b, c})
	w.file()
	return w
}

// file is one that the leader has written and not committed.
func (w *world) file() string {
	key := layout.FileKey(fence.Epoch(w.epoch), uuid.NewString(), ".parquet")
	w.put(key, []byte(key))
	return key
}

// commit is an edit of the leader, behind all that it has appended.
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
	h := frame.Header{Log: w.log.Format().Log, Nonce: fence.ID(uuid.New()), Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}
	w.put(layout.DataKey(p.Position), slices.Clone(b.Finish(&h, frame.Plain)))
}

// tail is the end of the chain, and the edits on it that are not folded.
func (w *world) tail() (p frame.Point, edits []state.AppliedEdit) {
	w.Helper()
	m := w.newest()
	p = m.Floor
	src := chain.Source{Store: w.mem, Log: w.log.Format().Log, Limits: w.log.Format().Limits.Limits, Settle: quick}
	for step, err := range src.Walk(context.Background(), p) {
		if err != nil {
			w.Fatal(err)
		}
		if step.Frame.Kind == frame.Edit {
			e, err := decodeEdit(step)
			if err != nil {
				w.Fatal(err)
			}
			edits = append(edits, e)
		}
		p = step.To
	}
	return p, edits
}

// table is what the log says of the files.
func (w *world) table() map[string]bool {
	w.Helper()
	_, edits := w.tail()
	m, err := w.newest().Apply(edits)
	if err != nil {
		w.Fatal(err)
	}
	live := map[string]bool{}
	for f, err := range w.log.Files(context.Background(), m) {
		if err != nil {
			w.Fatal(err)
		}
		live[f.Key] = true
	}
	return live
}

// fork returns a copy on a store of its own.
func (w *world) fork(t testing.TB) *world {
	t.Helper()
	c := worldOf(t, memstore.New(nil), w.log.Format())
	for key, body := range w.objects() {
		c.put(key, body)
	}
	c.want, c.epoch, c.token = slices.Clone(w.want), w.epoch, w.token
	c.files, c.was = maps.Clone(w.files), maps.Clone(w.was)
	return c
}

func (w *world) objects() map[string][]byte {
	w.Helper()
	all := map[string][]byte{}
	for info, err := range w.mem.List(context.Background(), "", nil) {
		if err != nil {
			w.Fatal(err)
		}
		all[info.Key] = w.body(info.Key)
	}
	return all
}

func (w *world) keys(prefix string) []string {
	w.Helper()
	var all []string
	for info, err := range w.mem.List(context.Background(), prefix, nil) {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, info.Key)
	}
	slices.Sort(all)
	return all
}

func (w *world) body(key string) []byte {
	w.Helper()
	body, _, err := store.ReadAll(context.Background(), w.mem, key, 1<<30, quick)
	if err != nil {
		w.Fatal(err)
	}
	return body
}

func (w *world) put(key string, body []byte) {
	w.Helper()
	if _, err := w.mem.Put(context.Background(), key, body, nil); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(keys ...string) {
	w.Helper()
	if err := w.mem.Delete(context.Background(), keys...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) has(key string) bool {
	w.Helper()
	_, err := w.mem.Get(context.Background(), key, nil)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		w.Fatal(err)
	}
	return err == nil
}

// lead is a leadership that appends n records, each in an object of its own.
func (w *world) lead(n int) {
	w.Helper()
	w.epoch++
	wr := w.open(w.mem, w.epoch)
	for i := range n {
		w.append(wr, fmt.Sprintf("%d/%d", w.epoch, i))
	}
	w.close(wr)
}

func (w *world) open(st store.Store, epoch uint64) *writer.Writer {
	w.Helper()
	wr, err := writer.Open(context.Background(), st, fence.NewToken(epoch), &writer.Options{Settle: quick, NoCompress: true})
	if err != nil {
		w.Fatal(err)
	}
	return wr
}

func (w *world) append(wr *writer.Writer, value string) {
	w.Helper()
	off, err := wr.Append(context.Background(), [][]byte{[]byte(value)}, writer.Cursor([]byte(value)))
	if err != nil || off != uint64(len(w.want)) {
		w.Fatalf("%q was appended at %d, %v; want %d", value, off, err, len(w.want))
	}
	w.want = append(w.want, value)
}

func (w *world) close(wr *writer.Writer) {
	w.Helper()
	if err := wr.Close(context.Background()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) once(st store.Store, token uint64, opts *Options) (Report, error) {
	w.Helper()
	if opts == nil {
		opts = &Options{Settle: quick}
	}
	c, err := New(st, opts)
	if err != nil {
		w.Fatal(err)
	}
	return c.Once(context.Background(), fence.NewToken(token))
}

// compact does what there is to do, as a compactor of a new epoch.
func (w *world) compact(st store.Store, opts *Options) Report {
	w.Helper()
	w.token++
	r, err := w.once(st, w.token, opts)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) newest() *state.Manifest {
	w.Helper()
	m, err := state.With(w.mem, w.log.Format(), &state.Options{Settle: quick}).Newest(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// publish changes the manifest as a compactor of a new epoch.
func (w *world) publish(f func(*state.Change) error) {
	w.Helper()
	w.token++
	u, err := w.log.Updater(layout.Compactor, fence.NewToken(w.token))
	if err == nil {
		_, err = u.Update(context.Background(), f)
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) read() ([]string, error) {
	r, err := reader.Open(context.Background(), w.mem, &reader.Options{Settle: quick})
	if err != nil {
		return nil, err
	}
	var all []string
	for rec, err := range r.Read(context.Background(), 0) {
		if err != nil {
			return all, err
		}
		if rec.Offset != uint64(len(all)) {
			return all, fmt.Errorf("record %d has offset %d", len(all), rec.Offset)
		}
		all = append(all, string(rec.Value))
	}
	return all, nil
}

// holds fails the test unless the log holds what it should.
func (w *world) holds(when string) {
	w.Helper()
	got, err := w.read()
	if err != nil || !slices.Equal(got, w.want) {
		w.Fatalf("%s: the log holds %q, %v; want %q", when, got, err, w.want)
	}
	if got := w.table(); !maps.Equal(got, w.files) {
		w.Fatalf("%s: live are %v; want %v", when, got, w.files)
	}
	for key := range w.files {
		if !w.has(key) {
			w.Fatalf("%s: %s is live and gone", when, key)
		}
	}
}

// tidy fails the test if anything is left that is of no use to anybody, or
// anything is gone that stays for ever.
func (w *world) tidy(when string) {
	w.Helper()
	m := w.newest()
	var segs []string
	for s, err := range w.log.Segments(context.Background(), m, 0) {
		if err != nil {
			w.Fatal(err)
		}
		segs = append(segs, s.Key)
	}
	slices.Sort(segs)
	for d := range w.log.Dropped(context.Background(), m) {
		w.Errorf("%s: dropped and still there is %v", when, d)
	}
	if got := w.keys("segment/"); !slices.Equal(got, segs) {
		w.Errorf("%s: segments are %q, the manifest names %q", when, got, segs)
	}
	lists := w.log.Lists(m)
	slices.Sort(lists)
	if got := w.keys("list/"); !slices.Equal(got, lists) {
		w.Errorf("%s: lists are %q, the manifest names %q", when, got, lists)
	}
	for _, key := range w.keys("file/") {
		if epoch, _, _, _ := layout.ParseFileKey(key); !w.files[key] && epoch < m.Floor.Position.Epoch {
			w.Errorf("%s: %s is not live and still there", when, key)
		}
	}
	if n := len(w.keys(layout.ManifestPrefix)); n > 4 {
		w.Errorf("%s: %d manifests are left", when, n)
	}
	var want []string
	for _, s := range m.Seals {
		want = append(want, layout.DataKey(s.Position))
	}
	for _, key := range w.keys(layout.DataPrefix) {
		if pos, _ := layout.ParseDataKey(key); !pos.Before(m.Floor.Position) {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	if got := w.keys(layout.DataPrefix); !slices.Equal(got, want) {
		w.Errorf("%s: the log's objects are %q, want %q", when, short(got), short(want))
	}
}

func short(keys []string) []string {
	var all []string
	for _, k := range keys {
		parts := strings.Split(k, "/")
		for i, p := range parts {
			if s := strings.TrimLeft(p, "0"); s != "" {
				parts[i] = s
			}
		}
		all = append(all, strings.Join(parts, "/"))
	}
	return all
}

// watch checks at every delete, of whomever, that a durable manifest has made
// each object unnecessary before. It is the rule that all else hangs on.
func (w *world) watch(also func(context.Context, faultstore.Op)) {
	w.faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Delete {
			w.checkDelete(op.Keys)
		}
		if also != nil {
			also(ctx, op)
		}
	})
}

func (w *world) checkDelete(keys []string) {
	m := w.newest()
	if _, ok := layout.ParseManifestKey(keys[0]); ok && !slices.IsSorted(keys) {
		w.Errorf("deleted out of order: %q", short(keys))
	}
	for _, key := range keys {
		if pos, ok := layout.ParseDataKey(key); ok {
			if s, known, err := w.log.SealOf(context.Background(), m, pos.Epoch); err != nil || !pos.Before(m.Floor.Position) || known && s.Position == pos {
				w.Errorf("%s is deleted, and manifest %d has its floor at %v, and the seal at %v", key, m.Version, m.Floor.Position, s.Position)
			}
			continue
		}
		if v, ok := layout.ParseManifestKey(key); ok {
			if v >= m.PruneMark {
				w.Errorf("%s is deleted, and manifest %d has the prune mark %d", key, m.Version, m.PruneMark)
			}
			continue
		}
		if epoch, _, _, ok := layout.ParseFileKey(key); ok {
			if w.files[key] || epoch >= m.Floor.Position.Epoch && !w.was[key] {
				w.Errorf("%s is deleted, and is live, or may still be committed", key)
			}
			continue
		}
		if _, ok := layout.ParsePinKey(key); ok {
			continue
		}
		if _, _, ok := layout.ParseListKey(key); ok {
			if slices.Contains(w.log.Lists(m), key) {
				w.Errorf("%s is deleted, and manifest %d names it", key, m.Version)
			}
			continue
		}
		if _, _, ok := layout.ParseSegmentKey(key); !ok {
			w.Errorf("%s is deleted, and is none of ours", key)
		}
		for v := range w.versions() {
			old, _, err := w.log.At(context.Background(), v)
			if v < m.PruneMark || errors.Is(err, state.ErrPruned) {
				continue
			}
			if err != nil {
				w.Errorf("%v", err)
				continue
			}
			if slices.ContainsFunc(old.Segments, func(s state.Segment) bool { return s.Key == key }) && v > m.PruneMark {
				w.Errorf("%s is deleted, and manifest %d names it, above the prune mark %d", key, v, m.PruneMark)
			}
		}
	}
}

func (w *world) versions() map[uint64]state.Kept {
	kept, err := w.log.Versions(context.Background())
	if err != nil {
		w.Errorf("%v", err)
	}
	return kept
}

func at(epoch, seq uint64) fence.Position {
	return fence.Position{Epoch: fence.Epoch(epoch), Seq: seq}
}

// seal is an opener's seal, genuine or junk.
func (w *world) seal(p fence.Position, next uint64) []byte {
	h := frame.Header{Log: w.log.Format().Log, Nonce: fence.ID(uuid.New()), Position: p, Time: time.Now()}
	return frame.EncodeSeal(&h, fence.Epoch(next))
}

// data is an object of the log, sound in itself.
func (w *world) data(p frame.Point, records ...string) []byte {
	var b frame.Builder
	for _, r := range records {
		b.Add([]byte(r))
	}
	h := frame.Header{Log: w.log.Format().Log, Nonce: fence.ID(uuid.New()), Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}
	return slices.Clone(b.Finish(&h, frame.Plain))
}

// place is a request of a compactor that does all it has to do in the same order
// each time (Options.Parallel 1): the nth of a kind for a key. What uploads and what
// reads run side by side, so the number of a request alone would not tell which it
// is.
type place struct {
	kind faultstore.Kind
	key  string // without what is random in it
	nth  int
}

var random = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// places numbers the requests of one client.
type places struct {
	client string
	mu     sync.Mutex
	times  map[place]int
}

func (p *places) of(op faultstore.Op) (place, bool) {
	if op.Client != p.client {
		return place{}, false
	}
	at := place{kind: op.Kind, key: random.ReplaceAllString(op.Key, "*")}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.times == nil {
		p.times = map[place]int{}
	}
	p.times[at]++
	at.nth = p.times[at]
	return at, true
}

// once returns a function that reports when a client makes one request, the first
// time.
func once(client string, want place) func(faultstore.Op) bool {
	all := &places{client: client}
	return func(op faultstore.Op) bool {
		got, ours := all.of(op)
		return ours && got == want
	}
}

// everywhere returns all requests that the compactor of a token makes of a copy of
// w, if nothing interferes.
func (w *world) everywhere(token uint64) []place {
	w.Helper()
	all := w.everywhereOf(token, small())
	if len(all) < 40 {
		w.Fatalf("it makes only %d requests", len(all))
	}
	return all
}

// everywhereOf is everywhere with other options.

func (w *world) everywhereOf(token uint64, o *Options) []place {
	w.Helper()
	var mu sync.Mutex
	var all []place
	names := &places{client: "c"}
	c := w.fork(w)
	c.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
		if at, ours := names.of(op); ours {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, at)
		}
	})
	if _, err := c.once(c.faulty.Client("c"), token, o); err != nil {
		w.Fatal(err)
	}
	return all
}
