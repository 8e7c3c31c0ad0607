package compactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// The numbers of a report are those of what was done.
func TestReport(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(3)
	w.Lead(4)
	var bytes int64
	for _, key := range w.Keys(layout.DataPrefix) {
		bytes += int64(len(w.Body(key)))
	}
	objects := len(w.Keys(layout.DataPrefix)) // 7 of data, 2 seals
	manifests := len(w.Keys(layout.ManifestPrefix))
	w.Put(layout.SegmentKey(layout.Compactor, 3, "00000000-0000-4000-8000-000000000001"), nil)
	own := layout.SegmentKey(layout.Compactor, 4, "00000000-0000-4000-8000-000000000002") // may still be named
	w.Put(own, nil)
	w.Token = 3
	r := w.compact(w.Mem, nil)
	if !w.Has(own) {
		t.Errorf("%s is of this epoch, and gone", own)
	}
	m := w.Newest()
	if r.Folded != uint64(objects) || r.Records != 7 || r.Bytes != bytes || r.Segments != 1 || r.Merged != 0 || r.Floor != m.Floor.Position || r.FloorOffset != 7 {
		t.Errorf("report %+v, the floor is %v", r, m.Floor)
	}
	if r.Pruned["data"] != 7 || len(r.PrunedKeys["data"]) != 7 || r.Pruned["orphan"] != 1 || r.Pruned["manifest"] != manifests+1 {
		t.Errorf("pruned %v of %d manifests", r.Pruned, manifests)
	}
	w.Lead(20)
	r = w.compact(w.Mem, small())
	if r.Folded != 21 || r.Records != 20 || r.Segments != 1 || r.Merged != 2 || r.Pruned["data"] != 20 || r.Pruned["segment"] != 2 || len(r.PrunedKeys["data"]) != 8 {
		t.Errorf("report %+v", r)
	}
	// Nothing is left to do, but for the manifests that this has made; and then
	// nothing is done.
	if _, err := w.once(w.Mem, w.Token, small()); err != nil {
		t.Fatal(err)
	}
	before := w.Keys("")
	if r, err := w.once(w.Mem, w.Token, small()); err != nil || r.Folded+r.Records > 0 || r.Segments+r.Merged+len(r.Pruned) > 0 || r.Floor != w.Newest().Floor.Position {
		t.Errorf("report %+v, %v", r, err)
	}
	if after := w.Keys(""); !slices.Equal(after, before) {
		t.Errorf("a log that has nothing to do has changed from %q to %q", short(before), short(after))
	}
}

// Progress is called as things go on, and what it tells of never grows beyond
// what is reported in the end. The last call tells the result, also of a pass
// that found nothing to do.
func TestProgress(t *testing.T) {
	w := sample(t)
	o := small()
	var last Report
	calls := 0
	o.Hooks.Progress = func(r Report) { last = r; calls++ }
	w.Token++
	r, err := w.once(w.Mem, w.Token, o)
	if err != nil || calls < 10 || last.Folded != r.Folded || last.Merged != r.Merged || fmt.Sprint(last.Pruned) != fmt.Sprint(r.Pruned) ||
		last.Segments != r.Segments || last.Floor != r.Floor {
		t.Errorf("%d calls, the last with %+v; the report is %+v, %v", calls, last, r, err)
	}
	for range 3 { // the first still prunes
		calls = 0
		_, err = w.once(w.Mem, w.Token, o)
	}
	if err != nil || calls != 1 || last.Folded > 0 || last.Floor != r.Floor {
		t.Errorf("with nothing to do: %d calls, the last with %+v, %v", calls, last, err)
	}
}

// A segment is ended when it is full, and so many objects are gone.
func TestSegmentSize(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(40)
	r := w.compact(w.Mem, &Options{Settle: logtest.Quick, SegmentBytes: 100, FanIn: 100, NoCompress: true})
	m := w.Newest()
	if r.Segments < 2 || r.Segments != len(m.Segments) || r.Records != 40 {
		t.Errorf("report %+v, %d segments", r, len(m.Segments))
	}
	for _, s := range m.Segments[:len(m.Segments)-1] {
		if s.Size < 100 {
			t.Errorf("%s has %d bytes", s.Key, s.Size)
		}
	}
	w.holds("at the end")
}

// Segments keep the least and the greatest time of their records through merges,
// also when the writers' clocks go back.
func TestSegmentTimes(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(2)
	w.compact(w.Mem, nil)
	w.Lead(2)
	w.compact(w.Mem, nil)
	w.Publish(func(m *state.Change) error {
		m.Segments[0].To = m.Segments[1].To.Add(time.Hour)
		m.Segments[1].From = m.Segments[0].From.Add(-time.Hour)
		return nil
	})
	segs := w.Newest().Segments
	w.compact(w.Mem, small())
	got := w.Newest().Segments
	if len(got) != 1 || !got[0].From.Equal(segs[1].From) || !got[0].To.Equal(segs[0].To) {
		t.Errorf("merged into %+v", got)
	}
}

// Damage is told with the key, and what to do; nothing is folded beyond it, and
// nothing is deleted for it.
func TestDamage(t *testing.T) {
	empty := func([]byte) []byte { return nil }
	flip := func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	header := func(b []byte) []byte { b[50] ^= 1; return b }
	junk := func([]byte) []byte { return []byte(strings.Repeat("junk", 1000)) }
	for name, harm := range map[string]func([]byte) []byte{"empty": empty, "flipped": flip, "cut": cut, "header": header, "junk": junk} {
		for _, seq := range []uint64{1, 2, 5} { // the last is the seal
			w := newWorld(t, 0, nil)
			w.Lead(4)
			w.Lead(4)
			key := layout.DataKey(logtest.At(1, seq))
			w.Put(key, harm(slices.Clone(w.Body(key))))
			before := w.Keys(layout.DataPrefix)
			w.Token++
			r, err := w.once(w.Mem, w.Token, small())
			if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "`fencepost verify`") {
				t.Errorf("%s, slot %d: %v", name, seq, err)
			}
			if r.Folded+r.Records > 0 || r.Segments > 0 {
				t.Errorf("%s, slot %d: nothing was folded, and the report says %+v", name, seq, r)
			}
			m := w.Newest()
			if logtest.At(1, seq).Before(m.Floor.Position) || !slices.Equal(w.Keys(layout.DataPrefix), before) || len(w.Keys("segment/")) != len(m.Segments) {
				t.Errorf("%s, slot %d: the floor is at %v; left are %q", name, seq, m.Floor.Position, short(w.Keys("")))
			}
		}
	}
}

// An object that is absent, though a leader has noted it as acknowledged, is damage and not the tail:
// nothing is folded up to it.
//
// guard:fold-missing. The hint in a manifest is a point that a leader publishes when all objects before
// it are acknowledged. Without this check: somebody deletes an acknowledged object; a compactor takes
// its slot for the tail, and folds nothing after it; each pass ends without an error, objects pile up,
// and the compactor never reports the loss.
func TestFoldMissing(t *testing.T) {
	for _, seq := range []uint64{1, 3, 5} {
		w := newWorld(t, 0, nil)
		w.Lead(5)
		tail, _ := w.tail()
		u, err := w.State.Updater(layout.Writer, fence.NewToken(w.Epoch))
		if err == nil {
			_, err = u.Update(t.Context(), func(m *state.Change) error { m.Hint = &tail; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		key := layout.DataKey(logtest.At(1, seq))
		w.Remove(key)
		w.Token++
		r, err := w.once(w.Mem, w.Token, nil)
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) || r.Folded > 0 {
			t.Errorf("%s is missing: %+v, %v", key, r, err)
		}
		if m := w.Newest(); m.Floor.Offset != 0 || len(w.Keys(layout.SegmentPrefix)) > 0 || len(w.Keys(layout.DataPrefix)) != 5 {
			t.Errorf("%s is missing: the floor is at %v; left are %q", key, m.Floor, short(w.Keys("")))
		}
	}
}

// A segment that is named and missing, or damaged, is told with its key when it is
// to be merged. The others stay as they are.
func TestDamagedSegment(t *testing.T) {
	for name, harm := range map[string]func(w *world, key string){
		"missing": func(w *world, key string) { w.Remove(key) },
		"cut":     func(w *world, key string) { w.Put(key, w.Body(key)[:100]) },
		"empty":   func(w *world, key string) { w.Put(key, nil) },
		"flipped": func(w *world, key string) { b := slices.Clone(w.Body(key)); b[140] ^= 1; w.Put(key, b) },
		"index":   func(w *world, key string) { b := slices.Clone(w.Body(key)); b[len(b)-90] ^= 1; w.Put(key, b) },
	} {
		w := sample(t)
		segs := w.Newest().Segments
		harm(w, segs[0].Key)
		w.Token++
		r, err := w.once(w.Mem, w.Token, small())
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), segs[0].Key) || !strings.Contains(err.Error(), "`fencepost verify`") {
			t.Errorf("%s: %v", name, err)
		}
		if m := w.Newest(); r.Merged > 0 || !w.Has(segs[1].Key) || m.Segments[0].Key != segs[0].Key {
			t.Errorf("%s: %+v, %q are left", name, r, w.Keys("segment/"))
		}
	}
}

// So too if some of its records were given up.
func TestDamagedSegmentGivenUp(t *testing.T) {
	w := sample(t)
	w.Publish(func(m *state.Change) error { return m.Truncate(1) })
	key := w.Newest().Segments[0].Key
	w.Remove(key)
	w.Token++
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it would go on for ever
	defer cancel()
	_, err := w.withToken(w.Mem, w.Token, small()).Once(ctx)
	if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("the error is %v", err)
	}
}

// An upload that breaks off leaves nothing that counts, at whatever byte.
func TestUploadFails(t *testing.T) {
	for _, keep := range []int{0, 1, 100, 200} {
		w := newWorld(t, 0, nil)
		w.Lead(5)
		w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Upload, Fault: faultstore.Fault{Cut: true, Keep: keep, Err: faultstore.ErrReset}}))
		w.Token++
		r, err := w.once(w.Faulty, w.Token, nil)
		if !errors.Is(err, faultstore.ErrInjected) || r.Folded > 0 || len(w.Keys("segment/")) > 0 {
			t.Errorf("cut after %d bytes: %+v, %v; %q are there", keep, r, err, w.Keys("segment/"))
		}
		w.holds("after the failure")
		if r, err = w.once(w.Faulty, w.Token, nil); err != nil || r.Records != 5 {
			t.Errorf("again: %+v, %v", r, err)
		}
		w.holds("again")
		w.tidy("again")
	}
}

// deaf is a store that gives up on an upload before it has read it.
type deaf struct{ store.Store }

func (deaf) Upload(_ context.Context, key string, _ io.Reader, _ *store.UploadOptions) (store.Info, error) {
	return store.Info{}, &store.Error{Op: "upload", Key: key, Status: 503}
}

func TestUploadTurnedAway(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(2)
	_, err := w.once(deaf{w.Mem}, 1, &Options{Settle: logtest.Quick, SegmentBytes: 1})
	var answer *store.Error
	if !errors.As(err, &answer) || answer.Status != 503 {
		t.Errorf("the error is %v", err)
	}
	w.holds("at the end")
}

// A compactor that is stopped at any request ends soon; see also the bubbles in
// run_test.go.
func TestCancelled(t *testing.T) {
	for n := 1; ; n++ {
		w := sample(t)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var reached atomic.Bool
		w.watch(func(_ context.Context, op faultstore.Op) {
			if op.ClientN == n {
				reached.Store(true)
				cancel(cause)
			}
		})
		w.Token++
		_, err := w.withToken(w.Faulty, w.Token, small()).Once(ctx)
		if !reached.Load() {
			cancel(nil)
			return
		}
		if err != nil && !errors.Is(err, cause) {
			t.Errorf("stopped at request %d: %v", n, err)
		}
		w.holds(fmt.Sprint("stopped at request ", n))
	}
}

// What a compactor does with appends that have a cursor and no record.
func TestCursorsOnly(t *testing.T) {
	w := newWorld(t, 0, nil)
	wr := w.Open(nil)
	if _, err := wr.Append(t.Context(), nil, writer.Cursor([]byte("somewhere"))); err != nil {
		t.Fatal(err)
	}
	w.Close(wr)
	r := w.compact(w.Mem, nil)
	m := w.Newest()
	if r.Folded != 2 || r.Records != 0 || r.Segments != 0 || len(m.Segments) != 0 || string(m.Floor.Cursor) != "somewhere" {
		t.Errorf("report %+v, floor %+v", r, m.Floor)
	}
	wr = w.Open(nil)
	if got := wr.Recovered(); string(got.Cursor) != "somewhere" || got.Offset != 0 {
		t.Errorf("recovered %+v", got)
	}
	w.Append(wr, "first")
	w.Close(wr)
	w.holds("at the end")
}

// enough is a matter of requests, not of clocks: neither the writer's nor this
// machine's time of day counts.
func TestEnough(t *testing.T) {
	h := &hands{wrong: -time.Hour}
	w := newWorld(t, 0, nil)
	p := w.pass(w.Faulty, 1, &Options{Settle: logtest.Quick, Clock: h, MinObjects: 4, MaxAge: time.Minute})
	ask := func(want bool, cost int) {
		t.Helper()
		m := w.Newest()
		w.Faulty.ResetCounts()
		got, err := p.enough(t.Context(), m, 4)
		if n := w.Faulty.Counts().Of("", ""); err != nil || got != want || n > cost {
			t.Errorf("%d objects, %v: enough is %v, %v, for %d requests", len(w.Keys(layout.DataPrefix)), h.now, got, err, n)
		}
	}
	ask(false, 1) // nothing at all
	wr := w.Open(nil)
	ask(false, 2) // the writer's seal
	h.advance(59 * time.Second)
	ask(false, 2)
	h.advance(time.Second)
	ask(true, 1)
	if _, more, err := p.fold(t.Context(), w.Newest(), 1); err != nil || more {
		t.Fatal(more, err)
	}
	ask(false, 1)
	for range 3 {
		w.Append(wr, "x")
	}
	ask(false, 2) // its time begins anew
	w.Append(wr, "x")
	ask(true, 2)
	w.Close(wr)
}

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
