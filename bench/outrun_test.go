package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/internal/testkit/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// TestOpening opens a log against a deposed leader that saturates its pipeline and never
// stops. It runs in virtual time, where no request waits for this machine's processors.
// So the leader and the process that takes over have a machine each.
func TestOpening(t *testing.T) {
	r := &report{result.New("Opening against a leader that never stops", "opening"), t.Name()}
	f, err := manifest.Init(t.Context(), memstore.New(nil), quickly) // outside the bubble, because its probe needs real time
	if err != nil {
		t.Fatal(err)
	}
	tries := 200
	if *into == "" {
		tries = 20
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
	if *into == "" {
		return
	}
	if err := r.Write(*into); err != nil {
		t.Fatal(err)
	}
}

// outrunAgain measures a number of openings, each against the leader that the previous
// one made.
func outrunAgain(t *testing.T, f manifest.Format, latency s3stub.Latency, trip time.Duration, inFlight, tries int) (took []time.Duration) {
	ctx := t.Context()
	far := faultstore.New(logtest.New(t, f, nil).Mem, &faultstore.Options{Clock: clock.Go(), Hook: func(op faultstore.Op) faultstore.Fault {
		kind := s3stub.PutObject
		if op.Kind == faultstore.Get {
			kind = s3stub.GetObject
		}
		d := latency(kind, op.Size)
		return faultstore.Fault{Delay: d / 2, ReplyDelay: d - d/2}
	}})
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
