package writer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// env is a log on a faulty store, in a bubble of its own: synctest.Wait tells
// when nobody can go on, and a goroutine that outlives the test fails it.
type env struct {
	*logtest.Log

	mu    sync.Mutex
	hooks []faultstore.Hook
	held  []func() // releases what is held
}

func bubble(t *testing.T, f func(t *testing.T, e *env)) {
	t.Helper()
	bubbleOn(t, fence.Limits{}, f)
}

// bubbled is bubble for a subtest.
func bubbled(f func(t *testing.T, e *env)) func(*testing.T) {
	return func(t *testing.T) { bubble(t, f) }
}

func bubbleOn(t *testing.T, limits fence.Limits, f func(t *testing.T, e *env)) {
	t.Helper()
	form := logtest.Format()
	if limits != (fence.Limits{}) {
		limits.Manifest = form.Limits.Manifest
		form.Limits = limits
	}
	logtest.Bubble(t, form, func(t *testing.T, l *logtest.Log) {
		e := &env{Log: l}
		l.Faulty.SetHook(e.hook)
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
	e.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
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
func (e *env) tryFor(ctx context.Context, client string, epoch fence.Epoch, opts *writer.Options) (*writer.Writer, error) {
	w, err := writer.Open(ctx, e.Faulty.Client(client), fence.NewToken(epoch), options(opts))
	if err == nil {
		e.Cleanup(func() { abandon(w) })
	}
	return w, err
}

func (e *env) try(client string, epoch fence.Epoch, opts *writer.Options) (*writer.Writer, error) {
	return e.tryFor(e.Context(), client, epoch, opts)
}

// open opens a writer and waits until its first manifest is there, or held up.
func (e *env) open(client string, epoch fence.Epoch, opts *writer.Options) *writer.Writer {
	e.Helper()
	w, err := e.try(client, epoch, opts)
	if err != nil {
		e.Fatal(err)
	}
	synctest.Wait()
	return w
}

func abandon(w *writer.Writer) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.Close(ctx)
}

var at = logtest.At

func recs(s ...string) [][]byte {
	var b [][]byte
	for _, s := range s {
		b = append(b, []byte(s))
	}
	return b
}

func (e *env) append(w *writer.Writer, values ...string) {
	e.Helper()
	if _, err := w.Append(e.Context(), recs(values...)); err != nil {
		e.Fatal(err)
	}
}

// async appends one record in an append of its own.
func (e *env) async(w *writer.Writer, value string, opts ...writer.AppendOption) writer.Future {
	e.Helper()
	f, err := w.AppendAsync(e.Context(), recs(value), opts...)
	if err != nil {
		e.Fatal(err)
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
	e.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	var got []string
	for _, f := range fs {
		got = append(got, outcome(f))
	}
	if !slices.Equal(got, want) {
		e.Fatalf("outcomes are %v, want %v", got, want)
	}
}

func (e *env) holds(want ...string) {
	e.Helper()
	if got := e.Contents(); !slices.Equal(got, want) {
		e.Fatalf("the log holds %q, want %q", got, want)
	}
}

// compact folds and prunes all there is, as a compactor of a new epoch.
func (e *env) compact() {
	e.Helper()
	e.Token++
	c, err := compactor.New(e.Mem, &compactor.Options{Token: fence.NewToken(e.Token), Clock: clock.Go()})
	if err != nil {
		e.Fatal(err)
	}
	if _, err := c.Once(e.Context()); err != nil {
		e.Fatal(err)
	}
}

// seal puts another opener's seal.
func (e *env) seal(p fence.Position, next uint64) {
	e.Helper()
	e.Put(layout.DataKey(p), e.Seal(p, fence.Epoch(next)))
}

// size is how many bytes the object in a slot has.
func (e *env) size(p fence.Position) int64 {
	e.Helper()
	return int64(len(e.Body(layout.DataKey(p))))
}

// header returns what is in a slot; its Kind is 0 if there is nothing.
func (e *env) header(p fence.Position) frame.Header {
	e.Helper()
	if !e.Has(layout.DataKey(p)) {
		return frame.Header{}
	}
	h, err := frame.DecodeHeader(e.Body(layout.DataKey(p)))
	if err != nil {
		e.Fatal(err)
	}
	return h
}

// fenced fails the test unless err is a fencing by that epoch.
func (e *env) fenced(err error, by fence.Epoch) {
	e.Helper()
	var f *fence.FencedError
	if !errors.Is(err, writer.ErrFenced) || !errors.As(err, &f) || f.By != by {
		e.Fatalf("error is %v, want a fencing by epoch %d", err, by)
	}
}

// sequence returns the requests of a client as "get format.json", "put data/1/2":
// numbers without their zeros.
func (e *env) sequence(client string) []string {
	var all []string
	for _, entry := range e.Faulty.Log() {
		if entry.Op.Client == client && !entry.Landed {
			all = append(all, string(entry.Op.Kind)+" "+logtest.Short(entry.Op.Key))
		}
	}
	return all
}
