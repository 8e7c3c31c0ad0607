package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// metering makes a page of its own. It compares a writer whose commits and requests are measured by
// promhooks with one that is not, in turns. It counts the processor time of this process, so other
// processes disturb it less. Still it differs by a fifth from one round to the next, and the goal is
// a fiftieth: so there are many short rounds.
func metering(ctx context.Context, _ []string, dir string) error {
	lines()
	r := &report{result.New("What metrics cost the writer", "metering"), "metering"}
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, on bool) (time.Duration, error)
	}{
		{"100-byte records into memory, AppendAsync", intoMemory},
		{"1 KiB appends to an S3 endpoint, each an object, 16 in flight", intoEndpoint},
	} {
		arm := func(on bool) result.Arm {
			return func() (time.Duration, error) { return c.run(ctx, on) }
		}
		reached, err := result.Turns(150, arm(false), arm(true))
		if err != nil {
			return err
		}
		v := reached[0]
		r.add(Row{Name: "with metrics to without, by processor time: " + c.name, Value: v.Median, Goal: 0.98, More: true, Ratio: true, Note: "rounds from " + v.Note})
	}
	return r.Write(dir)
}

func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // there is no such failure
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// watched returns a store and hooks that are measured, or not.
func watched(st store.Store, on bool) (store.Store, writer.Hooks) {
	if !on {
		return st, writer.Hooks{}
	}
	m, err := promhooks.New(prometheus.NewRegistry(), nil)
	if err != nil {
		panic(err) // the registry is new
	}
	return m.Store(st), m.Writer(writer.Hooks{})
}

func intoMemory(ctx context.Context, on bool) (took time.Duration, err error) {
	st, hooks := watched(&sink{Store: memstore.New(nil)}, on)
	w, err := writer.Open(ctx, st, fence.NewToken(1), &writer.Options{Init: quickly, Checkpoint: -1, Hooks: hooks})
	if err != nil {
		return 0, err
	}
	before := processorTime()
	if err := calls(1)(ctx, w, 200_000); err != nil {
		return 0, err
	}
	if err := w.Flush(ctx); err != nil {
		return 0, err
	}
	took = processorTime() - before
	return took, w.Close(ctx)
}

func intoEndpoint(ctx context.Context, on bool) (took time.Duration, err error) {
	err = with(ctx, func(e *endpoint) error {
		st, hooks := watched(e.folder(), on)
		opts := pipeline(16, 1<<10)
		opts.Init, opts.Checkpoint, opts.Hooks = quickly, -1, hooks
		w, err := writer.Open(ctx, st, fence.NewToken(1), &opts)
		if err != nil {
			return err
		}
		e.slow(func() s3stub.Latency { return s3stub.Fixed(time.Millisecond) })
		e.forget()
		before := processorTime()
		if err := appendAll(ctx, w, 1<<10, 600); err != nil {
			return err
		}
		took = processorTime() - before
		return w.Close(ctx)
	})
	return took, err
}
