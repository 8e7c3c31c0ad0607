package main

import (
	"bytes"
	"cmp"
	"context"
	"hash/fnv"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// spread is how long requests take: log-normal, with this median and 99 % quantile. rare,
// if it is not 0, is the part of the requests that take 100 times as long. A PUT is applied after
// this part of its time, or after half of it if that is 0.
type spread struct {
	name          string
	p50, p99      time.Duration
	rare, applied float64
}

// of returns the latency of the n-th request for a key. It is the same in every run, in
// whatever order simultaneous requests are sent.
func (s spread) of(key string, n int) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
	const quantile99 = 2.3263478740408408
	d := float64(s.p50) * math.Exp(math.Log(float64(s.p99)/float64(s.p50))/quantile99*rng.NormFloat64())
	if rng.Float64() < s.rare {
		d *= 100
	}
	return time.Duration(d)
}

// far is a store in virtual time whose requests take as long as spread says. Reads take
// half as long, and each byte costs as on a line of 90 MB/s. It keeps the last objects only, since
// nobody reads the others.
type far struct {
	store.Store
	spread spread

	mu                                 sync.Mutex
	seen                               map[string]int
	kept                               []string // keys of the last objects
	puts, gets, others, lists, uploads int      // others are PUTs of manifests
}

func newFar(s spread) *far {
	return &far{Store: memstore.New(&memstore.Options{Clock: clock.Go()}), spread: s, seen: map[string]int{}}
}

// keeping is how many objects are kept. More than a writer's window are not read again.
const keeping = 100

// travel waits for half of a request.
func travel(ctx context.Context, d time.Duration) error {
	return clock.Sleep(ctx, clock.Go(), d/2)
}

// keep keeps an object and deletes an old one.
func (f *far) keep(ctx context.Context, key string) error {
	f.mu.Lock()
	f.kept = append(f.kept, key)
	var old []string
	if len(f.kept) > keeping {
		old, f.kept = f.kept[:1], f.kept[1:]
	}
	f.mu.Unlock()
	return f.Store.Delete(ctx, old...)
}

// begin counts a request and returns how long it takes.
func (f *far) begin(key string, count *int) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.seen[key]
	f.seen[key]++
	*count++
	return f.spread.of(key, n)
}

func (f *far) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	count := &f.others
	if strings.HasPrefix(key, layout.DataPrefix) || strings.HasPrefix(key, "serial/") {
		count = &f.puts
	}
	d := f.begin(key, count) + time.Duration(float64(len(body))/90e6*float64(time.Second))
	coming := time.Duration(float64(d) * cmp.Or(f.spread.applied, 0.5))
	if err := clock.Sleep(ctx, clock.Go(), coming); err != nil {
		return store.Info{}, err
	}
	info, err := f.Store.Put(ctx, key, body, opts)
	if err == nil && count == &f.puts {
		err = f.keep(ctx, key)
	}
	if err := clock.Sleep(ctx, clock.Go(), d-coming); err != nil {
		return store.Info{}, err
	}
	return info, err
}

func (f *far) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	d := f.begin("get "+key, &f.gets) / 2
	if err := travel(ctx, d); err != nil {
		return nil, err
	}
	obj, err := f.Store.Get(ctx, key, opts)
	if err := travel(ctx, d); err != nil {
		return nil, err
	}
	return obj, err
}

func (f *far) Upload(ctx context.Context, key string, body io.Reader, opts *store.UploadOptions) (store.Info, error) {
	all, err := io.ReadAll(body)
	if err != nil {
		return store.Info{}, err
	}
	d := f.begin("file", &f.uploads) // a file has a random name
	if err := travel(ctx, d); err != nil {
		return store.Info{}, err
	}
	info, err := f.Store.Upload(ctx, key, bytes.NewReader(all), opts)
	if err := travel(ctx, d); err != nil {
		return store.Info{}, err
	}
	return info, err
}

func (f *far) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := travel(ctx, 2*f.begin("list "+prefix, &f.lists)); err != nil {
			yield(store.Info{}, err)
			return
		}
		f.Store.List(ctx, prefix, opts)(yield)
	}
}

// counts returns the requests so far.
func (f *far) counts() (puts, gets int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.puts, f.gets
}

// appender is what a load appends to. ack is called once the record is durable.
type appender interface {
	append(record []byte, ack func())
	close()
}

// fenced appends to a log.
type fenced struct {
	t *testing.T
	w *writer.Writer
	// acks are the appends in order, which is the order of their acknowledgements.
	acks chan acked
	over chan struct{}
}

type acked struct {
	f   writer.Future
	ack func()
}

func newFenced(t *testing.T, f manifest.Format, st store.Store, opts writer.Options) *fenced {
	t.Helper()
	body, err := document.Encode(layout.FormatKey, f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Put(t.Context(), layout.FormatKey, body, nil); err != nil {
		t.Fatal(err)
	}
	opts.Clock = clock.Go()
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &opts)
	if err != nil {
		t.Fatal(err)
	}
	a := &fenced{t: t, w: w, acks: make(chan acked, 1<<20), over: make(chan struct{})}
	go func() {
		defer close(a.over)
		for x := range a.acks {
			if _, err := x.f.Wait(context.Background()); err != nil {
				t.Error(err)
			}
			x.ack()
		}
	}()
	return a
}

func (a *fenced) append(record []byte, ack func()) {
	f, err := a.w.AppendAsync(context.Background(), [][]byte{record})
	if err != nil {
		a.t.Error(err)
	}
	a.acks <- acked{f, ack}
}

func (a *fenced) close() {
	close(a.acks)
	<-a.over
	if err := a.w.Close(context.Background()); err != nil {
		a.t.Error(err)
	}
}

// group is a serial group commit: one object in flight, and everything that waits goes
// into the next one. While nothing is in flight, records linger.
type group struct {
	t      *testing.T
	st     store.Store
	linger time.Duration

	mu      sync.Mutex
	changed sync.Cond
	body    []byte
	waiting []func()
	begun   time.Time
	closed  bool
	over    chan struct{}
}

func newGroup(t *testing.T, st store.Store, linger time.Duration) *group {
	g := &group{t: t, st: st, linger: linger, over: make(chan struct{})}
	g.changed.L = &g.mu
	go g.run()
	return g
}

func (g *group) append(record []byte, ack func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.body = append(g.body, record...)
	if g.waiting = append(g.waiting, ack); len(g.waiting) == 1 {
		g.begun = time.Now()
		g.changed.Broadcast()
	}
}

func (g *group) run() {
	defer close(g.over)
	idle := time.Now()
	for n := 0; ; n++ {
		g.mu.Lock()
		for len(g.waiting) == 0 && !g.closed {
			g.changed.Wait()
		}
		// The clients that were just acknowledged get as long as those that waited before.
		pause := max(time.Until(g.begun.Add(g.linger)), time.Until(idle.Add(g.linger)))
		g.mu.Unlock()
		time.Sleep(max(pause, 0))
		g.mu.Lock()
		body, acks := g.body, g.waiting
		g.body, g.waiting = nil, nil
		g.mu.Unlock()
		if len(acks) == 0 {
			return
		}
		if _, err := store.Create(context.Background(), g.st, "serial/"+time.Duration(n).String(), body, &store.WriteOptions{Settle: &store.SettleOptions{Clock: clock.Go()}}); err != nil {
			g.t.Error(err)
		}
		idle = time.Now()
		for _, ack := range acks {
			ack()
		}
	}
}

func (g *group) close() {
	g.mu.Lock()
	g.closed = true
	g.changed.Broadcast()
	g.mu.Unlock()
	<-g.over
}
