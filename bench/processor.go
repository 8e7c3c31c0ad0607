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

// lineOf is a record of 100 bytes as logs have them.
func lineOf(n int) []byte {
	return fmt.Appendf(make([]byte, 0, 100), `{"time":"2026-11-21T23:%02d:%02dZ","level":"info","id":%011d,"user":"u%06d","message":"took %05d"}`,
		n/60%60, n%60, n*7919%1e11, n*31%1e6, n%1e5)[:100]
}

// processor measures what the writer costs the processors: records of 100 bytes
// into memory.
func processor(ctx context.Context, r *report) error {
	records := make([][]byte, 1<<14)
	for i := range records {
		records[i] = lineOf(i)
	}
	const mask = 1<<14 - 1
	async := func(w *writer.Writer, n int) error {
		for i := range n {
			if _, err := w.AppendAsync(ctx, records[i&mask:i&mask+1]); err != nil {
				return err
			}
		}
		return nil
	}
	hundred := func(w *writer.Writer, n int) error {
		for i := 0; i < n; i += 100 {
			at := i & mask
			if at+100 > len(records) {
				at = 0
			}
			if _, err := w.AppendAsync(ctx, records[at:at+100]); err != nil {
				return err
			}
		}
		return nil
	}
	goroutines := func(w *writer.Writer, n int) error {
		var next atomic.Int64
		var g errgroup.Group
		for range 1000 {
			g.Go(func() error {
				for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
					if _, err := w.Append(ctx, records[i&mask:i&mask+1]); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
	const name = "100-byte records into memory, "
	for _, c := range []struct {
		name  string
		run   func(*writer.Writer, int) error
		n     int
		goal  float64
		wakes bool // a goroutine for each record
	}{
		{"AppendAsync", async, 3_000_000, 2e6, false},
		{"AppendAsync of 100 a call", hundred, 3_000_000, 2e6, false},
		{"Append by 1,000 goroutines", goroutines, 500_000, 0.5e6, true},
	} {
		var fast, allocs, plain, ofCompressing, ofEncoding, ofWaking []float64
		for range 5 { // wakeups on shared processors: one run in a few has half the speed
			compressed, a, err := recordsPerSecond(ctx, c.run, c.n, false)
			if err != nil {
				return err
			}
			raw, _, err := recordsPerSecond(ctx, c.run, c.n, true)
			if err != nil {
				return err
			}
			fast, allocs, plain = append(fast, compressed), append(allocs, a), append(plain, raw)
			ofCompressing = append(ofCompressing, compressed/encodeAlone(records, c.n, frame.Zstd))
			ofEncoding = append(ofEncoding, raw/encodeAlone(records, c.n, frame.Plain))
			if c.wakes {
				ofWaking = append(ofWaking, raw/wakeAlone(ctx, c.n))
			}
		}
		v := result.SpreadOf(fast)
		r.add(Row{Name: name + c.name + ": records a second", Value: v.Median, Goal: c.goal, More: true, Note: v.Note})
		row := Row{Name: name + c.name + ", not compressed, to encoding alone", Goal: 0.1, More: true, Ratio: true}
		if c.wakes {
			// To wake so many takes longer than a tenth of encoding allows, and differs from run
			// to run: that is what there is to compare with, and nothing to be checked.
			v := result.SpreadOf(ofWaking)
			r.add(Row{Name: name + c.name + ", not compressed, to waking them alone", Value: v.Median, More: true, Note: v.Note})
			row.Goal, row.Ratio = 0, false
		} else {
			r.add(Row{Name: name + c.name + ": allocations a record", Value: result.Median(allocs), Goal: 0.1})
			v := result.SpreadOf(ofCompressing)
			r.add(Row{Name: name + c.name + ", to encoding and compressing alone on one processor", Value: v.Median, Goal: 1, More: true, Ratio: true, Note: v.Note})
		}
		v = result.SpreadOf(ofEncoding)
		row.Value, row.Note = v.Median, fmt.Sprintf("%s; %s a second", v.Note, result.Number(result.Median(plain)))
		r.add(row)
	}
	return nil
}

// encodeAlone is how many records a second are put into frames, by one goroutine.
func encodeAlone(records [][]byte, n int, codec frame.Codec) float64 {
	var b frame.Builder
	h := frame.Header{Log: fence.ID(uuid.New()), Position: fence.Position{Epoch: 1, Seq: 1}}
	start := time.Now()
	for i := range n {
		b.Add(records[i&(len(records)-1)])
		if b.Size() >= 4<<20 {
			b.Finish(&h, codec)
			b.Reset()
		}
	}
	return float64(n) / time.Since(start).Seconds()
}

// wakeAlone is how many records a second could be appended by 1,000 goroutines if nothing
// were done with them: who brings one waits until the next round is over.
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

func recordsPerSecond(ctx context.Context, f func(*writer.Writer, int) error, n int, plain bool) (perSecond, allocs float64, err error) {
	w, err := writer.Open(ctx, &sink{Store: memstore.New(nil)}, fence.NewToken(1), &writer.Options{Init: quickly, Checkpoint: -1, NoCompress: plain})
	if err != nil {
		return 0, 0, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	if err := f(w, n); err != nil {
		return 0, 0, err
	}
	if err := w.Close(ctx); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	return float64(n) / took.Seconds(), float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

// sink is a memstore whose log objects take a while, and are not kept: what is
// measured is the writer's memory.
type sink struct {
	store.Store
	took     time.Duration
	forget   bool
	inFlight atomic.Int64 // requests
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

// memory measures the writer's at 64 in flight, in that of what is in flight, which is
// counted before compression, as Options.MaxBytes does.
func memory(ctx context.Context, r *report) error {
	const size = 2 << 20
	for _, plain := range []bool{true, false} {
		s := &sink{Store: memstore.New(nil), took: 50 * time.Millisecond, forget: true}
		opts := pipeline(64, size)
		opts.Init, opts.Checkpoint, opts.NoCompress = quickly, -1, plain
		w, err := writer.Open(ctx, s, fence.NewToken(1), &opts)
		if err != nil {
			return err
		}
		body := [][]byte{payload(size)}
		if !plain {
			copy(body[0], make([]byte, size/2)) // so that it is worth compressing
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
