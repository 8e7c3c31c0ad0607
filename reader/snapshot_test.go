package reader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

func ofVersion(v uint64) *reader.SnapshotOptions { return &reader.SnapshotOptions{Version: v} }

// compactions are what may have happened between the leaderships of a story.
var compactions = map[string]func(t *table) func(i int){
	"nothing is folded": func(*table) func(int) { return func(int) {} },
	"folded now and then": func(t *table) func(int) {
		return func(i int) {
			if i == 1 {
				t.compact(8)
			}
		}
	},
	"folded always": func(t *table) func(int) { return func(int) { t.compact(2) } },
	"folded at the end": func(t *table) func(int) {
		return func(i int) {
			if i == 3 {
				t.compact(2)
			}
		}
	},
}

// The end of the log, as it is: whatever was acknowledged before is in it.
func TestSnapshotOfTheEnd(t *testing.T) {
	for name, compaction := range compactions {
		t.Run(name, func(t *testing.T) {
			inTable(t, 0, func(w *table) {
				r := w.reader(nil)
				next := compaction(w)
				look := func() {
					s, err := r.Snapshot(context.Background(), nil)
					if err == nil {
						err = w.check(s, w.now(), uint64(len(w.History())))
					}
					if err == nil {
						err = s.Close(context.Background())
					}
					if err != nil {
						t.Errorf("at the end: %v", err)
					}
				}
				look()
				w.story(func(i int) { look(); next(i); look() })
			})
		})
	}
}

// A version is what lies before its floor. Another one than those that are kept is an error
// that names these.
func TestSnapshotAtVersion(t *testing.T) {
	inTable(t, time.Hour, func(w *table) {
		at := map[uint64]shown{}
		note := func() { at[w.Newest().Version] = w.upTo(w.Newest().Floor.Offset) }
		note()
		w.story(func(int) { w.compact(2); note() })
		r := w.reader(nil)
		for v, want := range at {
			s, err := r.Snapshot(context.Background(), ofVersion(v))
			if err == nil {
				err = w.check(s, want, want.offset)
			}
			if err == nil && s.Version() != v {
				err = fmt.Errorf("it is version %d", s.Version())
			}
			if err == nil {
				err = s.Close(context.Background())
			}
			if err != nil {
				t.Errorf("version %d: %v", v, err)
			}
		}
		time.Sleep(2 * time.Hour)
		w.compact(2) // prunes
		for _, version := range []uint64{1, 99} {
			for _, unpinned := range []bool{false, true} {
				_, err := r.Snapshot(context.Background(), &reader.SnapshotOptions{Version: version, Unpinned: unpinned})
				if !errors.Is(err, reader.ErrGone) || !strings.Contains(err.Error(), fmt.Sprint("version ", version)) || !strings.Contains(err.Error(), fmt.Sprint(w.Newest().Version)) {
					t.Errorf("version %d: %v", version, err)
				}
			}
		}
		if pins := w.Keys(layout.PinPrefix); len(pins) > 0 {
			t.Errorf("pins are left: %q", pins)
		}
	})
}

// A pin keeps its version until Unpin; a version that is pruned takes none.
func TestPinsByName(t *testing.T) {
	inTable(t, time.Hour, func(w *table) {
		w.story(func(int) { w.compact(2) })
		r, ctx := w.reader(nil), context.Background()
		pin, err := r.Pin(ctx, "backup", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Pin(ctx, "for a day", 1, 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		pins, err := r.Pins(ctx)
		if err != nil || len(pins) != 2 || pins[1] != pin || pin.Key == "" || pin.Name != "backup" || pin.TTL != 0 || pins[0].Version != 1 || pins[0].TTL != 24*time.Hour {
			t.Fatalf("%+v, %v; want %+v", pins, err, pin)
		}
		want := w.upTo(w.Newest().Floor.Offset)
		for range 3 {
			w.record(1)
			w.compact(2)
			time.Sleep(48 * time.Hour)
		}
		s, err := r.Snapshot(context.Background(), ofVersion(pin.Version))
		if err == nil {
			err = errors.Join(w.check(s, want, want.offset), s.Close(ctx))
		}
		if err != nil {
			t.Error(err)
		}
		if _, err := r.Pin(ctx, "late", pin.Version, 0); !errors.Is(err, reader.ErrGone) || !strings.Contains(err.Error(), fmt.Sprint("versions [", pin.Version)) {
			t.Errorf("a pin of a pruned version: %v", err)
		}
		if err := r.Unpin(ctx, "backup"); err != nil {
			t.Error(err)
		}
		if err := r.Unpin(ctx, "backup"); !errors.Is(err, reader.ErrNoPin) {
			t.Errorf("a second Unpin: %v", err)
		}
	})
}

// A version that another's pin holds, and that cannot be read just now, is not gone.
//
// guard:lean-unread. A version that the prune mark has passed can be read only while another process
// pins it. Without this check: a backup pins version 5, and the mark passes 5; a reader asks for
// version 5, and its request for manifest 5 times out; the reader reports ErrGone, although version 5
// is there.
func TestSnapshotLeansOnWhatCannotBeRead(t *testing.T) {
	inTable(t, time.Hour, func(w *table) {
		w.story(func(int) { w.compact(2) })
		ctx := context.Background()
		pin, err := w.State.Pin(ctx, &state.PinOptions{Name: "backup"})
		if err != nil {
			t.Fatal(err)
		}
		w.record(1)
		w.compact(2)
		time.Sleep(2 * time.Hour)
		w.compact(2) // prunes
		if mark := w.Newest().PruneMark; mark < pin.Version() {
			t.Fatalf("version %d is pinned, and the mark is %d", pin.Version(), mark)
		}
		r := w.reader(nil)
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Kind == faultstore.Get && op.Key == layout.ManifestKey(pin.Version()) {
				return faultstore.Fault{Drop: true}
			}
			return faultstore.Fault{}
		})
		for _, unpinned := range []bool{false, true} {
			o := &reader.SnapshotOptions{Version: pin.Version(), Unpinned: unpinned}
			if _, err := r.Snapshot(context.Background(), o); err == nil || errors.Is(err, reader.ErrGone) || errors.Is(err, state.ErrPruned) {
				t.Errorf("it cannot be read, and the error is %v", err)
			}
		}
		w.Faulty.SetHook(nil)
		for _, unpinned := range []bool{false, true} {
			s, err := r.Snapshot(context.Background(), &reader.SnapshotOptions{Version: pin.Version(), Unpinned: unpinned})
			if err != nil || s.Version() != pin.Version() {
				t.Fatal(err)
			}
		}
	})
}

// The first record after a time is that of the first object that is later, or of the
// first block of a segment.
func TestAfter(t *testing.T) {
	for name, compaction := range compactions {
		t.Run(name, func(t *testing.T) {
			inTable(t, time.Hour, func(w *table) {
				begun := time.Now()
				w.story(compaction(w))
				r := w.reader(nil)
				var all []reader.Record
				for rec, err := range r.Read(context.Background(), 0) {
					if err != nil {
						w.Fatal(err)
					}
					all = append(all, rec)
				}
				for d := -time.Minute; d < 20*time.Minute; d += 30 * time.Second {
					when, end := begun.Add(d), uint64(0)
					for end < uint64(len(all)) && !all[end].Time.After(when) {
						end++
					}
					if after, err := r.After(context.Background(), when); err != nil || after != end {
						t.Errorf("%v: the first after it is %d, %v; want %d", d, after, err, end)
					}
				}
			})
		})
	}
}

// A snapshot stays what it was, however much is folded, merged and pruned while it is open.
func TestSnapshotIsHeld(t *testing.T) {
	inTable(t, 0, func(w *table) {
		w.story(func(i int) {
			if i < 3 {
				w.compact(2)
			}
		})
		r := w.reader(nil)
		end := uint64(len(w.History()))
		s, err := r.Snapshot(context.Background(), nil)
		if err != nil {
			w.Fatal(err)
		}
		want := w.upTo(end)
		w.story(func(int) { w.compact(2) })
		time.Sleep(24 * time.Hour) // renewed all the while
		w.compact(2)
		if err := w.check(s, want, end); err != nil {
			t.Error(err)
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
		if err := errors.Join(s.Close(context.Background()), s.Close(context.Background())); err != nil {
			t.Error(err)
		}
		w.compact(2)
		w.compact(2)
		if n := len(w.Keys("file/")); n != len(w.now().files) {
			t.Errorf("closed, and %d files are left of %d", n, len(w.now().files))
		}
	})
}

// T28: a snapshot whose pin is expired says so. It goes on with what is left, at the same
// offsets, and fails with a clear error where nothing is.
//
// guard:read-held. The newest manifest has the same records at the same offsets. Without this rule: a
// snapshot's pin is expired; a compactor merges segments, and deletes the old ones; the snapshot's
// stream asks for an old segment again and again, and never ends, although every record is still in the
// log.
func TestT28_PinLost(t *testing.T) {
	inTable(t, 0, func(w *table) {
		w.story(func(int) { w.compact(8) })
		r := w.reader(nil)
		s, err := r.Snapshot(context.Background(), nil)
		if err != nil {
			w.Fatal(err)
		}
		end := uint64(len(w.History()))
		log := w.State
		pins, err := log.Pins(context.Background())
		if err != nil || len(pins) != 1 {
			w.Fatal(pins, err)
		}
		if err := log.ExpirePin(context.Background(), pins[0], "the operator says so"); err != nil {
			w.Fatal(err)
		}
		begun := time.Now()
		<-s.Lost()
		if took := time.Since(begun); took > time.Minute || !errors.Is(s.Err(), reader.ErrPinLost) || !strings.Contains(s.Err().Error(), fmt.Sprint(s.Version())) {
			t.Errorf("after %v: %v", took, s.Err())
		}
		w.story(func(int) { w.compact(2) })
		w.compact(2)
		ctx := w.atMost(1000)
		g := got{}
		for rec, err := range s.Records(ctx, 0) {
			if err == nil {
				err = g.add(rec)
			}
			if err != nil {
				w.Fatalf("after %d records: %v", len(g.values), err)
			}
		}
		if uint64(len(g.values)) != end {
			t.Errorf("%d records, want %d", len(g.values), end)
		}
		w.truncate(8)
		w.compact(2)
		for _, err := range s.Records(ctx, 2) {
			if !errors.Is(err, reader.ErrPinLost) || !errors.Is(err, reader.ErrGone) || !strings.Contains(err.Error(), "begins at ") {
				t.Errorf("%v", err)
			}
			break
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Whatever others do before each of its requests: a snapshot of the end is what the
// log was at some moment between its beginning and its end, and what is held is
// there.
func TestSnapshotAtEveryRequest(t *testing.T) {
	for name, script := range map[string]func(w *table){
		"folded": func(w *table) { w.compact(2) },
		"led and folded": func(w *table) {
			w.edit(1, 1)
			w.record(1)
			w.compact(2)
			w.takeOver()
			w.edit(2, 0)
			w.compact(2)
		},
		"junk in the holes": func(w *table) { before := w.Keys(""); w.record(2); w.compact(2); w.compact(2); w.litter(before) },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				var reached func() bool
				inTable(t, 0, func(w *table) {
					w.story(func(i int) {
						if i == 1 {
							w.compact(8)
						}
					})
					r := w.reader(nil)
					from := len(w.states)
					reached = w.Faulty.BeforeFirst(func(op faultstore.Op) bool { return op.ClientN == n+1 }, func(context.Context) { script(w) })
					s, err := r.Snapshot(context.Background(), nil)
					w.Faulty.SetBefore(nil)
					if err != nil {
						t.Errorf("moved at request %d: %v", n, err)
						return
					}
					w.compact(2)
					w.compact(2)
					err = errors.New("it is no state of the log")
					for _, want := range w.states[from-1:] {
						if s.End() == want.offset && s.Properties()["edits"] == want.properties["edits"] {
							err = w.check(s, want, want.offset)
						}
					}
					if err != nil {
						t.Errorf("moved at request %d: %v", n, err)
					}
					_ = s.Close(context.Background())
				})
				if !reached() || t.Failed() {
					break
				}
			}
		})
	}
}

// Retention truncates records that a snapshot holds: it still has all of them, from its own first one
// on.
//
// guard:read-oldest. Without this rule: a reader takes a snapshot from record 0 on; retention gives up
// records 0 to 9, which the snapshot's pin still holds; the reader asks the snapshot for its oldest
// record, and begins at record 10; it never learns that ten records are missing.
func TestSnapshotKeepsWhatRetentionTruncates(t *testing.T) {
	inTable(t, 0, func(w *table) {
		w.record(3)
		w.compact(8)
		w.record(3)
		w.compact(8)
		s, err := w.reader(nil).Snapshot(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range []uint64{1, 4, 6} {
			w.truncate(before)
			w.compact(8)
			w.compact(8)
			if first := w.Newest().First(); first != before || s.First() != 0 {
				t.Errorf("the log begins at %d, the snapshot at %d; want %d and 0", first, s.First(), before)
			}
			if err := w.check(s, w.upTo(6), 6); err != nil {
				t.Errorf("records before %d are truncated: %v", before, err)
			}
		}
		if err := errors.Join(s.Err(), s.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
}

// guard:pinned-start. A snapshot keeps also what was not folded yet when it was taken,
// however often that is folded, merged, truncated and pruned. Nobody else sees it, and it is
// deleted after the snapshot was closed.
func TestSnapshotAfterItsFloor(t *testing.T) {
	inTable(t, 0, func(w *table) {
		w.record(3)
		w.compact(8)
		w.record(5)
		s, err := w.reader(nil).Snapshot(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.record(3)
			w.compact(8)
			w.compact(2)
			w.truncate(uint64(len(w.History())))
			w.record(1)
			w.compact(2)
			w.compact(2)
			if err := w.check(s, w.upTo(s.End()), s.End()); err != nil {
				t.Error(err)
			}
			if _, err := w.read(w.reader(nil), 4); !errors.Is(err, reader.ErrGone) {
				t.Errorf("another reader: %v", err)
			}
		}
		held := w.Newest().Held()
		if err := errors.Join(s.Err(), s.Close(context.Background())); err != nil {
			t.Error(err)
		}
		for range 3 {
			w.compact(2)
		}
		if m := w.Newest(); held > 3 || m.Held() < m.Start-1 || len(w.Keys("segment/")) != len(m.Segments) {
			t.Errorf("%d were held, then those from %d on of %d; there are %q", held, m.Held(), m.Start, w.Keys("segment/"))
		}
	})
}

// A snapshot lacks what was truncated before it was taken, although it is still there: for another pin,
// or because no compactor has pruned yet.
//
// guard:read-given-up. Without this rule: records 0 to 9 are given up, and a backup's pin keeps their
// segment; snapshot A is taken, and has these records; the backup ends, and the segment is dropped;
// snapshot B is taken, and begins at record 10, although nothing more was given up.
func TestSnapshotAfterRetention(t *testing.T) {
	inTable(t, 0, func(w *table) {
		w.record(3)
		w.compact(8)
		earlier, err := w.reader(nil).Snapshot(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.record(5)
		w.compact(8)
		w.truncate(5)
		for range 2 {
			s, err := w.reader(nil).Snapshot(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, from := range []uint64{0, 2, 3, 4} {
				n := 0
				for _, err = range s.Records(context.Background(), from) {
					n++
				}
				if n != 1 || !errors.Is(err, reader.ErrGone) || !strings.Contains(err.Error(), "begins at 5") {
					t.Errorf("from %d: %d records, %v", from, n, err)
				}
			}
			n := s.First()
			for rec, err := range s.Records(context.Background(), reader.Oldest) {
				if err != nil || rec.Offset != n || string(rec.Value) != w.History()[n] {
					t.Fatalf("record %d: %v, %v", n, rec, err)
				}
				n++
			}
			if s.First() != 5 || n != 8 {
				t.Errorf("it has [%d, %d)", s.First(), n)
			}
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
			w.compact(8)
		}
		if err := w.check(earlier, w.upTo(3), 3); err != nil {
			t.Error(err)
		}
		if err := earlier.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
