package writer_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
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

// env is a log on a faulty store, in a bubble of its own: synctest.Wait tells
// when nobody can go on, and a goroutine that outlives the test fails it.
type env struct {
	t      *testing.T
	inner  *memstore.Store
	faulty *faultstore.Store
	log    *state.Log
	format manifest.Format

	mu    sync.Mutex
	hooks []faultstore.Hook
	held  []func() // releases what is held
	folds uint64
}

func bubble(t *testing.T, f func(t *testing.T, e *env)) {
	t.Helper()
	bubbleOn(t, fence.Limits{}, f)
}

// bubbled is bubble for a subtest.
func bubbled(f func(t *testing.T, e *env)) func(*testing.T) {
	return func(t *testing.T) { bubble(t, f) }
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

func bubbleOn(t *testing.T, limits fence.Limits, f func(t *testing.T, e *env)) {
	t.Helper()
	form := format()
	if limits != (fence.Limits{}) {
		form.Limits.Limits = limits
	}
	body, err := json.Marshal(form)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins at midnight. A compactor that finds a time in whole seconds
		// takes it for one that a store has cut, and waits longer.
		time.Sleep(time.Millisecond)
		e := &env{t: t, format: form, inner: memstore.New(&memstore.Options{Clock: clock.Go()})}
		if _, err := e.inner.Put(t.Context(), layout.FormatKey, body, &store.PutOptions{If: store.IfAbsent()}); err != nil {
			t.Fatal(err)
		}
		e.log = state.With(e.inner, form, &state.Options{Clock: clock.Go()})
		e.faulty = faultstore.New(e.inner, &faultstore.Options{Clock: clock.Go(), Hook: e.hook})
		defer func() {
			for _, release := range e.held {
				release()
			}
		}()
		f(t, e)
	})
}

func (e *env) hook(op faultstore.Op) (f faultstore.Fault) {
	e.mu.Lock()
	hooks := slices.Clone(e.hooks)
	e.mu.Unlock()
	for _, h := range hooks {
		if f = h(op); f != (faultstore.Fault{}) {
			break
		}
	}
	return f
}

// fault adds a rule for further requests.
func (e *env) fault(r faultstore.Rule) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks = append(e.hooks, faultstore.Script(r))
}

// hold keeps a client's requests from reaching the store until it is released, at the
// latest when the test ends.
func (e *env) hold(client string, kind faultstore.Kind, prefix string) (release func()) {
	gate := make(chan struct{})
	e.fault(faultstore.Rule{Client: client, Kind: kind, Prefix: prefix, Times: -1, Fault: faultstore.Fault{Hold: gate}})
	release = sync.OnceFunc(func() { close(gate) })
	e.held = append(e.held, release)
	return release
}

// before calls f at the beginning of each request of a client, until it returns
// true.
func (e *env) before(client string, kind faultstore.Kind, prefix string, f func(faultstore.Op) (last bool)) {
	var mu sync.Mutex
	over := false
	e.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Client != client || op.Kind != kind || len(op.Key) < len(prefix) || op.Key[:len(prefix)] != prefix {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if !over {
			over = true // also if f ends the test
			over = f(op)
		}
	})
}

// options fills in the bubble's clock, and retries that do not wait long.
func options(opts *writer.Options) *writer.Options {
	var o writer.Options
	if opts != nil {
		o = *opts
	}
	if o.Clock == nil {
		o.Clock = clock.Go()
	}
	if o.Settle == nil {
		o.Settle = &store.SettleOptions{Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond, Reads: 3}
	}
	return &o
}

// tryFor opens a writer with a context, and abandons it when the test ends.
func (e *env) tryFor(ctx context.Context, client string, epoch uint64, opts *writer.Options) (*writer.Writer, error) {
	w, err := writer.Open(ctx, e.faulty.Client(client), fence.NewToken(epoch), options(opts))
	if err == nil {
		e.t.Cleanup(func() { abandon(w) })
	}
	return w, err
}

func (e *env) try(client string, epoch uint64, opts *writer.Options) (*writer.Writer, error) {
	return e.tryFor(e.t.Context(), client, epoch, opts)
}

// open opens a writer and waits until its first manifest is there, or held up.
func (e *env) open(client string, epoch uint64, opts *writer.Options) *writer.Writer {
	e.t.Helper()
	w, err := e.try(client, epoch, opts)
	if err != nil {
		e.t.Fatal(err)
	}
	synctest.Wait()
	return w
}

func abandon(w *writer.Writer) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.Close(ctx)
}

func recs(s ...string) [][]byte {
	var b [][]byte
	for _, s := range s {
		b = append(b, []byte(s))
	}
	return b
}

func (e *env) append(w *writer.Writer, values ...string) {
	e.t.Helper()
	if _, err := w.Append(e.t.Context(), recs(values...)); err != nil {
		e.t.Fatal(err)
	}
}

// async appends one record in an append of its own.
func (e *env) async(w *writer.Writer, value string, opts ...writer.AppendOption) writer.Future {
	e.t.Helper()
	f, err := w.AppendAsync(e.t.Context(), recs(value), opts...)
	if err != nil {
		e.t.Fatal(err)
	}
	return f
}

// outcome of a future: "pending", "committed", "not" or "unknown".
func outcome(f writer.Future) string {
	select {
	case <-f.Done():
	default:
		return "pending"
	}
	_, err := f.Wait(context.Background())
	return kind(err)
}

func kind(err error) string {
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, writer.ErrNotCommitted) == errors.Is(err, writer.ErrUnknown):
		return "neither or both: " + err.Error()
	case errors.Is(err, writer.ErrUnknown):
		return "unknown"
	}
	return "not"
}

// outcomes checks a second later, when whatever can happen has happened.
func (e *env) outcomes(fs []writer.Future, want ...string) {
	e.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	var got []string
	for _, f := range fs {
		got = append(got, outcome(f))
	}
	if !slices.Equal(got, want) {
		e.t.Fatalf("outcomes are %v, want %v", got, want)
	}
}

// contents reads the log from its beginning, without faults.
func (e *env) contents() []string {
	e.t.Helper()
	r, err := reader.Open(e.t.Context(), e.inner, &reader.Options{Clock: clock.Go()})
	if err != nil {
		e.t.Fatal(err)
	}
	var all []string
	for rec, err := range r.Read(e.t.Context(), 0) {
		if err != nil {
			e.t.Fatal(err)
		}
		if rec.Offset != uint64(len(all)) {
			e.t.Fatalf("record %d has offset %d", len(all), rec.Offset)
		}
		all = append(all, string(rec.Value))
	}
	return all
}

func (e *env) holds(want ...string) {
	e.t.Helper()
	if got := e.contents(); !slices.Equal(got, want) {
		e.t.Fatalf("the log holds %q, want %q", got, want)
	}
}

func (e *env) newest() *state.Manifest {
	e.t.Helper()
	m, err := e.log.Newest(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return m
}

// compact folds and prunes all there is, as a compactor of a new epoch.
func (e *env) compact() {
	e.t.Helper()
	e.folds++
	c, err := compactor.New(e.inner, &compactor.Options{Token: fence.NewToken(e.folds), Clock: clock.Go()})
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := c.Once(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
}

// publish changes the manifest as a compactor would.
func (e *env) publish(f func(*state.Change) error) {
	e.t.Helper()
	e.folds++
	u, err := e.log.Updater(layout.Compactor, fence.NewToken(e.folds))
	if err == nil {
		_, err = u.Update(e.t.Context(), f)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

func at(epoch, seq uint64) fence.Position {
	return fence.Position{Epoch: fence.Epoch(epoch), Seq: seq}
}

// put creates an object by hand, as somebody else.
func (e *env) put(p fence.Position, body []byte) {
	e.t.Helper()
	if _, err := e.inner.Put(e.t.Context(), layout.DataKey(p), body, &store.PutOptions{If: store.IfAbsent()}); err != nil {
		e.t.Fatal(err)
	}
}

// seal puts another opener's seal.
func (e *env) seal(p fence.Position, next uint64) {
	e.t.Helper()
	h := frame.Header{Log: e.format.Log, Nonce: fence.ID(uuid.New()), Position: p, Time: time.Now()}
	e.put(p, frame.EncodeSeal(&h, fence.Epoch(next)))
}

// size is how many bytes the object in a slot has.
func (e *env) size(p fence.Position) int64 {
	e.t.Helper()
	body, _, err := store.ReadAll(e.t.Context(), e.inner, layout.DataKey(p), 1<<20, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return int64(len(body))
}

// header returns what is in a slot; its Kind is 0 if there is nothing.
func (e *env) header(p fence.Position) frame.Header {
	e.t.Helper()
	body, _, err := store.ReadAll(e.t.Context(), e.inner, layout.DataKey(p), 1<<20, nil)
	if errors.Is(err, store.ErrNotFound) {
		return frame.Header{}
	}
	if err != nil {
		e.t.Fatal(err)
	}
	h, err := frame.DecodeHeader(body)
	if err != nil {
		e.t.Fatal(err)
	}
	return h
}

// fenced fails the test unless err is a fencing by that epoch.
func (e *env) fenced(err error, by fence.Epoch) {
	e.t.Helper()
	var f *fence.FencedError
	if !errors.Is(err, writer.ErrFenced) || !errors.As(err, &f) || f.By != by {
		e.t.Fatalf("error is %v, want a fencing by epoch %d", err, by)
	}
}

// sequence returns the requests of a client as "get format.json", "put data/1/2":
// numbers without their zeros.
func (e *env) sequence(client string) []string {
	var all []string
	for _, entry := range e.faulty.Log() {
		if entry.Op.Client == client && !entry.Landed {
			all = append(all, string(entry.Op.Kind)+" "+short(entry.Op.Key))
		}
	}
	return all
}

var zeros = regexp.MustCompile(`/0+(\d)`)

func short(key string) string { return zeros.ReplaceAllString(key, "/$1") }
