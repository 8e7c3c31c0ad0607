package chain

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
)

var (
	testLog = fence.ID{1, 2, 3}
	quick   = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 100}
)

// log builds a chain in a store.
type log struct {
	t     testing.TB
	st    store.Store
	at    frame.Point
	nonce byte
	keys  []string
}

func newLog(t testing.TB, st store.Store) *log { return &log{t: t, st: st, at: frame.Start()} }

func (l *log) header() frame.Header {
	l.nonce++
	return frame.Header{Log: testLog, Nonce: fence.ID{l.nonce}, Position: l.at.Position, Offset: l.at.Offset, Prev: l.at.Prev, Time: time.Unix(1, 0)}
}

func (l *log) put(b []byte, h *frame.Header) {
	l.t.Helper()
	l.keys = append(l.keys, layout.DataKey(l.at.Position))
	if _, err := l.st.Put(context.Background(), layout.DataKey(l.at.Position), b, nil); err != nil {
		l.t.Fatal(err)
	}
	l.at = l.at.After(h, nil)
}

func (l *log) seal(next fence.Epoch) *log {
	l.t.Helper()
	h := l.header()
	l.put(frame.EncodeSeal(&h, next), &h)
	return l
}

// data appends an object with one record of each length.
func (l *log) data(lengths ...int) *log {
	l.t.Helper()
	h := l.header()
	var b frame.Builder
	for i, n := range lengths {
		b.Add(fixture.Filled(h.Offset+uint64(i), n))
	}
	l.put(bytes.Clone(b.Finish(&h, frame.Plain)), &h)
	return l
}

func source(st store.Store) *Source {
	return &Source{Store: st, Log: testLog, Limits: fence.DefaultLimits(), Settle: quick}
}

// collect walks to the end and checks each step against the one before.
func collect(t *testing.T, s *Source, from frame.Point) (keys []string, records int, end frame.Point, err error) {
	t.Helper()
	at := from
	for step, werr := range s.Walk(t.Context(), from) {
		if !step.From.Equal(at) {
			t.Errorf("a step from %+v after one to %+v", step.From, at)
		}
		if werr != nil {
			if !step.To.Equal(step.From) || step.Frame != nil && !errors.Is(werr, fence.ErrCorrupt) {
				t.Errorf("a failed step: %+v", step)
			}
			return keys, records, at, werr
		}
		if step.Frame.Position != step.From.Position || step.Size < frame.HeaderSize {
			t.Errorf("%+v", step)
		}
		keys = append(keys, layout.DataKey(step.From.Position))
		for off, rec := range step.Frame.All() {
			if off != from.Offset+uint64(records) || !bytes.Equal(rec, fixture.Filled(off, len(rec))) {
				t.Errorf("record %d is another", off)
			}
			records++
		}
		at = step.To
	}
	return keys, records, at, nil
}
