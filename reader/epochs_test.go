package reader_test

import (
	"fmt"
	"slices"
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
func epochs(w *world, lengths ...int) {
	w.Helper()
	at := frame.Start()
	for _, n := range lengths {
		w.Epoch++
		h := w.Header(at)
		w.Put(layout.DataKey(at.Position), frame.EncodeSeal(&h, fence.Epoch(w.Epoch)))
		at = at.After(&h, nil)
		for j := range n {
			var b frame.Builder
			value := fmt.Sprintf("%d/%d", w.Epoch, j)
			b.Add([]byte(value))
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
	for name, tt := range map[string]struct{ lengths []int }{"one record each": {short}, "twenty times as many": {many}, "some twenty": {mixed}} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(logtest.New(t, logtest.Format(), &memstore.Options{Clock: clock.Go()}))
			epochs(w, tt.lengths...)
			objects := len(w.Keys(layout.DataPrefix))
			r := w.reader(&reader.Options{})
			w.Faulty.ResetCounts()
			values, err := w.read(r, 0)
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
			if lists > 8 {
				t.Errorf("%d LISTs, want at most 8 for any number of objects", lists)
			}
		})
	}
}
