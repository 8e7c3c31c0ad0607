package reader_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
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
		w.Put(layout.DataKey(at.Position), frame.EncodeSeal(&h, fence.Epoch(w.Epoch)))
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
	// which is 64 MiB: see docs/costs.md.
	const held = 64 << 20
	for name, tt := range map[string]struct {
		lengths []int
		size    int
	}{
		"one record each": {short, 0}, "twenty times as many": {many, 0}, "some twenty": {mixed, 0},
		"1 MiB": {short[:200], 1 << 20}, "4 MiB": {short[:80], 4 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(logtest.New(t, logtest.Format(), &memstore.Options{Clock: clock.Go()}))
			epochsOf(w, tt.size, tt.lengths...)
			objects := len(w.Keys(layout.DataPrefix))
			r := w.reader(&reader.Options{})
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
			if float64(all) > 1.1*float64(objects) {
				t.Errorf("%d requests for %d objects", all, objects)
			}
			// The first, one for 1, 16, 256 and 4,096 objects and the rest, and two at the tail.
			if want := 8 + len(w.History())*tt.size/held; lists > want {
				t.Errorf("%d LISTs, want at most %d", lists, want)
			}
		})
	}
}
