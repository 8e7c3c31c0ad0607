package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// TestOpening opens a log against a deposed leader that saturates its pipeline and never
// stops. It runs in virtual time, where no request waits for this machine's processors.
// So the leader and the process that takes over have a machine each.
func TestOpening(t *testing.T) {
	r := &report{result.New("Opening against a leader that never stops", "opening"), t.Name()}
	r.Text = "A leader writes a checkpoint in each interval, and besides after 1,024 objects or 256 MiB. Until the checkpoint is written it appends on, so a successor may have to read a little more. " +
		"A checkpoint takes three requests: 0.3 % more of them where objects are small, and 5 % where each has 4 MiB. A successor over a slow wire waits for the bytes: the last row."
	f, err := manifest.Init(t.Context(), memstore.New(nil), quickly) // outside the bubble, because its probe needs real time
	if err != nil {
		t.Fatal(err)
	}
	tries, step := 200, 2
	if *into == "" {
		tries, step = 20, 10
	}
	for _, c := range []struct {
		name    string
		latency s3stub.Latency
		trip    time.Duration // median of a PUT
	}{
		{"S3's latency", s3stub.S3Latency(seed), 28 * time.Millisecond},
		{"2 ms", s3stub.Fixed(2 * time.Millisecond), 2 * time.Millisecond},
	} {
		for _, inFlight := range []int{16, 64} {
			var took []time.Duration
			synctest.Test(t, func(t *testing.T) { took = outrunAgain(t, f, c.latency, c.trip, inFlight, tries*16/inFlight) })
			trips := func(q float64) float64 { return float64(result.Quantile(took, q)) / float64(c.trip) }
			row := Row{
				Name:  fmt.Sprintf("a deposed leader with %d in flight, %s: round trips from the first seal sent until it is open, p99", inFlight, c.name),
				Value: trips(0.99), Goal: 8, Ratio: true, Note: fmt.Sprintf("median %s, worst of %d: %s", result.Number(trips(0.5)), len(took), result.Number(trips(1))),
			}
			if r.add(row); row.Missed() {
				t.Errorf("%s: %s (%s)", row.Name, result.Number(row.Value), row.Note)
			}
		}
	}
	for _, inFlight := range []int{16, 64} {
		var took []time.Duration
		synctest.Test(t, func(t *testing.T) { took = succeed(t, f, inFlight, tries/10) })
		seconds := func(q float64) float64 { return result.Quantile(took, q).Seconds() }
		row := Row{
			Name:  fmt.Sprintf("after a crash behind 10,000 commits with %d in flight, S3's latency: seconds from opening to the first acknowledgement, p99", inFlight),
			Value: seconds(0.99), Goal: 1, Ratio: true, Note: fmt.Sprintf("median %s of %d", result.Number(seconds(0.5)), len(took)),
		}
		if r.add(row); row.Missed() {
			t.Errorf("%s: %s (%s)", row.Name, result.Number(row.Value), row.Note)
		}
	}
	for _, wire := range []float64{1250e6, 200e6} {
		var took []time.Duration
		var read int64
		for n := 60; n <= 90; n += step {
			synctest.Test(t, func(t *testing.T) {
				first, bytes := succeedLarge(t, f, wire, n)
				took, read = append(took, first), max(read, bytes)
			})
		}
		goal := 1.
		if wire < 1e9 {
			goal = -1
		}
		row := Row{
			Name:  fmt.Sprintf("after a crash behind objects of 4 MiB, S3's latency, a wire of %.0f MB/s: seconds from opening to the first acknowledgement, the worst", wire/1e6),
			Value: result.Quantile(took, 1).Seconds(), Goal: goal, Ratio: true, Note: fmt.Sprintf("median %s of %d; up to %d MiB were read", result.Number(result.Quantile(took, 0.5).Seconds()), len(took), read>>20),
		}
		if r.add(row); row.Missed() {
			t.Errorf("%s: %s (%s)", row.Name, result.Number(row.Value), row.Note)
		}
	}
	if *into == "" {
		return
	}
	if err := r.Write(*into); err != nil {
		t.Fatal(err)
	}
}

// succeed measures a number of openings, each after a leader that has made 10,000 commits as
// fast as it could, with the default checkpoints, and crashed.
func succeed(t *testing.T, f manifest.Format, inFlight, tries int) (took []time.Duration) {
	ctx := t.Context()
	far := farLog(t, f, s3stub.S3Latency(seed))
	opts := pipeline(inFlight, 1<<10)
	opts.Clock, opts.Checkpoint = clock.Go(), 0
	for i := range tries + 1 {
		start := time.Now()
		w, err := writer.Open(ctx, far, fence.NewToken(fence.Epoch(i+1)), &opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Append(ctx, [][]byte{payload(1 << 10)}); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			took = append(took, time.Since(start))
		}
		if err := appendSome(ctx, w, 1<<10, 10_000); err != nil {
			t.Fatal(err)
		}
		crash, cancel := context.WithCancel(ctx)
		cancel()
		if err := w.Close(crash); !errors.Is(err, writer.ErrUnknown) {
			t.Fatalf("nothing was in flight at the crash: %v", err)
		}
	}
	return took
}

// wired is a store whose GETs share a wire of so many bytes a second. A line of 90 MB/s carries each.
type wired struct {
	store.Store
	wire float64

	mu   sync.Mutex
	busy time.Time // the wire is busy until then
	read int64
}

func (w *wired) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	obj, err := w.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Body = &wiredBody{obj.Body, ctx, w}
	}
	return obj, err
}

type wiredBody struct {
	io.ReadCloser
	ctx context.Context
	w   *wired
}

func (b *wiredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 64<<10)])
	seconds := func(rate float64) time.Duration { return time.Duration(float64(n) / rate * float64(time.Second)) }
	b.w.mu.Lock()
	now := time.Now()
	if b.w.busy.Before(now) {
		b.w.busy = now
	}
	b.w.busy = b.w.busy.Add(seconds(b.w.wire))
	b.w.read += int64(n)
	wait := max(seconds(90e6), b.w.busy.Sub(now))
	b.w.mu.Unlock()
	if slept := clock.Sleep(b.ctx, clock.Go(), wait); slept != nil {
		return 0, slept
	}
	return n, err
}

// succeedLarge measures an opening after a leader that has made n commits of 4 MiB as fast as it
// could, with the default checkpoints, and crashed. It returns the bytes that were read too.
func succeedLarge(t *testing.T, f manifest.Format, wire float64, n int) (took time.Duration, read int64) {
	const size = 4 << 20
	ctx := t.Context()
	far := farLog(t, f, s3stub.S3Latency(seed))
	opts := pipeline(16, size)
	opts.Clock, opts.Checkpoint = clock.Go(), 0
	w, err := writer.Open(ctx, far, fence.NewToken(1), &opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := appendSome(ctx, w, size, n); err != nil {
		t.Fatal(err)
	}
	crash, cancel := context.WithCancel(ctx)
	cancel()
	if err := w.Close(crash); !errors.Is(err, writer.ErrUnknown) {
		t.Fatalf("nothing was in flight at the crash: %v", err)
	}
	st := &wired{Store: far, wire: wire}
	opts.BatchBytes = 0
	start := time.Now()
	if w, err = writer.Open(ctx, st, fence.NewToken(2), &opts); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(ctx, [][]byte{payload(1 << 10)}); err != nil {
		t.Fatal(err)
	}
	took = time.Since(start)
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return took, st.read
}

// farLog returns a log whose requests take as long as latency says, in virtual time.
func farLog(t *testing.T, f manifest.Format, latency s3stub.Latency) store.Store {
	return faultstore.New(logtest.New(t, f, nil).Mem, &faultstore.Options{Clock: clock.Go(), Hook: func(op faultstore.Op) faultstore.Fault {
		kind := s3stub.PutObject
		if op.Kind == faultstore.Get {
			kind = s3stub.GetObject
		}
		d := latency(kind, op.Size)
		return faultstore.Fault{Delay: d / 2, ReplyDelay: d - d/2}
	}})
}

// outrunAgain measures a number of openings, each against the leader that the previous
// one made.
func outrunAgain(t *testing.T, f manifest.Format, latency s3stub.Latency, trip time.Duration, inFlight, tries int) (took []time.Duration) {
	ctx := t.Context()
	far := farLog(t, f, latency)
	opts := pipeline(inFlight, 1<<10)
	opts.Clock = clock.Go()
	w, err := writer.Open(ctx, far, fence.NewToken(1), &opts)
	if err != nil {
		t.Fatal(err)
	}
	took, w, err = chase(ctx, far, w, &opts, tries, func(i int) time.Duration {
		return 10*trip + time.Duration(i)*7*trip/time.Duration(tries) // in every phase of the pipeline
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return took
}
