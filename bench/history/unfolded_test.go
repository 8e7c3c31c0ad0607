package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// alike is a store of log objects that differ in their headers only. It keeps the rest once.
type alike struct {
	store.Store
	mu    sync.Mutex
	heads map[string][]byte
	rest  []byte
}

func (a *alike) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if p, ok := layout.ParseDataKey(key); !ok || p.Epoch == 0 {
		return a.Store.Put(ctx, key, body, opts)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rest == nil {
		a.rest = body[frame.HeaderSize:]
	}
	if !bytes.Equal(a.rest, body[frame.HeaderSize:]) {
		return store.Info{}, fmt.Errorf("%s is not like the others", key)
	}
	a.heads[key] = bytes.Clone(body[:frame.HeaderSize])
	return store.Info{}, nil
}

func (a *alike) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	head, ok := a.heads[key] // nobody writes any more
	if !ok {
		return a.Store.Get(ctx, key, opts)
	}
	o := *cmp.Or(opts, &store.GetOptions{})
	size := int64(len(head) + len(a.rest))
	end := size
	if o.Length > 0 {
		end = min(end, o.Offset+o.Length)
	}
	part := func(b []byte, at int64) io.Reader {
		n := int64(len(b))
		return bytes.NewReader(b[min(max(o.Offset-at, 0), n):min(max(end-at, 0), n)])
	}
	return &store.Object{
		Info: store.Info{Key: key, Version: store.Version(key), Size: size},
		Body: io.NopCloser(io.MultiReader(part(head, 0), part(a.rest, int64(len(head))))),
	}, nil
}

// lines is a store whose GETs take S3's latency. Then the bytes come, over a line of 90 MB/s
// for each GET. All lines share a wire.
type lines struct {
	store.Store
	wire float64 // bytes a second; 0: as much as the lines carry

	mu         sync.Mutex
	rng        *rand.Rand
	gets       int
	busy       time.Time // the wire is busy until then
	held, most int64     // bytes that came and were not given back, and the most of them
}

func (l *lines) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	l.mu.Lock()
	l.gets++
	const p50, p99, quantile99 = 14, 45, 2.3263478740408408
	d := time.Duration(p50 * math.Exp(math.Log(p99/p50)/quantile99*l.rng.NormFloat64()) * float64(time.Millisecond))
	l.mu.Unlock()
	if err := clock.Sleep(ctx, clock.Go(), d); err != nil {
		return nil, err
	}
	obj, err := l.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Body = &line{obj.Body, ctx, l}
	}
	return obj, err
}

type line struct {
	io.ReadCloser
	ctx context.Context
	*lines
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p[:min(len(p), 64<<10)])
	seconds := func(rate float64) time.Duration { return time.Duration(float64(n) / rate * float64(time.Second)) }
	l.mu.Lock()
	now := time.Now()
	until := now.Add(seconds(90e6))
	if l.wire > 0 {
		if l.busy.Before(now) {
			l.busy = now
		}
		l.busy = l.busy.Add(seconds(l.wire))
		if until.Before(l.busy) {
			until = l.busy
		}
	}
	l.mu.Unlock()
	if slept := clock.Sleep(l.ctx, clock.Go(), until.Sub(now)); slept != nil {
		return 0, slept
	}
	l.give(-int64(n))
	return n, err
}

// give gives bytes back, after their use.
func (l *lines) give(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= n
	l.most = max(l.most, l.held)
}

// unfolded is a log of n objects of the same size, none of which is folded.
func unfolded(t *testing.T, size, n int) *alike {
	t.Helper()
	st := &alike{Store: memstore.New(nil), heads: map[string][]byte{}}
	j := newJournal(t, st, time.Hour)
	j.lead()
	record := make([]byte, size-frame.HeaderSize-8)
	for range n {
		j.commit(frame.Plain, record)
	}
	j.done()
	return st
}

// plainly gets n objects, so many at once, and takes each for used as soon as it is here.
func plainly(t *testing.T, l *lines, n, atOnce int) time.Duration {
	t.Helper()
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error {
			size, err := l.plain(t, i)
			l.give(size)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// plain gets object i, and returns its size.
func (l *lines) plain(t *testing.T, i int) (int64, error) {
	obj, err := l.Get(t.Context(), layout.DataKey(fence.Position{Epoch: 1, Seq: uint64(i) + 1}), nil)
	if err != nil {
		return 0, err
	}
	return io.CopyBuffer(io.Discard, struct{ io.Reader }{obj.Body}, make([]byte, 64<<10))
}

// orderly gets the same objects with so many connections, and uses them in order. An object has
// room from its request to its use. There is room for so many.
func orderly(t *testing.T, l *lines, n, connections, rooms int) time.Duration {
	t.Helper()
	start := time.Now()
	var g errgroup.Group
	free, room := make(chan struct{}, connections), make(chan struct{}, rooms)
	used := make([]chan struct{}, n+1) // used[i] is closed when all before object i were used
	for i := range used {
		used[i] = make(chan struct{})
	}
	close(used[0])
	for i := range n {
		room <- struct{}{}
		free <- struct{}{}
		g.Go(func() error {
			size, err := l.plain(t, i)
			<-free
			<-used[i]
			close(used[i+1])
			l.give(size)
			<-room
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// inOrder reads the same objects as a reader does.
func inOrder(t *testing.T, l *lines, n, size int) time.Duration {
	t.Helper()
	r, err := reader.Open(t.Context(), l, &reader.Options{Clock: clock.Go(), Settle: &store.SettleOptions{Clock: clock.Go()}})
	if err != nil {
		t.Fatal(err)
	}
	l.gets, l.held, l.most = 0, 0, 0
	start, records := time.Now(), 0
	for _, err := range r.Read(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		records++
		l.give(int64(size))
	}
	if records != n {
		t.Fatalf("%d records, want %d", records, n)
	}
	return time.Since(start)
}

// Reading what is not folded, in order, against plain GETs of the same objects in any order,
// with as many connections and as much memory: 64, and 64 MiB. So of 4 MiB there are 16 plain
// GETs at once. Whoever uses objects in any order needs no memory for those that come early. So
// a second arm uses the plain GETs' objects in order too.
func TestUnfolded(t *testing.T) {
	const memory, connections = 64 << 20, 64
	wires := []float64{0, 1250e6, 200e6}
	for _, c := range []struct {
		name    string
		size, n int
	}{{"1 KiB", 1 << 10, 20000}, {"64 KiB", 64 << 10, 12000}, {"256 KiB", 256 << 10, 6000}, {"1 MiB", 1 << 20, 3000}, {"4 MiB", 4 << 20, 600}} {
		n, rounds := c.n/20, uint64(1)
		if inFull() {
			n, rounds = c.n, 3
		}
		st, atOnce := unfolded(t, c.size, n), min(memory/c.size, connections)
		for _, wire := range wires {
			if wire > 0 && c.size < 64<<10 {
				continue // too small to fill it
			}
			var ratios, inTurn []float64
			var note, turns string
			for seed := range rounds {
				synctest.Test(t, func(t *testing.T) {
					over := func(seed uint64) *lines {
						return &lines{Store: st, wire: wire, rng: rand.New(rand.NewPCG(seed, 2))}
					}
					theirs, ordered, ours := over(seed), over(seed), over(seed+100)
					plain, turned := plainly(t, theirs, n, atOnce), orderly(t, ordered, n, connections, memory/c.size)
					took := inOrder(t, ours, n, c.size)
					ratios = append(ratios, plain.Seconds()/took.Seconds())
					inTurn = append(inTurn, turned.Seconds()/took.Seconds())
					rate := func(d time.Duration) float64 { return float64(n) * float64(c.size) / 1e6 / d.Seconds() }
					note = fmt.Sprintf("%.0f MB/s against %.0f; %.2f GETs an object; %.0f MiB held at most; plain %d at once, in any order, %.0f MiB held at most", rate(took), rate(plain), float64(ours.gets)/float64(n), mib(ours.most), atOnce, mib(theirs.most))
					turns = fmt.Sprintf("%.0f MB/s against %.0f; plain %d at once, %.0f MiB held at most", rate(took), rate(turned), atOnce, mib(ordered.most))
				})
			}
			slices.Sort(ratios)
			slices.Sort(inTurn)
			over := "no wire"
			if wire > 0 {
				over = fmt.Sprintf("a wire of %.0f MB/s", wire/1e6)
			}
			add(t, Row{
				Name: "reading objects of " + c.name + " that are not folded, S3's latency, " + over + ", in virtual time: speed beside plain GETs", Value: ratios[len(ratios)/2], Goal: 0.95, More: true, Ratio: true,
				Note: note,
			})
			add(t, Row{
				Name: "the same, " + c.name + ", " + over + ": beside plain GETs whose objects are used in order too", Value: inTurn[len(inTurn)/2], Goal: 0.95, More: true, Ratio: true,
				Note: turns,
			})
		}
	}
}
