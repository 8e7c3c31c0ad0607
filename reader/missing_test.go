package reader_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/reader"
)

// guard:read-missing. An object that was acknowledged and is not there is damage.
// Taken for the tail, it would make a log look shorter than it is, and nobody would
// know; a follower would wait there for ever.
func TestMissingObjectIsNotTheTail(t *testing.T) {
	base := newWorld(t, 0)
	base.lead(5)
	key := layout.DataKey(at(1, 3))
	base.remove(key)
	told := func(who string, n int, err error) {
		t.Helper()
		if !errors.Is(err, reader.ErrCorrupt) || !strings.Contains(err.Error(), key+" is missing") || !strings.Contains(err.Error(), "`fencepost verify`") {
			t.Errorf("%s: the error is %v", who, err)
		}
		if n != 2 {
			t.Errorf("%s: %d records before the missing object, want 2", who, n)
		}
	}
	inBubbleFork(t, base, func(w *world) {
		values, err := w.read(w.reader(nil), 0)
		told("read", len(values), err)

		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		n := 0
		for _, err = range w.reader(nil).Tail(ctx, 0) {
			if err == nil {
				n++
			}
		}
		told("tail", n, err)

		c, err := compactor.New(w.mem, &compactor.Options{Token: fence.NewToken(1), Settle: quick})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Once(context.Background())
		told("compact", 2, err)
	})
}

// A segment is lost that the search for a moment has to look into: that is damage, not a
// log that is compacted all the time.
func TestMomentInALostSegment(t *testing.T) {
	inTable(t, 0, func(w *table) {
		for range 10 {
			w.record(1)
			time.Sleep(time.Second)
		}
		when := w.now().time.Add(-5 * time.Second)
		w.compact(8)
		for _, s := range w.newest().Segments {
			w.remove(s.Key)
		}
		_, err := w.snapshot(w.reader(nil), &reader.SnapshotOptions{At: reader.AtTime(when)})
		if !errors.Is(err, reader.ErrCorrupt) {
			t.Errorf("a snapshot: %v", err)
		}
		if _, err := w.reader(nil).After(context.Background(), when); !errors.Is(err, reader.ErrCorrupt) {
			t.Errorf("an offset: %v", err)
		}
	})
}
