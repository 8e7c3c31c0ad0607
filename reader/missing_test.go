package reader_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/testkit/logtest"

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
	base.Lead(5)
	key := layout.DataKey(logtest.At(1, 3))
	base.Remove(key)
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

		c, err := compactor.New(w.Mem, &compactor.Options{Token: fence.NewToken(1), Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Once(context.Background())
		told("compact", 2, err)
	})
}

// After has to read a segment that is lost: that is damage, not a log that is compacted all
// the time.
func TestAfterInALostSegment(t *testing.T) {
	inTable(t, 0, func(w *table) {
		for range 10 {
			w.record(1)
			time.Sleep(time.Second)
		}
		when := w.now().time.Add(-5 * time.Second)
		w.compact(8)
		for _, s := range w.Newest().Segments {
			w.Remove(s.Key)
		}
		if _, err := w.reader(nil).After(context.Background(), when); !errors.Is(err, reader.ErrCorrupt) {
			t.Error(err)
		}
	})
}
