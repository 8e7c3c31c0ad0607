package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/internal/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
)

// throughput compares fenced appends with plain unconditional PutObject calls of
// the same client, size and concurrency, in turns.
func throughput(ctx context.Context, r *report) error {
	f := result.Figure{Title: "Fenced appends against plain PUTs, S3's latency", File: "throughput.svg", X: "requests in flight", Y: "throughput, plain = 1", LogX: true}
	depths := []int{1, 4, 16, 64}
	for _, d := range depths {
		f.Ticks = append(f.Ticks, plot.Tick{Value: float64(d), Label: fmt.Sprint(d)})
	}
	for _, s := range []struct {
		name    string
		size, n int // n requests for each in flight
	}{{"1 KiB", 1 << 10, 40}, {"64 KiB", 64 << 10, 30}, {"4 MiB", 4 << 20, 5}} {
		var line plotter.XYs
		for _, depth := range depths {
			v, err := compare(ctx, s.size, max(s.n*depth, 20), depth, 3, func() s3stub.Latency { return s3stub.S3Latency(uint64(depth)) })
			if err != nil {
				return err
			}
			r.add(Row{Name: fmt.Sprintf("throughput of %s appends to plain PUTs, %d in flight, S3's latency", s.name, depth), Value: v.Median, Goal: 0.97, More: true, Ratio: true, Note: v.Note})
			line = append(line, plotter.XY{X: float64(depth), Y: v.Median})
		}
		f.Line(s.name, line)
	}
	r.Figures = append(r.Figures, f)
	for _, c := range []struct {
		name    string
		latency time.Duration
		size, n int
		goal    float64
	}{
		{"64 KiB appends, 16 in flight, 2 ms", 2 * time.Millisecond, 64 << 10, 1500, 0.97},
		{"4 MiB appends, 16 in flight, no latency, so bandwidth decides", 0, 4 << 20, 100, 0.95},
	} {
		v, err := compare(ctx, c.size, c.n, 16, 5, func() s3stub.Latency { return s3stub.Fixed(c.latency) })
		if err != nil {
			return err
		}
		r.add(Row{Name: "throughput to plain PUTs: " + c.name, Value: v.Median, Goal: c.goal, More: true, Ratio: true, Note: v.Note})
	}
	return nil
}

// compare returns the throughput of n appends in that of n plain requests. Each arm
// gets an endpoint of its own and the same row of latencies, and they take turns.
func compare(ctx context.Context, size, n, depth, rounds int, latency func() s3stub.Latency) (result.Spread, error) {
	var ratios []float64
	for range rounds {
		var plain, fenced time.Duration
		for _, arm := range []func(*endpoint) error{
			func(e *endpoint) (err error) { plain, err = e.timePlain(ctx, size, n, depth, latency); return err },
			func(e *endpoint) (err error) { fenced, err = e.timeFenced(ctx, size, n, depth, latency); return err },
		} {
			runtime.GC() // what the other arm's server has kept is collected at nobody's expense
			if err := with(ctx, arm); err != nil {
				return result.Spread{}, err
			}
		}
		ratios = append(ratios, plain.Seconds()/fenced.Seconds())
	}
	return result.SpreadOf(ratios), nil
}

// timePlain times n plain requests, so many at once, after as many others.
func (e *endpoint) timePlain(ctx context.Context, size, n, depth int, latency func() s3stub.Latency) (time.Duration, error) {
	if err := e.putAll(ctx, size, depth, depth); err != nil {
		return 0, err
	}
	e.slow(latency)
	start := time.Now()
	err := e.putAll(ctx, size, n, depth)
	return time.Since(start), err
}

// timeFenced times n appends, each an object, until all are acknowledged, after as many
// others as are in flight.
func (e *endpoint) timeFenced(ctx context.Context, size, n, depth int, latency func() s3stub.Latency) (time.Duration, error) {
	w, err := e.open(ctx, pipeline(depth, size))
	if err != nil {
		return 0, err
	}
	// As many as are in flight, so that the writer's memory is there, as the connections are.
	if err := appendSome(ctx, w, size, depth); err != nil {
		return 0, err
	}
	if err := w.Flush(ctx); err != nil {
		return 0, err
	}
	e.slow(latency)
	start := time.Now()
	err = appendAll(ctx, w, size, n)
	return time.Since(start), err
}

// slow begins a row of latencies; nil is for a server that has its own.
func (e *endpoint) slow(latency func() s3stub.Latency) {
	if latency != nil {
		e.delays.set(latency())
	}
}

// folder compares appends into a folder with plain calls of the same driver. Both
// write through to the disk.
func folder(ctx context.Context, r *report) (err error) {
	dir, err := os.MkdirTemp("", "fencepost-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := dirstore.Open(dir, nil)
	if err != nil {
		return err
	}
	const size, n, depth, rounds = 64 << 10, 400, 16, 5
	bodies := payloads(size)
	var ratios []float64
	for i := range rounds {
		start := time.Now()
		var g errgroup.Group
		g.SetLimit(depth)
		for j := range n {
			g.Go(func() error {
				_, err := st.Put(ctx, fmt.Sprintf("plain/%d/%d", i, j), bodies[j%len(bodies)], store.IfAbsent)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		plain := time.Since(start)
		fenced, err := (&endpoint{st: st}).timeFenced(ctx, size, n, depth, nil)
		if err != nil {
			return err
		}
		ratios = append(ratios, plain.Seconds()/fenced.Seconds())
	}
	v := result.SpreadOf(ratios)
	r.add(Row{Name: "throughput to plain creates: 64 KiB appends into a folder, 16 in flight", Value: v.Median, Goal: 0.97, More: true, Ratio: true, Note: v.Note})
	return nil
}
