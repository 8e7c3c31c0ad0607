package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
)

// throughput compares fenced appends with plain unconditional PutObject calls of the same
// client, size and concurrency, in turns.
func throughput(ctx context.Context, r *report) error {
	f := result.Figure{Title: "Fenced appends against plain PUTs, S3's latency", File: "throughput.svg", X: "requests in flight", Y: "throughput, plain = 1", LogX: true}
	depths := []int{1, 4, 16, 64}
	for _, d := range depths {
		f.Ticks = append(f.Ticks, plot.Tick{Value: float64(d), Label: fmt.Sprint(d)})
	}
	for _, s := range []struct {
		name    string
		size, n int // n requests for each one in flight
		rounds  int // each arm begins equally many
	}{{"1 KiB", 1 << 10, 30, 4}, {"64 KiB", 64 << 10, 24, 4}, {"4 MiB", 4 << 20, 5, 3}} {
		var line plotter.XYs
		for _, depth := range depths {
			rounds := s.rounds
			if depth <= 4 && s.size < 1<<20 {
				rounds = 2 // nearly all of the time is latency, which is the same
			}
			v, err := compare(ctx, s.size, max(s.n*depth, 10), depth, rounds, func() s3stub.Latency { return s3stub.S3Latency(uint64(depth)) })
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
		rounds  int
		goal    float64
	}{
		{"64 KiB appends, 16 in flight, 2 ms", 2 * time.Millisecond, 64 << 10, 1000, 8, 0.97},
		{"4 MiB appends, 16 in flight, no latency, so bandwidth decides", 0, 4 << 20, 48, 18, 0.95},
	} {
		v, err := compare(ctx, c.size, c.n, 16, c.rounds, func() s3stub.Latency { return s3stub.Fixed(c.latency) })
		if err != nil {
			return err
		}
		r.add(Row{Name: "throughput to plain PUTs: " + c.name, Value: v.Median, Goal: c.goal, More: true, Ratio: true, Note: v.Note})
	}
	return nil
}

// compare returns the throughput of n appends relative to that of n plain requests. Each
// arm gets its own endpoint and the same sequence of latencies, and they take turns.
//
// Where bandwidth decides there is a third arm: plain requests whose bodies are copied
// first. An append has copied its records when it returns, so nothing that keeps that
// promise can be faster. The third arm goes into the note.
func compare(ctx context.Context, size, n, depth, rounds int, latency func() s3stub.Latency) (result.Spread, error) {
	arm := func(f func(*endpoint) (time.Duration, error)) result.Arm {
		return func() (took time.Duration, err error) {
			err = with(ctx, func(e *endpoint) (err error) { took, err = f(e); return err })
			return took, err
		}
	}
	arms := []result.Arm{
		arm(func(e *endpoint) (time.Duration, error) { return e.timePlain(ctx, e.putAll, size, n, depth, latency) }),
		arm(func(e *endpoint) (time.Duration, error) { return e.timeFenced(ctx, size, n, depth, latency) }),
		arm(func(e *endpoint) (time.Duration, error) { return e.timePlain(ctx, e.copyAll, size, n, depth, latency) }),
	}
	if size < 1<<20 {
		arms = arms[:2]
	}
	reached, err := result.Turns(rounds, arms...)
	if err != nil {
		return result.Spread{}, err
	}
	v := reached[0]
	if len(reached) > 1 {
		c := reached[1]
		v.Note += fmt.Sprintf("; plain PUTs of bodies that are copied first: %s (%s)", result.Number(c.Median), c.Note)
	}
	return v, nil
}

// warm is the number of requests, for each one in flight, before time is measured. They
// run at the same latency. So connections are open, and the process has got the memory
// that it needs from the system.
const warm = 2

// timePlain times n plain requests, depth at a time, after some to warm up.
func (e *endpoint) timePlain(ctx context.Context, put func(ctx context.Context, size, n, depth int) error, size, n, depth int, latency func() s3stub.Latency) (time.Duration, error) {
	e.forget()
	e.slow(latency)
	if err := put(ctx, size, warm*depth, depth); err != nil {
		return 0, err
	}
	e.slow(latency)
	start := time.Now()
	err := put(ctx, size, n, depth)
	return time.Since(start), err
}

// timeFenced times n appends, each an object, until all are acknowledged, after some to
// warm up.
func (e *endpoint) timeFenced(ctx context.Context, size, n, depth int, latency func() s3stub.Latency) (time.Duration, error) {
	w, err := e.open(ctx, pipeline(depth, size))
	if err != nil {
		return 0, err
	}
	e.forget()
	e.slow(latency)
	if err := appendSome(ctx, w, size, warm*depth); err != nil {
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

// forget makes the server discard the bodies of all writes, so that memory does not grow
// in either arm.
func (e *endpoint) forget() {
	if e.Server != nil {
		e.Forget()
	}
}

// slow starts a sequence of latencies. nil: a server that has its own.
func (e *endpoint) slow(latency func() s3stub.Latency) {
	if latency != nil {
		e.delays.set(latency())
	}
}

// folder compares appends to a folder with plain calls of the same driver. Both write
// through to the disk.
//
// A goroutine that waits for the disk keeps its processor until the runtime takes it
// away. With few processors, goroutines that pass an append to one another wait for that.
// So this is measured with more processors too. The disk's own variation is larger than
// the difference, so the ratio is not checked.
func folder(ctx context.Context, r *report) error {
	for _, processors := range []int{runtime.GOMAXPROCS(0), 8} {
		v, err := folderWith(ctx, processors)
		if err != nil {
			return err
		}
		r.add(Row{Name: fmt.Sprintf("throughput to plain creates: 64 KiB appends into a folder, 16 in flight, GOMAXPROCS=%d", processors), Value: v.Median, More: true, Note: v.Note})
	}
	return nil
}

func folderWith(ctx context.Context, processors int) (v result.Spread, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	dir, err := os.MkdirTemp("", "fencepost-bench-")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := dirstore.Open(dir, nil)
	if err != nil {
		return v, err
	}
	const size, n, depth, rounds = 64 << 10, 400, 16, 8
	bodies := payloads(size)
	e, folders := &endpoint{st: st}, 0
	plain := func() (time.Duration, error) {
		folders++
		start := time.Now()
		err := atOnce(ctx, depth, n, func(ctx context.Context, j int) error {
			_, err := st.Put(ctx, fmt.Sprintf("plain/%d/%d", folders, j), bodies[j%len(bodies)], &store.PutOptions{If: store.IfAbsent()})
			return err
		})
		return time.Since(start), err
	}
	reached, err := result.Turns(rounds, plain, func() (time.Duration, error) { return e.timeFenced(ctx, size, n, depth, nil) })
	if err != nil {
		return v, err
	}
	return reached[0], nil
}
