package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/writer"
)

const seed = 7

// latency compares the time from sending to acknowledgement with that of a plain PUT.
// Both get the same sequence of S3's latencies. They run at the same time where that
// leaves the processors idle.
func latency(ctx context.Context, r *report) error {
	const size = 4 << 10
	f := result.Figure{Title: "Time to acknowledgement at S3's latency, 16 in flight", File: "latency.svg", X: "milliseconds", Y: "share"}
	type arm struct{ depth, n int }
	plainOf := map[arm][]time.Duration{} // the hedged case reuses the plain times
	for _, c := range []struct {
		depth, n int
		hedge    float64
	}{{1, 600, 0}, {4, 2000, 0}, {16, 6000, 0}, {64, 8000, 0}, {16, 6000, 0.96}} {
		var took, ideal []time.Duration
		var puts, gets int
		plain, again := plainOf[arm{c.depth, c.n}]
		both, ctx := errgroup.WithContext(ctx)
		if c.depth > 4 {
			both.SetLimit(1) // together they would keep two processors too busy
		}
		both.Go(func() error {
			if again {
				return nil
			}
			return with(ctx, func(e *endpoint) (err error) {
				plain, err = plainTimes(ctx, e, size, c.n, c.depth)
				return err
			})
		})
		both.Go(func() error {
			return with(ctx, func(e *endpoint) (err error) {
				took, err = appendTimes(ctx, e, size, c.n, c.depth, c.hedge)
				puts, gets, ideal = e.Counts().Of(s3stub.PutObject), e.Counts().Of(s3stub.GetObject), inOrder(e.Timings())
				return err
			})
		})
		if err := both.Wait(); err != nil {
			return err
		}
		plainOf[arm{c.depth, c.n}] = plain
		at := func(q float64) (acked, plainPut, ordered float64) {
			return float64(result.Quantile(took, q)), float64(result.Quantile(plain, q)), float64(result.Quantile(ideal, q))
		}
		a50, p50, o50 := at(0.50)
		a99, p99, o99 := at(0.99)
		name := fmt.Sprintf("time to acknowledgement, %d in flight", c.depth)
		switch {
		case c.hedge > 0:
			f.Line("fenced, in order, hedged", result.Distribution(took))
			r.add(
				Row{Name: name + ", hedged, to a plain PUT's: p99", Value: a99 / p99, Goal: 1.15, Ratio: true},
				Row{Name: name + ", hedged: PUT requests per commit", Value: float64(puts) / float64(c.n), Goal: 1.05, Ratio: true, Note: fmt.Sprintf("and %.3f GET", float64(gets)/float64(c.n))},
			)
		case c.depth == 1:
			r.add(
				Row{Name: name + ", to a plain PUT's: p50", Value: a50 / p50, Goal: 1.03, Ratio: true},
				Row{Name: name + ", to a plain PUT's: p99", Value: a99 / p99, Goal: 1.05, Ratio: true},
			)
		default:
			if c.depth == 16 {
				f.Line("plain PUT", result.Distribution(plain))
				f.Line("fenced, in order", result.Distribution(took))
			}
			note := fmt.Sprintf("%.3f of a plain PUT's", a50/p50)
			r.add(Row{Name: name + ", to the in-order time of the server's latencies: p50", Value: a50 / o50, Goal: 1.05, Ratio: true, Note: note})
			note = fmt.Sprintf("%.3f of a plain PUT's", a99/p99)
			r.add(Row{Name: name + ", to the in-order time of the server's latencies: p99", Value: a99 / o99, Goal: 1.05, Ratio: true, Note: note})
		}
	}
	r.Figures = append(r.Figures, f)
	return nil
}

// plainTimes makes n plain requests, depth at a time, and returns what each took.
func plainTimes(ctx context.Context, e *endpoint, size, n, depth int) ([]time.Duration, error) {
	body := payload(size)
	took := make([]time.Duration, n)
	e.delays.set(s3stub.S3Latency(seed))
	err := atOnce(ctx, depth, n, func(ctx context.Context, i int) error {
		start := time.Now()
		err := e.put(ctx, fmt.Sprintf("plain/%d", i), body)
		took[i] = time.Since(start)
		return err
	})
	return took, err
}

// appendTimes keeps a pipeline full with n appends, each an object. It returns the time
// from sending to acknowledgement of each.
func appendTimes(ctx context.Context, e *endpoint, size, n, depth int, hedge float64) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	opts := pipeline(depth, size)
	opts.Hedge = cmp.Or(hedge, -1)
	opts.Hooks.Acknowledged = func(s writer.Acknowledgement) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, s.Took)
	}
	w, err := e.open(ctx, opts)
	if err != nil {
		return nil, err
	}
	e.delays.set(s3stub.S3Latency(seed))
	if depth > 1 {
		err = appendAll(ctx, w, size, n)
		return took, err
	}
	// One at a time: the time that its caller waits.
	body := [][]byte{payload(size)}
	for range n {
		if _, err := w.Append(ctx, body); err != nil {
			return nil, err
		}
	}
	return took, w.Close(ctx)
}

// inOrder computes the earliest time at which each append could have been acknowledged in
// order: when it and all appends before it were answered. It uses the server's timings.
func inOrder(timings []s3stub.Timing) []time.Duration {
	timings = slices.DeleteFunc(timings, func(t s3stub.Timing) bool { return t.Op != s3stub.PutObject })
	slices.SortFunc(timings, func(a, b s3stub.Timing) int { return strings.Compare(a.Key, b.Key) })
	var latest clock.Instant
	var took []time.Duration
	for _, t := range timings {
		latest = max(latest, t.Answered)
		took = append(took, latest.Sub(t.Arrived))
	}
	return took
}

// serial compares 16 requests in flight with one in flight, as in a log that sends one
// PUT after the other.
func serial(ctx context.Context, r *report) error {
	const one = 100
	rate := func(depth, n int) (perSecond float64, err error) {
		err = with(ctx, func(e *endpoint) error {
			w, err := e.open(ctx, pipeline(depth, 1<<10))
			if err != nil {
				return err
			}
			e.delays.set(s3stub.Fixed(28 * time.Millisecond))
			start := time.Now()
			err = appendAll(ctx, w, 1<<10, n)
			perSecond = float64(n) / time.Since(start).Seconds()
			return err
		})
		return perSecond, err
	}
	slow, err := rate(1, one)
	if err != nil {
		return err
	}
	fast, err := rate(16, 16*one)
	if err != nil {
		return err
	}
	r.add(Row{Name: "commits a second at 28 ms, 16 in flight, to one in flight", Value: fast / slow, Goal: 15, More: true, Ratio: true, Note: fmt.Sprintf("%.0f to %.0f", fast, slow)})
	return nil
}

// grouping measures many goroutines that append small records and wait for each.
func grouping(ctx context.Context, r *report) error {
	const goroutines, each = 1000, 40
	var plain, took []time.Duration
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error {
		return with(ctx, func(e *endpoint) (err error) {
			plain, err = plainTimes(ctx, e, 4<<10, 2000, 16)
			return err
		})
	})
	both.Go(func() error {
		return with(ctx, func(e *endpoint) error {
			w, err := e.open(ctx, writer.Options{Concurrency: 16})
			if err != nil {
				return err
			}
			e.delays.set(s3stub.S3Latency(seed))
			took = make([]time.Duration, goroutines*each)
			var g errgroup.Group
			for i := range goroutines {
				g.Go(func() error {
					record := [][]byte{payload(100)}
					for j := range each {
						start := time.Now()
						if _, err := w.Append(ctx, record); err != nil {
							return err
						}
						took[i*each+j] = time.Since(start)
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				return err
			}
			return w.Close(ctx)
		})
	})
	if err := both.Wait(); err != nil {
		return err
	}
	name := "100-byte records of 1,000 goroutines, 16 in flight, append to durable, to a plain PUT's: "
	r.add(
		Row{Name: name + "p50", Value: float64(result.Quantile(took, 0.5)) / float64(result.Quantile(plain, 0.5)), Goal: 2, Ratio: true},
		Row{Name: name + "p99", Value: float64(result.Quantile(took, 0.99)) / float64(result.Quantile(plain, 0.99)), Goal: 1.6, Ratio: true},
	)
	f := result.Figure{Title: "100-byte records of 1,000 goroutines, S3's latency", File: "grouping.svg", X: "milliseconds", Y: "share"}
	f.Line("plain PUT", result.Distribution(plain))
	f.Line("append to durable", result.Distribution(took))
	r.Figures = append(r.Figures, f)
	return nil
}
