package compactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
)

// large appends an object of some records that make a block of their own, and a cursor.
func (w *world) large(codec frame.Codec, cursor string) {
	w.Helper()
	var b frame.Builder
	for range 7 {
		rec := strings.Repeat(fmt.Sprintf("record %d of many; ", len(w.want)), 5000)
		b.Add([]byte(rec))
		w.want = append(w.want, rec)
	}
	if cursor != "" {
		b.SetCursor([]byte(cursor))
	}
	p, _ := w.tail()
	h := frame.Header{Log: w.log.Format().Log, Nonce: fence.ID(uuid.New()), Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}
	if b.Size() < segment.BlockSize/2 || b.Size() > segment.BlockSize {
		w.Fatalf("%d bytes", b.Size())
	}
	w.put(layout.DataKey(p.Position), slices.Clone(b.Finish(&h, codec)))
}

// Large objects go into segments as they are stored, or are stored anew, among small
// ones; the records, cursors and offsets are the same, and damage is told.
func TestFoldsAsStored(t *testing.T) {
	for _, codec := range []frame.Codec{frame.Plain, frame.Zstd} {
		for _, o := range []*Options{{Settle: quick}, {Settle: quick, NoCompress: true}} {
			w := newWorld(t, 0, nil)
			w.lead(2)
			for i := range 3 {
				w.large(codec, fmt.Sprint("cursor ", i))
				w.large(codec, "")
				if i == 1 {
					w.lead(1)
				}
			}
			w.holds("before")
			harmed := w.fork(t)
			tail, _ := w.tail()
			w.compact(w.mem, o)
			w.holds("folded")
			if got := w.newest().Floor; !got.Equal(tail) || string(got.Cursor) != "cursor 2" {
				t.Errorf("the floor is at %+v, want %+v", got, tail)
			}
			seg := w.newest().Segments[0]
			src := segment.Source{Store: w.mem, Log: w.log.Format().Log, Limits: fence.DefaultLimits(), Settle: quick}
			ref := segment.Ref{Key: seg.Key, First: seg.First, End: seg.End, Size: seg.Size, Index: seg.Index}
			for f, err := range src.Frames(context.Background(), ref, 0) {
				if err != nil || f.HasCursor || f.PayloadLen() > 1000 && o.NoCompress == (f.Codec == frame.Zstd) {
					t.Errorf("a block of %d bytes, codec %v, %v", f.PayloadLen(), f.Codec, err)
				}
			}
			key := layout.DataKey(at(1, 4))
			body := bytes.Clone(harmed.body(key))
			body[frame.HeaderSize+100] ^= 1
			harmed.put(key, body)
			harmed.token++
			if _, err := harmed.once(harmed.mem, harmed.token, o); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
				t.Errorf("the error is %v", err)
			}
		}
	}
}
