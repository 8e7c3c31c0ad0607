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
	"github.com/fencepost/fencepost/internal/testkit/logtest"
)

// large appends an object of some records that make a block of their own, and a cursor.
func (w *world) large(codec frame.Codec, cursor string) {
	w.Helper()
	var b frame.Builder
	for range 7 {
		rec := strings.Repeat(fmt.Sprintf("record %d of many; ", len(w.History())), 5000)
		b.Add([]byte(rec))
		w.Appended(rec)
	}
	if cursor != "" {
		b.SetCursor([]byte(cursor))
	}
	p, _ := w.tail()
	h := frame.Header{Log: w.Format.Log, Nonce: fence.ID(uuid.New()), Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}
	if b.Size() < segment.BlockSize/2 || b.Size() > segment.BlockSize {
		w.Fatalf("%d bytes", b.Size())
	}
	w.Put(layout.DataKey(p.Position), slices.Clone(b.Finish(&h, codec)))
}

// Large objects go into segments as they are stored, or are stored anew, among small
// ones; the records, cursors and offsets are the same, and damage is told.
func TestFoldsAsStored(t *testing.T) {
	for _, codec := range []frame.Codec{frame.Plain, frame.Zstd} {
		for _, o := range []*Options{{Settle: logtest.Quick}, {Settle: logtest.Quick, NoCompress: true}} {
			w := newWorld(t, 0, nil)
			w.Lead(2)
			for i := range 3 {
				w.large(codec, fmt.Sprint("cursor ", i))
				w.large(codec, "")
				if i == 1 {
					w.Lead(1)
				}
			}
			w.holds("before")
			harmed := w.fork(t)
			tail, _ := w.tail()
			w.compact(w.Mem, o)
			w.holds("folded")
			if got := w.Newest().Floor; !got.Equal(tail) || string(got.Cursor) != "cursor 2" {
				t.Errorf("the floor is at %+v, want %+v", got, tail)
			}
			seg := w.Newest().Segments[0]
			src := segment.Source{Store: w.Mem, Log: w.Format.Log, Limits: fence.DefaultLimits(), Settle: logtest.Quick}
			ref := segment.Ref{Key: seg.Key, First: seg.First, End: seg.End, Size: seg.Size, Index: seg.Index}
			for f, err := range src.Frames(context.Background(), ref, 0) {
				if err != nil || f.HasCursor || f.PayloadLen() > 1000 && o.NoCompress == (f.Codec == frame.Zstd) {
					t.Errorf("a block of %d bytes, codec %v, %v", f.PayloadLen(), f.Codec, err)
				}
			}
			key := layout.DataKey(logtest.At(1, 4))
			body := bytes.Clone(harmed.Body(key))
			body[frame.HeaderSize+100] ^= 1
			harmed.Put(key, body)
			harmed.Token++
			if _, err := harmed.once(harmed.Mem, harmed.Token, o); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
				t.Errorf("the error is %v", err)
			}
		}
	}
}
