package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// aged is a log of segments of ten records each, the last of which were written so
// long ago.
func agedLog(t *testing.T, h *hands, ages ...time.Duration) *world {
	t.Helper()
	w := newWorld(t, 0, &memstore.Options{Clock: h})
	for range ages {
		w.Lead(10)
		w.compact(w.Mem, &Options{Settle: logtest.Quick, Clock: h})
	}
	// The writer's clock is the machine's.
	w.Publish(func(m *state.Change) error {
		if len(m.Segments) != len(ages) {
			t.Fatalf("%d segments", len(m.Segments))
		}
		for i := range m.Segments {
			m.Segments[i].To = h.real().Add(-ages[i])
			m.Segments[i].From = m.Segments[i].To.Add(-time.Minute)
		}
		return nil
	})
	return w
}

// real is the time of day, whatever the clock says.
func (h *hands) real() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return morning.Add(h.now)
}

// first returns the first record that can be read, and checks those that follow.
func (w *world) first() uint64 {
	w.Helper()
	first := w.Newest().First()
	if got, err := logtest.Read(w.Mem, first, nil); err != nil || !slices.Equal(got, w.History()[first:]) {
		w.Fatalf("from %d on there are %q, %v; want %q", first, got, err, w.History()[first:])
	}
	return first
}

// History is given up by age, number and size, whole segments of it, the oldest
// first; what is not beyond the bound is there, and what is beyond it is gone from
// the store.
func TestRetain(t *testing.T) {
	const hour = time.Hour
	ages := []time.Duration{50 * hour, 40 * hour, 30 * hour, 20 * hour, 10 * hour}
	size := agedLog(t, &hands{}, ages...).Newest().Segments[0].Size
	for name, c := range map[string]struct {
		retain Retain
		wrong  time.Duration
		tell   func(store.Info) store.Info
		want   uint64
	}{
		"all":                     {Retain{}, 0, exactly, 0},
		"by age":                  {Retain{Age: 25 * hour}, 0, exactly, 30},
		"all too old":             {Retain{Age: hour}, 0, exactly, 50},
		"none old enough":         {Retain{Age: 51 * hour}, 0, exactly, 0},
		"an hour fast":            {Retain{Age: 30*hour + 30*time.Minute}, hour, exactly, 20},
		"an hour slow":            {Retain{Age: 29*hour + 30*time.Minute}, -hour, exactly, 30},
		"no time told":            {Retain{Age: 25 * hour}, 0, noDate, 30},
		"by number":               {Retain{Records: 20}, 0, exactly, 30},
		"by number, not whole":    {Retain{Records: 21}, 0, exactly, 20},
		"by number, too many":     {Retain{Records: 1000}, 0, exactly, 0},
		"by size":                 {Retain{Bytes: 2 * size}, 0, exactly, 30},
		"by size, not whole":      {Retain{Bytes: 2*size + 1}, 0, exactly, 20},
		"by size, too much":       {Retain{Bytes: 100 * size}, 0, exactly, 0},
		"whichever gives up more": {Retain{Age: 45 * hour, Records: 25, Bytes: 1000 * size}, 0, exactly, 20},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hands{}
			w := agedLog(t, h, ages...)
			o := &Options{Settle: logtest.Quick, Clock: &hands{wrong: c.wrong}, Retain: c.retain}
			st := told{w.Faulty, c.tell}
			w.watch(nil)
			plan, err := mustNew(t, st, o).Plan(t.Context())
			if err != nil || plan.Start != 0 || plan.Truncate != c.want {
				t.Errorf("the plan is to give up what is before %d, %v", plan.Truncate, err)
			}
			w.Token++
			r, err := w.once(st, w.Token, o)
			if err != nil || r.Truncated != c.want || w.first() != c.want || r.Pruned["segment"] != 0 && c.want == 0 {
				t.Fatalf("%+v, %v; the first record is %d, want %d", r, err, w.first(), c.want)
			}
			for range 2 { // the manifests that name them go first
				w.compact(st, o)
			}
			if got := len(w.Keys(layout.SegmentPrefix)); got != 5-int(c.want/10) {
				t.Errorf("%d segments are left", got)
			}
			if w.first() != c.want {
				t.Errorf("then the first record is %d", w.first())
			}
		})
	}
}

// A record from a writer whose clock was ahead keeps all records after it: the history has no holes.
//
// guard:retain-prefix. Without this stop: leader B follows leader A, and B's clock is a day slow; B's
// segment seems too old; the new start is put after B's segment, so A's segment before it is given up
// too, although it is young.
func TestRetainClocksBack(t *testing.T) {
	h := &hands{}
	w := agedLog(t, h, 50*time.Hour, -1000*time.Hour, 40*time.Hour, time.Hour)
	w.compact(w.Mem, &Options{Settle: logtest.Quick, Clock: h, Retain: Retain{Age: 24 * time.Hour}})
	if w.first() != 10 {
		t.Errorf("the first record is %d", w.first())
	}
}

// Nothing is merged with what goes much later: a log of little data is given up as
// time goes by, and not only when a segment is full.
func TestRetainWhileMerging(t *testing.T) {
	h := &hands{}
	w := newWorld(t, 0, &memstore.Options{Clock: h})
	o := &Options{Settle: logtest.Quick, Clock: h, FanIn: 2, Levels: 40, Retain: Retain{Age: 24 * time.Hour}}
	merged := 0
	for i := range 100 {
		w.Lead(2)
		merged += w.compact(w.Mem, o).Merged
		now := h.real()
		w.Publish(func(m *state.Change) error {
			if s := &m.Segments[len(m.Segments)-1]; s.End == m.Floor.Offset && s.To.After(now.Add(time.Hour)) {
				s.From, s.To = now, now // as if the writer had this clock
			}
			return nil
		})
		h.advance(time.Hour)
		if first := w.Newest().First(); i > 40 && first < uint64(2*(i-32)) {
			t.Fatalf("after %d hours the first record is %d, of hour %d", i, first, first/2)
		}
	}
	if merged < 20 || w.first() < 130 {
		t.Errorf("%d segments were merged, the first record is %d", merged, w.first())
	}
}

// Truncate gives up to the record, deletes whole segments, takes nothing back, and
// never gives up what is not folded.
func TestTruncate(t *testing.T) {
	w := newWorld(t, 0, nil)
	for range 3 {
		w.Lead(10)
		w.compact(w.Mem, nil)
	}
	w.Lead(5)
	for _, step := range []struct {
		before, first uint64
		segments      int
		says          string
	}{
		{0, 0, 3, ""}, {5, 5, 3, ""}, {12, 12, 2, ""}, {3, 12, 2, ""},
		{31, 12, 2, "only those before 30 are folded"}, {30, 30, 0, ""},
	} {
		w.Token++
		err := w.withToken(w.Mem, w.Token, nil).Truncate(t.Context(), step.before)
		if step.says == "" && err != nil || step.says != "" && (err == nil || !strings.Contains(err.Error(), step.says)) {
			t.Errorf("before %d: %v", step.before, err)
		}
		if first := w.first(); first != step.first {
			t.Errorf("before %d: the first record is %d", step.before, first)
		}
		for range 2 {
			w.Token++
			w.pruneAs(w.Token)
		}
		if n := len(w.Keys(layout.SegmentPrefix)); n != step.segments {
			t.Errorf("before %d: %d segments are left", step.before, n)
		}
	}
	w.compact(w.Mem, nil) // the tail is as it was
	if w.first() != 30 {
		t.Errorf("the first record is %d", w.first())
	}
	if err := w.withToken(w.Mem, 1, nil).Truncate(t.Context(), 31); !errors.Is(err, ErrFenced) {
		t.Errorf("a zombie truncates: %v", err)
	}
}

// What versions are kept for, they have: each names only what is there.
func TestKeepVersions(t *testing.T) {
	for name, c := range map[string]struct {
		count int
		age   time.Duration
		want  func(version uint64, age time.Duration, newest uint64) bool
	}{
		"none":  {0, 0, func(uint64, time.Duration, uint64) bool { return false }},
		"count": {8, 0, func(v uint64, _ time.Duration, newest uint64) bool { return v+8 >= newest }},
		"age":   {0, 10 * time.Hour, func(_ uint64, age time.Duration, _ uint64) bool { return age < 10*time.Hour }},
		"both": {4, 10 * time.Hour, func(v uint64, age time.Duration, newest uint64) bool {
			return v+4 >= newest || age < 10*time.Hour
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hands{}
			w := newWorld(t, 0, &memstore.Options{Clock: h})
			o := small()
			o.Clock, o.KeepVersions, o.KeepVersionsFor = h, c.count, c.age
			var mu sync.Mutex // the writer publishes a manifest beside its work
			written := map[uint64]time.Duration{}
			w.Faulty.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
				if v, ok := layout.ParseManifestKey(op.Key); ok && op.Kind == faultstore.Put {
					mu.Lock()
					defer mu.Unlock()
					written[v] = h.now
				}
			})
			w.Token++
			for range 30 {
				wr := w.open(w.Faulty)
				w.Append(wr, "x")
				w.Close(wr)
				if _, err := w.once(w.Faulty, w.Token, o); err != nil {
					t.Fatal(err)
				}
				h.advance(time.Hour)
			}
			// The last prune came an hour ago, and made some versions itself.
			newest, kept := w.Newest(), 0
			mu.Lock()
			defer mu.Unlock()
			for v, at := range written {
				if !c.want(v, h.now-time.Hour-at, newest.Version) {
					continue
				}
				kept++
				if v <= newest.PruneMark {
					t.Errorf("version %d, %v old, is to be kept; the mark is %d, the newest %d", v, h.now-at, newest.PruneMark, newest.Version)
					continue
				}
				m, _, err := w.State.At(t.Context(), v)
				if err != nil {
					t.Errorf("version %d of %d: %v", v, newest.Version, err)
					continue
				}
				for s, err := range w.State.Segments(t.Context(), m, 0) {
					if err != nil || !w.Has(s.Key) {
						t.Errorf("version %d names %s, which is gone; %v", v, s.Key, err)
					}
				}
			}
			if left := len(w.Keys(layout.ManifestPrefix)); left > kept+8 {
				t.Errorf("%d manifests are left, %d are to be kept", left, kept)
			}
			if name != "none" && kept < 5 {
				t.Errorf("only %d are to be kept", kept)
			}
			w.holds("at the end")
		})
	}
}

// An elected Truncate waits for its turn and makes room.
func TestTruncateElects(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.Lead(10)
		w.compact(w.Mem, nil)
		stop, _ := w.run("c", &Options{Interval: time.Second})
		time.Sleep(time.Minute)
		c := mustNew(t, w.Mem, running(&Options{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := c.Truncate(ctx, 5); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside another compactor: %v", err)
		}
		cancel()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := c.Truncate(t.Context(), 5); err != nil || w.first() != 5 {
			t.Errorf("%v; the first record is %d", err, w.first())
		}
		if r, err := c.Once(t.Context()); err != nil {
			t.Error(fmt.Sprint(r), err)
		}
	})
}

// The mark lies right below the oldest version that is kept: what is above it is kept
// whole. Version 10 is the newest, and each was the newest for an hour.
func TestMarkBelowTheKept(t *testing.T) {
	s := &survey{horizon: &state.Manifest{Version: 10}, kept: map[uint64]state.Kept{}}
	for v := range uint64(10) {
		s.kept[v+1] = state.Kept{Info: store.Info{Key: layout.ManifestKey(v + 1)}}
	}
	age := func(info store.Info) time.Duration {
		v, _ := layout.ParseManifestKey(info.Key)
		return time.Duration(10-v) * time.Hour
	}
	for _, c := range []struct {
		count int
		age   time.Duration
		mark  uint64
	}{
		{0, 0, 10},
		{1, 0, 8},
		{3, 0, 6},
		{9, 0, 0},
		{10, 0, 0},
		{0, time.Hour, 8},
		{0, 150 * time.Minute, 6},
		{0, 3 * time.Hour, 6},
		{0, 9 * time.Hour, 0},
		{0, 99 * time.Hour, 0},
		{3, time.Hour, 6},
		{1, 5 * time.Hour, 4},
	} {
		t.Run(fmt.Sprint(c.count, c.age), func(t *testing.T) {
			p := &pass{Compactor: &Compactor{opts: Options{KeepVersions: c.count, KeepVersionsFor: c.age}}}
			if mark := p.keepVersions(s, age); mark != c.mark {
				t.Errorf("the mark is %d, want %d", mark, c.mark)
			}
		})
	}
}
