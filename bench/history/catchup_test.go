package history

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// compacted fills a store with a log of total bytes in segments of 64 MiB.
func compacted(t *testing.T, st store.Store, total, record int) {
	t.Helper()
	j := newJournal(t, st, -1)
	noise := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	j.lead()
	for at := 0; at < total; {
		var records [][]byte
		for range max(1, 1<<20/record) {
			from := at * 31 % (len(noise) - record)
			records = append(records, noise[from:from+record])
			at += record
		}
		j.commit(frame.Plain, records...)
	}
	j.done()
	once(t, st, &compactor.Options{SegmentBytes: 64 << 20})
}

// catchUp reads a log of total bytes from its beginning.
func catchUp(t *testing.T, st store.Store, total int) {
	t.Helper()
	r, err := reader.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rec, err := range r.Read(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(rec.Value)
	}
	if n < total {
		t.Fatalf("read %d bytes, want at least %d", n, total)
	}
}

// plainGets reads the same segments, 16 ranges of 4 MiB at once. No reader can be faster.
func plainGets(t *testing.T, st store.Store, all []state.Segment) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for _, seg := range all {
		for at := int64(0); at < seg.Size; at += 4 << 20 {
			g.Go(func() error {
				_, err := plainGet(ctx, st, seg.Key, at, min(4<<20, seg.Size-at))
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// getsInOrder does the least that any correct reader does: it reads the same ranges, 16 at once,
// and computes the checksum of each. It takes them in order. At most 16 more wait for their turn.
func getsInOrder(t *testing.T, st store.Store, all []state.Segment) {
	t.Helper()
	ctx := t.Context()
	type part struct {
		n   int64
		sum uint32
		err error
	}
	turns, slots := make(chan chan part, 32), make(chan struct{}, 16)
	go func() {
		defer close(turns)
		for _, seg := range all {
			for at := int64(0); at < seg.Size; at += 4 << 20 {
				turn, length := make(chan part, 1), min(4<<20, seg.Size-at)
				turns <- turn
				slots <- struct{}{}
				go func() {
					body, err := plainGet(ctx, st, seg.Key, at, length)
					turn <- part{int64(len(body)), crc32.Checksum(body, castagnoli), err}
					<-slots
				}()
			}
		}
	}()
	var n, total int64
	for turn := range turns {
		p := <-turn
		if p.err != nil {
			t.Fatal(p.err)
		}
		n += p.n
	}
	for _, seg := range all {
		total += seg.Size
	}
	if n != total {
		t.Fatalf("read %d bytes of %d", n, total)
	}
}

func plainGet(ctx context.Context, st store.Store, key string, at, length int64) ([]byte, error) {
	obj, err := st.Get(ctx, key, &store.GetOptions{Offset: at, Length: length})
	if err != nil {
		return nil, err
	}
	defer obj.Body.Close()
	var buf bytes.Buffer
	buf.Grow(int(length) + bytes.MinRead)
	_, err = io.Copy(&buf, obj.Body)
	return buf.Bytes(), err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A reader that catches up takes about as long as plain requests for the same bytes. From
// memory it reads a gigabyte a second.
func TestCatchUp(t *testing.T) {
	total, rounds := 8<<20, 1
	if inFull() {
		total, rounds = 256<<20, 6
	}
	for _, record := range []int{100, 1 << 10, 64 << 10} {
		st := memstore.New(nil)
		compacted(t, st, total, record)
		var best time.Duration
		for range rounds {
			runtime.GC()
			began := time.Now()
			catchUp(t, st, total)
			best = least(best, time.Since(began))
		}
		if inFull() {
			add(t, Row{Name: fmt.Sprintf("catch-up reading from memory, records of %s bytes: MB a second", result.Number(float64(record))), Value: float64(total) / 1e6 / best.Seconds(), Goal: 1000, More: true})
		}
	}
	// Enough bytes that the few sequential requests of opening do not matter.
	if inFull() {
		total *= 4
	}
	st, _ := serve(t).folder(t)
	compacted(t, st, total, 16<<10)
	l, err := state.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Newest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var theirs, least, ours spent
	nothing := func() {}
	took, err := result.Times(2*rounds,
		ours.arm(func() { catchUp(t, st, total) }, nothing),
		theirs.arm(func() { plainGets(t, st, m.Segments) }, nothing),
		least.arm(func() { getsInOrder(t, st, m.Segments) }, nothing))
	if err != nil {
		t.Fatal(err)
	}
	if inFull() {
		per := func(d time.Duration) float64 { return float64(d) / float64(total) }
		correct, plain, bound := result.Speed(took[0], took[2]), result.Speed(took[0], took[1]), result.Speed(took[2], took[1])
		add(t, Row{Name: "catch-up reading from a loopback server, beside GETs that are checked and taken in order, the least that a correct reader does", Value: correct.Median, Goal: 0.9, More: true, Ratio: true,
			Note: fmt.Sprintf("%s; at best %.0f MiB/s against %.0f; %.2f ns of CPU a byte against %.2f", correct.Note, mib(int64(total))/ours.took.Seconds(), mib(int64(total))/least.took.Seconds(), per(ours.cpu), per(least.cpu))},
			Row{Name: "catch-up reading from a loopback server, beside plain GETs", Value: plain.Median, More: true, Ratio: true,
				Note: fmt.Sprintf("%s; the GETs that are checked and taken in order: %s (%s); plain %.0f MiB/s at best, %.2f ns of CPU a byte", plain.Note, result.Number(bound.Median), bound.Note, mib(int64(total))/theirs.took.Seconds(), per(theirs.cpu))})
	}
}
