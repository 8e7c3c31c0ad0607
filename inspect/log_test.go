package inspect_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

func newLog(t *testing.T) *memstore.Store { return logtest.New(t, logtest.Format(), nil).Mem }

// lead is a leadership that appends records, each in an object of its own, with a
// cursor.
func lead(t *testing.T, st store.Store, epoch fence.Epoch, cursor string, records ...string) {
	t.Helper()
	w, err := writer.Open(t.Context(), st, fence.NewToken(epoch), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if _, err := w.Append(t.Context(), [][]byte{[]byte(r)}, writer.Cursor([]byte(cursor))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func compact(t *testing.T, st store.Store, epoch fence.Epoch) {
	t.Helper()
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(epoch)})
	if err == nil {
		_, err = c.Once(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// look looks at a log, and at the first object after the floor that is no seal: zero if there is none.
func look(t *testing.T, st store.Store, before *inspect.Look) (k *inspect.Look, first inspect.Header, err error) {
	t.Helper()
	l, err := inspect.Open(t.Context(), st, nil)
	if err == nil {
		k, err = l.Look(t.Context(), before)
	}
	if err != nil {
		return nil, first, err
	}
	for h, err := range l.Unfolded(t.Context(), &k.State) {
		if err != nil || !h.Seal {
			return k, h, err
		}
	}
	return k, first, nil
}

func take(t *testing.T, st store.Store) *inspect.Look {
	t.Helper()
	k, _, err := look(t, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestLookBefore: a look reads what came after the look before, and the last object again. It sees all the same what a
// look from the last checkpoint sees.
func TestLookBefore(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	st := l.Mem
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	reads := map[string]bool{}
	var mu sync.Mutex
	f := faultstore.New(st, nil)
	f.SetHook(func(op faultstore.Op) faultstore.Fault {
		if op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.DataPrefix) && l.Has(op.Key) {
			mu.Lock()
			reads[op.Key] = true
			mu.Unlock()
		}
		return faultstore.Fault{}
	})
	log, err := inspect.Open(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	var before *inspect.Look
	look := func(what string, most int) {
		t.Helper()
		mu.Lock()
		clear(reads)
		mu.Unlock()
		k, err := log.Look(t.Context(), before)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if want := take(t, st); k.Tail != want.Tail || k.End != want.End || string(k.Cursor) != string(want.Cursor) || k.LastAt.IsZero() {
			t.Errorf("%s: %+v, not %+v", what, k, want)
		}
		before = k
		mu.Lock()
		defer mu.Unlock()
		if len(reads) > most {
			t.Errorf("%s: %d objects were read: %v", what, len(reads), reads)
		}
	}
	add := func(n int) {
		t.Helper()
		for range n {
			if _, err := w.Append(t.Context(), [][]byte{[]byte("a")}, writer.Cursor([]byte("at"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(20)
	look("the first", 21)
	look("nothing new", 1)
	add(3)
	look("three more", 4)
	tail := take(t, st).Tail
	l.Remove(layout.DataKey(logtest.At(1, tail.Seq-1)), layout.DataKey(logtest.At(1, tail.Seq-2)))
	look("an older copy of the log", 22)
	l.Remove(layout.DataKey(logtest.At(1, tail.Seq-3)))
	l.Put(layout.DataKey(logtest.At(1, tail.Seq-3)), []byte("another object"))
	if _, err := log.Look(t.Context(), before); !errors.Is(err, fence.ErrCorrupt) {
		t.Errorf("damage: %v", err)
	}
	l.Remove(layout.DataKey(logtest.At(1, tail.Seq-3)))
	look("an older one still", 22)
	lead(t, st, 2, "", "b")
	look("another leader", 4)
	compact(t, st, 1)
	look("compacted", 1)
	lead(t, st, 3, "x", "c")
	look("and again", 3)
}

// TestCheckpointMeanwhile: a checkpoint that comes after the walk may have more records than the walk has seen.
func TestCheckpointMeanwhile(t *testing.T) {
	st := newLog(t)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), [][]byte{[]byte("a")}); err != nil {
		t.Fatal(err)
	}
	f := faultstore.New(st, nil)
	lists := 0
	met := f.BeforeFirst(func(op faultstore.Op) bool {
		if op.Kind == faultstore.List && op.Key == layout.ManifestPrefix {
			lists++
		}
		return lists == 2
	}, func(ctx context.Context) {
		if _, err := w.Append(ctx, [][]byte{[]byte("b")}); err != nil {
			t.Error(err)
		}
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	l, _, err := look(t, f, nil)
	if err != nil || !met() || l.NotedOffset > l.End {
		t.Errorf("%t, %v: %+v", met(), err, l)
	}
}

// TestLostAtFloor: the object at the floor is missing, and a checkpoint says that there were more. That is no
// object that was pruned meanwhile.
func TestLostAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a")
	compact(t, st, 1)
	lead(t, st, 2, "", "b", "c", "d")
	s := take(t, st)
	if !s.Floor.Before(s.Noted) {
		t.Fatalf("no checkpoint after the floor: %+v", s.State)
	}
	for _, at := range []fence.Position{{Epoch: 2, Seq: 1}, s.Floor} { // the second is the seal before the first
		if err := st.Delete(t.Context(), layout.DataKey(at)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := look(t, st, nil); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), layout.DataKey(at)) {
			t.Errorf("%v is lost: %v", at, err)
		}
	}
}

// TestAppendedAtFloor: all is compacted, and the next leader's first object and checkpoint come after the look at the
// floor. Nothing is lost.
func TestAppendedAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a", "b")
	compact(t, st, 1)
	floor, looked := layout.DataKey(take(t, st).Floor), false
	f := faultstore.New(st, nil)
	met := f.BeforeFirst(func(op faultstore.Op) bool {
		looked = looked || op.Key == floor
		return looked && op.Key == layout.ManifestPrefix
	}, func(context.Context) { lead(t, st, 2, "", "c", "d") })
	if _, _, err := look(t, f, nil); err != nil || !met() {
		t.Errorf("%t, %v", met(), err)
	}
}

// TestPrunedAtFloor: the object at the floor is folded and pruned after the walk.
func TestPrunedAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a", "b")
	floor := layout.DataKey(take(t, st).Floor)
	f := faultstore.New(st, nil)
	met := f.BeforeFirst(func(op faultstore.Op) bool { return op.Key == floor }, func(ctx context.Context) {
		compact(t, st, 1)
		if err := st.Delete(ctx, floor); err != nil {
			t.Error(err)
		}
	})
	if _, h, err := look(t, f, nil); err != nil || !met() || h != (inspect.Header{}) {
		t.Errorf("%t, %v: %+v", met(), err, h)
	}
}

// TestDamagedAtFloor: the error names the object.
func TestDamagedAtFloor(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a", "b")
	floor := layout.DataKey(take(t, st).Floor)
	fixture.Put(t, st, floor, []byte("junk"))
	if _, _, err := look(t, st, nil); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), floor) {
		t.Error(err)
	}
}

// The floor moves past what was just read: the end is looked for again.
func TestOvertaken(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a")
	f := faultstore.New(st, nil)
	met := f.BeforeFirst(func(op faultstore.Op) bool {
		_, ok := layout.ParseDataKey(op.Key)
		return ok
	}, func(context.Context) {
		lead(t, st, 2, "", "b", "c")
		compact(t, st, 1)
	})
	if s := take(t, f); !met() || s.End != 3 || s.Tail.Epoch != 2 {
		t.Errorf("%+v", s)
	}
}

// A compactor folds the edits after the floor and prunes them, while they are looked at. A zombie writes
// into the hole. That is no damage.
func TestUnfoldedOvertaken(t *testing.T) {
	st := newLog(t)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.CommitFiles(t.Context(), manifest.Edit{Properties: map[string]string{"schema": "2"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k, h, err := look(t, st, nil); err != nil || k.End != 0 || !h.Edit || h.Age == 0 {
		t.Errorf("at rest: %+v, %v", h, err)
	}
	first := layout.DataKey(frame.Start().Position)
	f := faultstore.New(st, nil)
	met := f.BeforeFirst(func(op faultstore.Op) bool { return op.Key == first }, func(context.Context) {
		compact(t, st, 1)
		if _, err := st.Put(t.Context(), first, []byte("by a zombie"), nil); err != nil {
			t.Error(err)
		}
	})
	if _, h, err := look(t, f, nil); !met() || err != nil || h != (inspect.Header{}) {
		t.Errorf("overtaken: %t, %+v, %v", met(), h, err)
	}
}

// Damage is an error with a remedy.
func TestTrouble(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "", "a")
	tail := take(t, st).Tail
	if _, err := st.Put(t.Context(), layout.DataKey(tail), []byte("junk"), &store.PutOptions{If: store.IfAbsent()}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := look(t, st, nil); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), layout.DataKey(tail)) || !strings.Contains(err.Error(), "fencepost verify") {
		t.Errorf("damage: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := inspect.Open(ctx, st, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
}

// What the newest manifest says, and the headers of a log that is partly folded.
func TestUnfolded(t *testing.T) {
	st := newLog(t)
	if k := take(t, st); k.Tail != frame.Start().Position || k.Floor != k.Tail || k.Noted != k.Tail || k.Version != 0 || k.End != 0 || !k.LastAt.IsZero() {
		t.Errorf("an empty log: %+v", k)
	}
	lead(t, st, 1, "", "a", "b")
	compact(t, st, 1)
	lead(t, st, 2, "at", "c", "d")
	k := take(t, st)
	if k.FloorOffset != 2 || k.End != 4 || k.NotedOffset != 4 || k.Noted != k.Tail || string(k.Cursor) != "at" || k.Segments != 1 ||
		k.Writer != 2 || k.Compactor != 1 || k.Seals != 1 || len(k.Ends) != 1 || k.Ends[0].Next != 1 || k.First != 0 {
		t.Errorf("%+v", k)
	}
	l, err := inspect.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []inspect.Header
	for h, err := range l.Unfolded(t.Context(), &k.State) {
		if err != nil {
			t.Fatal(err)
		}
		if h.Age == 0 || h.Time.IsZero() {
			t.Errorf("no time: %+v", h)
		}
		h.Age, h.Time = 0, time.Time{}
		got = append(got, h)
	}
	want := []inspect.Header{
		{Slot: logtest.At(1, 3), Seal: true, Next: 2},
		{Slot: logtest.At(2, 1), Offset: 2, Records: 1},
		{Slot: logtest.At(2, 2), Offset: 3, Records: 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nnot %+v", got, want)
	}
}

// An object of another log, or of another slot, is damage.
func TestStrangers(t *testing.T) {
	for _, other := range []bool{false, true} {
		st := newLog(t)
		lead(t, st, 1, "", "a", "b", "c")
		from, at := store.Store(st), logtest.At(1, 2)
		if other {
			f := logtest.Format()
			f.Log = fence.ID{1}
			from, at = logtest.New(t, f, nil).Mem, logtest.At(1, 1)
			lead(t, from, 1, "", "a")
		}
		b, _, err := store.Read(t.Context(), from, layout.DataKey(at), &store.ReadOptions{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, st, layout.DataKey(logtest.At(1, 1)), b)
		if _, _, err := look(t, st, nil); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), layout.DataKey(logtest.At(1, 1))) {
			t.Errorf("%v", err)
		}
	}
}
