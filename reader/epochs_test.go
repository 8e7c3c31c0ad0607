package reader_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// epochs appends leaderships with so many records each, without their manifests.
// epochsOf fills each record up with so many bytes, which are not in the history.
func epochsOf(w *world, size int, lengths ...int) {
	w.Helper()
	padding := strings.Repeat("x", size)
	at := frame.Start()
	for _, n := range lengths {
		w.Epoch++
		h := w.Header(at)
		w.Put(layout.DataKey(at.Position), frame.EncodeSeal(&h, w.Epoch))
		at = at.After(&h, nil)
		for j := range n {
			var b frame.Builder
			value := fmt.Sprintf("%d/%d", w.Epoch, j)
			b.Add([]byte(value + padding))
			h := w.Header(at)
			w.Put(layout.DataKey(at.Position), slices.Clone(b.Finish(&h, frame.Plain)))
			at = at.After(&h, nil)
			w.Appended(value)
		}
	}
}

// TestManyEpochs: a log of a thousand short leaderships that nobody has compacted is read with
// hardly more requests than it has objects. Seals share the readings of the manifest.
func TestManyEpochs(t *testing.T) {
	short := make([]int, 1020)
	many := make([]int, 20_000)
	mixed := make([]int, 400)
	for i := range short {
		short[i] = 1
	}
	for i := range many {
		many[i] = 1
	}
	for i := range mixed {
		mixed[i] = 20 + i%7
	}
	// What a reader holds back until a reading of the manifest confirms it is bounded by its Prefetch,
	// which is 64 MiB by default: see docs/costs.md.
	const held = 64 << 20
	for name, tt := range map[string]struct {
		lengths  []int
		size     int
		prefetch int
	}{
		"one record each": {short, 0, held}, "twenty times as many": {many, 0, held}, "some twenty": {mixed, 0, held},
		"1 MiB": {short[:200], 1 << 20, held}, "4 MiB": {short[:80], 4 << 20, held},
		"a small Prefetch": {short[:200], 16 << 10, 256 << 10}, "a larger one": {short[:200], 16 << 10, 4 << 20},
		// Each holds more than Prefetch, and only what comes before the first reading after its seal
		// is in doubt.
		"long epochs": {[]int{100, 100, 100, 100, 100}, 16 << 10, 256 << 10},
	} {
		if !test.Whole() && (len(tt.lengths) == len(many) || tt.size > 64<<10) { // the others have it all
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := worldOf(logtest.New(t, logtest.Format(), &memstore.Options{Clock: clock.Go()}))
			epochsOf(w, tt.size, tt.lengths...)
			objects := len(w.Keys(layout.DataPrefix))
			r := w.reader(&reader.Options{Prefetch: int64(tt.prefetch)})
			w.Faulty.ResetCounts()
			var values []string
			var err error
			for rec, rerr := range r.Read(t.Context(), 0) {
				if err = rerr; err != nil {
					break
				}
				if want := uint64(len(values)); rec.Offset != want {
					t.Fatalf("offset %d, want %d", rec.Offset, want)
				}
				values = append(values, string(bytes.TrimRight(rec.Value, "x")))
			}
			if err != nil || !slices.Equal(values, w.History()) {
				t.Fatalf("%d records of %d, %v", len(values), len(w.History()), err)
			}
			counts := w.Faulty.Counts()
			all, lists := counts.Of("", ""), counts.Of(faultstore.List, "")
			t.Logf("%d objects: %d requests, %d of them LISTs", objects, all, lists)
			// A few void requests are free: see chain.Source.Thrifty.
			if len(tt.lengths) >= 80 && float64(all) > 1.1*float64(objects) {
				t.Errorf("%d requests for %d objects", all, objects)
			}
			// The first, one for 1, 16, 256 and 4,096 objects and the rest, and two at the tail. No more than
			// one for each seal is in the middle.
			if want := min(8+len(w.History())*tt.size/tt.prefetch, 2+len(tt.lengths)); lists > want {
				t.Errorf("%d LISTs, want at most %d", lists, want)
			}
		})
	}
}

// TestManyEpochsTakeTime: where requests take time, a reader asks for slots before it knows
// whether the epoch has them. It wastes hardly any request on slots after a seal, whether the
// epochs are equal or not. Where they are equal it hardly waits. Void objects and late answers
// change that little.
func TestManyEpochsTakeTime(t *testing.T) {
	const latency = 20 * time.Millisecond
	epochs := test.Of(100, 200)
	constant := func(*rand.Rand) time.Duration { return latency }
	jitter := func(random *rand.Rand) time.Duration {
		d := time.Duration(random.ExpFloat64() * float64(latency))
		if random.IntN(100) == 0 {
			d += 150 * time.Millisecond
		}
		return d
	}
	for name, tt := range map[string]struct {
		length func(*rand.Rand) int
		rounds float64 // of requests, for each epoch
		void   int     // objects after each seal, of the deposed leader
		time   func(*rand.Rand) time.Duration
	}{
		"20 records":             {func(*rand.Rand) int { return 20 }, 1.5, 0, constant},
		"100 records":            {func(*rand.Rand) int { return 100 }, 3, 0, constant},
		"200 records":            {func(*rand.Rand) int { return 200 }, 6, 0, constant},
		"1 to 100 records":       {func(random *rand.Rand) int { return 1 + random.IntN(100) }, 15, 0, constant},
		"some 100 records":       {func(random *rand.Rand) int { return int(100 * random.ExpFloat64()) }, 15, 0, constant},
		"100 records, some 10":   {func(random *rand.Rand) int { return 10 + 90*random.IntN(2) }, 10, 0, constant},
		"300 records, void ones": {func(*rand.Rand) int { return 300 }, 15, 64, jitter},
		"some 100, void ones":    {func(random *rand.Rand) int { return int(100 * random.ExpFloat64()) }, 20, 64, jitter},
	} {
		if !test.Whole() && tt.void == 0 && len(name)%3 > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			lengths, random := make([]int, epochs), rand.New(rand.NewPCG(1, 2))
			for i := range lengths {
				lengths[i] = tt.length(random)
			}
			logtest.Bubble(t, logtest.Format(), func(t *testing.T, l *logtest.Log) {
				w := worldOf(l)
				epochsOf(w, 0, lengths...)
				for e, n := range lengths[:epochs-1] {
					at := fence.Position{Epoch: fence.Epoch(e + 1), Seq: uint64(n) + 2}
					for range tt.void {
						w.Put(layout.DataKey(at), []byte("void"))
						at.Seq++
					}
				}
				objects := len(w.Keys(layout.DataPrefix)) // void ones included
				r := w.reader(nil)
				w.Faulty.ResetCounts()
				var mu sync.Mutex
				w.Faulty.SetBefore(func(context.Context, faultstore.Op) {
					mu.Lock()
					d := tt.time(random)
					mu.Unlock()
					time.Sleep(d)
				})
				began := time.Now()
				values, err := w.read(r, 0)
				if err != nil || !slices.Equal(values, w.History()) {
					t.Fatalf("%d records of %d, %v", len(values), len(w.History()), err)
				}
				rounds := float64(time.Since(began)) / float64(latency) / float64(epochs)
				all := w.Faulty.Counts().Of("", "")
				t.Logf("%d objects: %d requests, %.2f times, %.1f rounds for each epoch", objects, all, float64(all)/float64(objects), rounds)
				if float64(all) > 1.1*float64(objects) {
					t.Errorf("%d requests for %d objects", all, objects)
				}
				if rounds > tt.rounds {
					t.Errorf("an epoch takes %.1f rounds of requests", rounds)
				}
			})
		})
	}
}
