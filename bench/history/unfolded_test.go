package history

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// lines is a store whose GETs take S3's latency, and then the time of their bytes at 90 MB/s:
// a line for each.
type lines struct {
	store.Store
	mu  sync.Mutex
	rng *rand.Rand
	n   int
}

func (l *lines) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	l.mu.Lock()
	l.n++
	const p50, p99, quantile99 = 14, 45, 2.3263478740408408
	d := time.Duration(p50 * math.Exp(math.Log(p99/p50)/quantile99*l.rng.NormFloat64()) * float64(time.Millisecond))
	l.mu.Unlock()
	if err := clock.Sleep(ctx, clock.Go(), d); err != nil {
		return nil, err
	}
	obj, err := l.Store.Get(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	defer obj.Body.Close()
	body, err := io.ReadAll(obj.Body)
	if err != nil {
		return nil, err
	}
	obj.Body = io.NopCloser(bytes.NewReader(body))
	return obj, clock.Sleep(ctx, clock.Go(), time.Duration(float64(len(body))/90e6*float64(time.Second)))
}

// Reading what is not folded, in order, against plain GETs of the same objects in any order,
// with as many connections and as much memory: 64, and 64 MiB.
func TestUnfolded(t *testing.T) {
	f, err := manifest.Init(t.Context(), memstore.New(nil), nil) // outside the bubble, because its probe needs real time
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		size, n, way int
	}{{"64 KiB", 64 << 10, 4000, 64}, {"1 MiB", 1 << 20, 600, 64}, {"4 MiB", 4<<20 - 8, 150, 16}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, mem := t.Context(), logtest.New(t, f, nil).Mem
			w, err := writer.Open(ctx, mem, fence.NewToken(1), &writer.Options{Clock: clock.Go(), Checkpoint: -1, NoCompress: true, BatchBytes: c.size})
			if err != nil {
				t.Fatal(err)
			}
			record := [][]byte{make([]byte, c.size)}
			for range c.n {
				if _, err := w.Append(ctx, record); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(ctx); err != nil {
				t.Fatal(err)
			}
			l := &lines{Store: mem, rng: rand.New(rand.NewPCG(1, 2))}
			start := time.Now()
			var g errgroup.Group
			g.SetLimit(c.way)
			for i := range c.n {
				g.Go(func() error {
					_, err := l.Get(ctx, layout.DataKey(fence.Position{Epoch: 1, Seq: uint64(i) + 1}), nil)
					return err
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			plain := time.Since(start)
			r, err := reader.Open(ctx, l, &reader.Options{Clock: clock.Go()})
			if err != nil {
				t.Fatal(err)
			}
			l.n, start = 0, time.Now()
			records := 0
			for _, err := range r.Read(ctx, 0) {
				if err != nil {
					t.Fatal(err)
				}
				records++
			}
			took := time.Since(start)
			if records != c.n {
				t.Fatalf("%d records, want %d", records, c.n)
			}
			add(t, Row{
				Name: "reading objects of " + c.name + " that are not folded, S3's latency, in virtual time: speed, to plain GETs with 64 connections and 64 MiB", Value: plain.Seconds() / took.Seconds(), Goal: 0.95, More: true, Ratio: true,
				Note: fmt.Sprintf("%.2f GETs an object; plain %d at once", float64(l.n)/float64(c.n), c.way),
			})
		})
	}
}
