package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// traced notes when the requests of one client begin and end.
type traced struct {
	store.Store
	mu    sync.Mutex
	spans []span
}

type span struct {
	from, to time.Time
	key      string
}

func (t *traced) note(key string, from time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans = append(t.spans, span{from, time.Now(), key})
}

// sealing returns when the first seal was sent.
func (t *traced) sealing() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first time.Time
	for _, s := range t.spans {
		if strings.HasPrefix(s.key, "put "+layout.DataPrefix) && (first.IsZero() || s.from.Before(first)) {
			first = s.from
		}
	}
	return first
}

func (t *traced) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	defer t.note("get "+key, time.Now())
	return t.Store.Get(ctx, key, opts)
}

func (t *traced) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	defer t.note("put "+key, time.Now())
	return t.Store.Put(ctx, key, body, opts)
}

func (t *traced) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		defer t.note("list "+prefix, time.Now())
		t.Store.List(ctx, prefix, opts)(yield)
	}
}

// rounds counts sequential requests between two times: those that began after the
// previous one had ended.
func (t *traced) rounds(since, until time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	spans := slices.DeleteFunc(slices.Clone(t.spans), func(s span) bool { return s.from.Before(since) || s.to.After(until) })
	slices.SortFunc(spans, func(a, b span) int { return a.to.Compare(b.to) })
	n, last := 0, time.Time{}
	for _, s := range spans {
		if s.from.After(last) {
			n, last = n+1, s.to
		}
	}
	return n
}

// opening counts the sequential requests from the election to the first acknowledgement.
func opening(ctx context.Context, r *report) error {
	return with(ctx, func(e *endpoint) error {
		st := e.folder()
		first, err := writer.Open(ctx, st, fence.NewToken(1), &writer.Options{Init: quickly})
		if err != nil {
			return err
		}
		if _, err := first.Append(ctx, [][]byte{[]byte("first")}); err != nil {
			return err
		}
		if err := first.Close(ctx); err != nil {
			return err
		}
		const trip = 28 * time.Millisecond
		e.delays.set(s3stub.Fixed(trip))
		t := &traced{Store: st}
		start := time.Now()
		w, err := writer.Open(ctx, t, fence.NewToken(2), nil)
		if err != nil {
			return err
		}
		if _, err := w.Append(ctx, [][]byte{[]byte("second")}); err != nil {
			return err
		}
		acked := time.Now()
		r.add(Row{
			Name: "opening with nothing unfolded, to the first acknowledgement: requests one after the other", Value: float64(t.rounds(start, acked)), Goal: 6, Ratio: true,
			Note: fmt.Sprintf("%v at 28 ms each", acked.Sub(start).Round(time.Millisecond)),
		})
		e.delays.set(nil)
		return w.Close(ctx)
	})
}

// outrun opens a log against a deposed leader that saturates its pipeline and never
// stops. It measures from the first seal that is sent. The reads before that are measured
// by backlog.
//
// A round trip is the median time of a plain PUT of the same client. Such PUTs run one
// after the other during the whole measure. At S3's latency the round trip is S3's
// median. At 2 ms it is longer, because the leader keeps the processors busy, and server
// and clients share them. The note has the time in the server's latencies too.
//
// So the case of 2 ms measures this machine and has no goal here. TestOpening has one:
// there every process has a machine of its own. TestOpening also checks the ratio,
// because with so few openings the p99 is the worst one.
func outrun(ctx context.Context, r *report) error {
	for _, c := range []struct {
		name    string
		latency func() s3stub.Latency
		trip    time.Duration
		tries   int
		goal    float64
	}{
		{"S3's latency", func() s3stub.Latency { return s3stub.S3Latency(seed) }, 28 * time.Millisecond, 40, 8},
		{"2 ms, all on the same processors", func() s3stub.Latency { return s3stub.Fixed(2 * time.Millisecond) }, 2 * time.Millisecond, 30, -1},
	} {
		var took, plain []time.Duration
		err := with(ctx, func(e *endpoint) error {
			st := e.folder()
			opts := pipeline(16, 1<<10)
			w, err := writer.Open(ctx, st, fence.NewToken(1), &opts)
			if err != nil {
				return err
			}
			e.delays.set(c.latency())
			beside, stop := context.WithCancel(ctx)
			var g errgroup.Group
			g.Go(func() (err error) {
				plain, err = plainRow(beside, e)
				return err
			})
			defer func() { stop(); _ = g.Wait() }()
			took, w, err = chase(ctx, st, w, &opts, c.tries, func(int) time.Duration { return 100 * time.Millisecond })
			if err != nil {
				return err
			}
			stop()
			return errors.Join(g.Wait(), w.Close(ctx))
		})
		if err != nil {
			return err
		}
		trip := result.Quantile(plain, 0.5)
		trips := func(q float64) float64 { return float64(result.Quantile(took, q)) / float64(trip) }
		r.add(Row{
			Name: "opening against a deposed leader with 16 in flight, " + c.name + ": round trips from the first seal sent until it is open, p99", Value: trips(0.99), Goal: c.goal,
			Note: fmt.Sprintf("median %s; a plain PUT beside it takes %.1f ms; in latencies of %v: p99 %s, median %s", result.Number(trips(0.5)), float64(trip)/1e6, c.trip,
				result.Number(float64(result.Quantile(took, 0.99))/float64(c.trip)), result.Number(float64(result.Quantile(took, 0.5))/float64(c.trip))),
		})
	}
	return nil
}

// chase opens a log a number of times, each time against the leader that the previous
// opening made, which saturates its pipeline and never stops. w is the first leader; chase
// returns the last. pause is how long each leader appends before the next opening. took has
// the time of each opening from its first seal.
func chase(ctx context.Context, st store.Store, w *writer.Writer, opts *writer.Options, tries int, pause func(i int) time.Duration) (took []time.Duration, last *writer.Writer, err error) {
	record := [][]byte{payload(1 << 10)}
	for i := range tries {
		over := make(chan struct{})
		go func(w *writer.Writer) {
			defer close(over)
			for {
				if _, err := w.AppendAsync(ctx, record); err != nil {
					return
				}
			}
		}(w)
		time.Sleep(pause(i))
		t := &traced{Store: st}
		next, err := writer.Open(ctx, t, fence.NewToken(fence.Epoch(i+2)), opts)
		if err != nil {
			return nil, nil, err
		}
		took = append(took, time.Since(t.sealing()))
		<-over
		if err := w.Close(ctx); !errors.Is(err, writer.ErrFenced) {
			return nil, nil, fmt.Errorf("the deposed leader was not fenced: %w", err)
		}
		w = next
	}
	return took, w, nil
}

// plainRow makes plain requests one after the other until ctx ends, and returns what each
// took.
func plainRow(ctx context.Context, e *endpoint) (took []time.Duration, err error) {
	body := payload(1 << 10)
	for i := 0; ; i++ {
		start := time.Now()
		err := e.put(ctx, fmt.Sprintf("beside/%d", i), body)
		if ctx.Err() != nil {
			return took, nil //nolint:nilerr // the end is no failure
		}
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
}

// backlog opens a log with 10,000 unfolded objects. It compares that with plain GETs of
// the same objects, 64 at a time. Each round has a new log, because the opening writer
// folds what it has read.
func backlog(ctx context.Context, r *report) error {
	const objects, rounds = 10_000, 3
	var ratios []float64
	for range rounds {
		err := with(ctx, func(e *endpoint) error {
			st := e.folder()
			opts := pipeline(64, 1<<10)
			w, err := writer.Open(ctx, st, fence.NewToken(1), &opts)
			if err != nil {
				return err
			}
			if err := appendAll(ctx, w, 1<<10, objects); err != nil {
				return err
			}
			if m, err := state.With(st, w.Format(), nil).Newest(ctx); err != nil || m.Tail().Position.Seq > 1 {
				return fmt.Errorf("the log's objects must be unfolded, but the manifest knows the tail up to %v (%w)", m.Tail().Position, err)
			}
			e.delays.set(s3stub.S3Latency(seed))
			start := time.Now()
			err = atOnce(ctx, 64, objects, func(ctx context.Context, seq int) error {
				obj, err := st.Get(ctx, layout.DataKey(fence.Position{Epoch: 1, Seq: uint64(seq) + 1}), nil)
				if err != nil {
					return err
				}
				defer obj.Body.Close()
				_, err = io.Copy(io.Discard, obj.Body)
				return err
			})
			if err != nil {
				return err
			}
			plain := time.Since(start)
			e.delays.set(s3stub.S3Latency(seed))
			start = time.Now()
			if w, err = writer.Open(ctx, st, fence.NewToken(2), &opts); err != nil {
				return err
			}
			ratios = append(ratios, time.Since(start).Seconds()/plain.Seconds())
			e.delays.set(nil)
			return w.Close(ctx)
		})
		if err != nil {
			return err
		}
	}
	v := result.SpreadOf(ratios)
	r.add(Row{Name: "opening with 10,000 objects not folded, to reading them with 64 plain GETs at once", Value: v.Median, Goal: 1.3, Ratio: true, Note: v.Note})
	return nil
}
