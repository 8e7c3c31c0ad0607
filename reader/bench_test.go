package reader_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/testkit/s3stub"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	_ "github.com/fencepost/fencepost/store/s3store"
	"github.com/fencepost/fencepost/writer"
)

// compacted fills a store with a log of so many bytes in segments of 64 MiB.
func compacted(b *testing.B, st store.Store, total, record int) {
	b.Helper()
	ctx := context.Background()
	put(b, st, layout.FormatKey, mustFormat(b))
	w, err := writer.Open(ctx, st, fence.NewToken(1), &writer.Options{NoCompress: true})
	if err != nil {
		b.Fatal(err)
	}
	noise := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for at := 0; at < total; {
		var records [][]byte
		for range max(1, 1<<20/record) {
			from := at * 31 % (len(noise) - record)
			records = append(records, noise[from:from+record])
			at += record
		}
		if _, err := w.AppendAsync(ctx, records); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(ctx); err != nil {
		b.Fatal(err)
	}
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), SegmentBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Once(ctx); err != nil {
		b.Fatal(err)
	}
}

func put(b *testing.B, st store.Store, key string, body []byte) {
	b.Helper()
	if _, err := st.Put(context.Background(), key, body, nil); err != nil {
		b.Fatal(err)
	}
}

func mustFormat(b *testing.B) []byte {
	b.Helper()
	w := newWorld(b, 0)
	return w.Body(layout.FormatKey)
}

func catchUp(b *testing.B, st store.Store, total int) {
	b.Helper()
	r, err := reader.Open(context.Background(), st, nil)
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for rec, err := range r.Read(context.Background(), 0) {
		if err != nil {
			b.Fatal(err)
		}
		n += len(rec.Value)
	}
	if n < total {
		b.Fatalf("%d bytes", n)
	}
}

// BenchmarkCatchUp reads a compacted log from memory.
func BenchmarkCatchUp(b *testing.B) {
	for _, record := range []int{100, 1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%d-byte records", record), func(b *testing.B) {
			const total = 256 << 20
			st := memstore.New(nil)
			compacted(b, st, total, record)
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				catchUp(b, st, total)
			}
		})
	}
}

// cpu reports what the process uses for each byte, the endpoint included: it tells
// more than time on a machine that has other work to do.
func cpu(b *testing.B, total int) (done func()) {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N)/float64(total), "cpu-ns/B") }
}

// BenchmarkLoopback compares reading a compacted log over HTTP with plain GETs of
// the same ranges, 16 at once: what no reader can beat.
func BenchmarkLoopback(b *testing.B) {
	const total = 256 << 20
	srv, err := s3stub.Start(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = srv.Close() })
	b.Setenv("AWS_ACCESS_KEY_ID", "AK")
	b.Setenv("AWS_SECRET_ACCESS_KEY", "SK")
	st, err := store.Open(context.Background(), "s3://bucket/log?region=us-east-1&endpoint="+srv.URL())
	if err != nil {
		b.Fatal(err)
	}
	compacted(b, st, total, 16<<10)
	m, err := state.Open(context.Background(), st, nil)
	if err != nil {
		b.Fatal(err)
	}
	newest, err := m.Newest(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("reader", func(b *testing.B) {
		b.SetBytes(total)
		defer cpu(b, total)()
		for b.Loop() {
			catchUp(b, st, total)
		}
	})
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(total)
		defer cpu(b, total)()
		for b.Loop() {
			g, ctx := errgroup.WithContext(context.Background())
			g.SetLimit(16)
			for _, seg := range newest.Segments {
				for at := int64(0); at < seg.Size; at += 4 << 20 {
					g.Go(func() error {
						obj, err := st.Get(ctx, seg.Key, &store.GetOptions{Offset: at, Length: min(4<<20, seg.Size-at)})
						if err != nil {
							return err
						}
						defer obj.Body.Close()
						var buf bytes.Buffer
						buf.Grow(4<<20 + bytes.MinRead)
						_, err = io.Copy(&buf, obj.Body)
						return err
					})
				}
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
