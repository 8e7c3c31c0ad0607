package history

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

const get = 28 * time.Millisecond

// slow is a log on a store in virtual time. The writer's requests take no time, each
// request of the reader takes as long as a GET.
type slow struct {
	remote *faultstore.Store
	writer *writer.Writer
	reader *reader.Reader
}

func newSlow(t *testing.T, f manifest.Format) *slow {
	t.Helper()
	mem := logtest.New(t, f, nil).Mem
	s := &slow{remote: faultstore.New(mem, &faultstore.Options{Clock: clock.Go(), Hook: func(faultstore.Op) faultstore.Fault {
		return faultstore.Fault{Delay: get / 2, ReplyDelay: get / 2}
	}})}
	var err error
	if s.writer, err = writer.Open(t.Context(), mem, fence.NewToken(1), &writer.Options{NoCompress: true, Clock: clock.Go()}); err != nil {
		t.Fatal(err)
	}
	if s.reader, err = reader.Open(t.Context(), s.remote, &reader.Options{Clock: clock.Go()}); err != nil {
		t.Fatal(err)
	}
	return s
}

// The median record reaches a tailing reader within the time of two GETs after its
// acknowledgement. An idle reader makes at most one request a second.
func TestTail(t *testing.T) {
	f, err := manifest.Init(t.Context(), memstore.New(nil), nil) // outside the bubble, because its probe needs real time
	if err != nil {
		t.Fatal(err)
	}
	figure := result.Figure{Title: "From acknowledgement to a tailing reader's hands, GETs of 28 ms", File: "tail.svg", X: "milliseconds", Y: "share"}
	for _, c := range []struct {
		name    string
		between func(i int) time.Duration
	}{
		{"records without a pause", func(int) time.Duration { return 0 }},
		{"records 3 to 53 ms apart", func(i int) time.Duration { return time.Duration(3+i*7%50) * time.Millisecond }},
		{"records 100 to 250 ms apart", func(i int) time.Duration { return time.Duration(100+i*37%150) * time.Millisecond }},
	} {
		synctest.Test(t, func(t *testing.T) {
			took := newSlow(t, f).delays(t, 400, c.between)
			figure.Line(c.name, result.Distribution(took))
			in := func(q float64) float64 { return float64(result.Quantile(took, q)) / float64(get) }
			exact(t, Row{Name: "tail latency, " + c.name + ", in the time of a GET: p50", Value: in(0.5), Goal: 2, Note: fmt.Sprintf("p99 %s, the worst %s", result.Number(in(0.99)), result.Number(in(1)))})
		})
	}
	page.Figures = append(page.Figures, figure)
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t, f)
		if _, err := s.writer.Append(t.Context(), [][]byte{[]byte("one")}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, s.remote.ResetCounts)
		time.AfterFunc(time.Hour+time.Minute, cancel)
		for _, err := range s.reader.Tail(ctx, 0) {
			if err != nil {
				break
			}
		}
		n := s.remote.Counts()
		exact(t, Row{Name: "an idle tail: requests a second", Value: float64(n.Of("", "")) / 3600, Goal: 1, Note: fmt.Sprintf("%d of an hour's are LIST", n.Of(faultstore.List, ""))})
		if err := s.writer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// delays appends n records. It returns how long after its acknowledgement each was read.
func (s *slow) delays(t *testing.T, n int, between func(i int) time.Duration) (took []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	acknowledged := make([]time.Time, n)
	over := make(chan error, 1)
	go func() {
		for i := range n {
			time.Sleep(between(i))
			if _, err := s.writer.Append(context.Background(), [][]byte{fmt.Append(nil, i)}); err != nil {
				over <- err
				return
			}
			mu.Lock()
			acknowledged[i] = time.Now()
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		over <- s.writer.Close(context.Background())
	}()
	for rec, err := range s.reader.Tail(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		at := acknowledged[rec.Offset]
		mu.Unlock()
		if !at.IsZero() && rec.Offset > 5 { // the reader begins late, because it first reads the manifest
			took = append(took, time.Since(at))
		}
		if rec.Offset == uint64(n)-1 {
			break
		}
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	return took
}
