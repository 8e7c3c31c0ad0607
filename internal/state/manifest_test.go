package state

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/memstore"
)

func point(epoch fence.Epoch, seq, offset uint64) frame.Point {
	return frame.Point{Position: fence.Position{Epoch: epoch, Seq: seq}, Offset: offset, Prev: uint32(seq)}
}

func TestFold(t *testing.T) {
	m := full()
	from, to := m.Floor, point(5, 2, 1100)
	seals := []Seal{{Position: fence.Position{Epoch: 3, Seq: 9}, Next: 5, Nonce: testNonce, Offset: 1050}}
	segs := []Segment{{Key: layout.SegmentKey(layout.Compactor, 2, "00000000-0000-4000-8000-000000000009"), First: 1000, End: 1100, Size: 300, Index: 96}}
	if err := (&Change{m}).Fold(from, to, seals, segs, nil); err != nil {
		t.Fatal(err)
	}
	m.Hint = nil // Update takes it out
	if err := m.check(layout.ManifestKey(42), testFormat()); err != nil {
		t.Error(err)
	}
	if !m.Floor.Equal(to) || len(m.Segments) != 3 || len(m.Seals) != 3 {
		t.Errorf("%s", fixture.JSON(t, m))
	}
	// Whatever differs in the floor: somebody else has folded.
	for _, floor := range []frame.Point{
		to, point(3, 5, 1000), point(4, 4, 1000), point(3, 4, 999),
		{Position: from.Position, Offset: from.Offset, Prev: from.Prev + 1, Cursor: from.Cursor},
		{Position: from.Position, Offset: from.Offset, Prev: from.Prev, Cursor: []byte("another")},
	} {
		m := full()
		m.Floor = floor
		before := fixture.JSON(t, m)
		if err := (&Change{m}).Fold(from, to, seals, segs, nil); !errors.Is(err, ErrVoid) {
			t.Errorf("floor %+v: %v", floor, err)
		}
		if fixture.JSON(t, m) != before {
			t.Errorf("a void fold changed\n%s to\n%s", before, fixture.JSON(t, m))
		}
	}
}

// guard:replace-there. Without this check: a merge of segments 2 and 3 has an unknown outcome; the
// compactor plans again, and merges segments 1 and 2; the first merge is applied after all; the second
// one would replace segment 1 and the merged segment, and lose records; the manifest's own checks
// refuse it; the compactor stops with that error instead of planning again.
func TestReplace(t *testing.T) {
	segments := func() *Manifest {
		m := full()
		m.Segments, m.Dropped, m.EditedAt = nil, nil, 0
		for i := range uint64(6) {
			m.Segments = append(m.Segments, Segment{Key: layout.SegmentKey(layout.Compactor, 2, fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), First: 100 * i, End: 100 * (i + 1), Size: 200, Index: 96})
		}
		m.Floor.Offset, m.Hint.Offset, m.Seals[1].Offset = 600, 700, 0
		return m
	}
	for _, run := range [][2]int{{0, 2}, {1, 4}, {4, 6}, {0, 6}, {3, 4}} {
		m := segments()
		old := m.clone().Segments[run[0]:run[1]]
		with := Segment{Key: layout.SegmentKey(layout.Compactor, 2, "00000000-0000-4000-8000-00000000beef"), First: old[0].First, End: old[len(old)-1].End, Size: 900, Index: 96}
		if err := (&Change{m}).Replace(old, with); err != nil {
			t.Fatal(err)
		}
		m.Version++ // as Update does
		if err := m.check(layout.ManifestKey(43), testFormat()); err != nil {
			t.Error(err)
		}
		if s, err := testOpen(memstore.New(nil)).SegmentOf(t.Context(), m, old[0].First); err != nil || s != with || len(m.Segments) != 6-len(old)+1 || len(m.Dropped) != len(old) {
			t.Errorf("%v: %s", run, fixture.JSON(t, m))
		}
		for i, d := range m.Dropped {
			if d != (Dropped{Key: old[i].Key, Version: 43}) {
				t.Errorf("dropped %+v", d)
			}
		}
		// A second time it is void, and changes nothing.
		before := fixture.JSON(t, m)
		if err := (&Change{m}).Replace(old, with); !errors.Is(err, ErrVoid) || fixture.JSON(t, m) != before {
			t.Errorf("%v: again: %v", run, err)
		}
	}
	all := segments().Segments
	foreign := Segment{Key: layout.SegmentKey(layout.Compactor, 9, "00000000-0000-4000-8000-000000000000")}
	for name, old := range map[string][]Segment{
		"none": {}, "unknown": {foreign}, "unknown end": {all[0], foreign}, "with a gap": {all[0], all[2]}, "backwards": {all[1], all[0]},
		"beyond the end": {all[5], all[0]}, "more than there are": append(append([]Segment{}, all...), foreign),
	} {
		m := segments()
		before := fixture.JSON(t, m)
		if err := (&Change{m}).Replace(old, all[0]); !errors.Is(err, ErrVoid) || fixture.JSON(t, m) != before {
			t.Errorf("%s: %v\n%s", name, err, fixture.JSON(t, m))
		}
	}
}

func TestSegmentOf(t *testing.T) {
	l := testOpen(memstore.New(nil))
	m := full()
	for offset, want := range map[uint64]int{0: 0, 599: 0, 600: 1, 999: 1, 1000: -1, 1 << 63: -1} {
		s, err := l.SegmentOf(t.Context(), m, offset)
		if (err == nil) != (want >= 0) || err == nil && s != m.Segments[want] || err != nil && !errors.Is(err, ErrPruned) {
			t.Errorf("%d is in %+v, %v", offset, s, err)
		}
	}
	m.Segments, m.Start = m.Segments[1:], 700 // what is before was let go
	_, err := l.SegmentOf(t.Context(), m, 599)
	fixture.WantErr(t, err, ErrPruned, "begins at 700")
	for _, offset := range []uint64{600, 699, 700} { // given up, and still named
		if s, err := l.SegmentOf(t.Context(), m, offset); err != nil || s.First != 600 || m.First() != 700 || m.Held() != 600 {
			t.Errorf("begins at %d and %d: %+v, %v", m.Held(), m.First(), s, err)
		}
	}
	m.Segments, m.Start = nil, 1000
	if _, err := l.SegmentOf(t.Context(), m, 999); !errors.Is(err, ErrPruned) || m.First() != 1000 {
		t.Errorf("begins at %d, %v", m.First(), err)
	}
}

func TestTailAndPast(t *testing.T) {
	m := full()
	if !m.Tail().Equal(*m.Hint) {
		t.Errorf("%+v", m.Tail())
	}
	for p, past := range map[fence.Position]bool{
		frame.Genesis(): true, {Epoch: 2, Seq: 1 << 40}: true, {Epoch: 3, Seq: 3}: true, {Epoch: 3, Seq: 4}: false, {Epoch: 3, Seq: 5}: false, {Epoch: 4, Seq: 1}: false,
	} {
		if m.Past(p) != past {
			t.Errorf("past %v: %t", p, m.Past(p))
		}
	}
	m.Hint = nil
	if !m.Tail().Equal(m.Floor) {
		t.Errorf("%+v", m.Tail())
	}
}

// TestClone: an update that is tried again must find its manifest as it was, and
// readers hold the one that it started from.
func TestClone(t *testing.T) {
	m := full()
	before := fixture.JSON(t, m)
	c := m.clone()
	if !reflect.DeepEqual(c, m) {
		t.Errorf("%s", fixture.JSON(t, c))
	}
	c.Roles[layout.Writer] = RoleState{}
	c.Roles["new"] = RoleState{}
	c.Hint.Offset++
	c.Segments[0].First++
	c.Seals[0].Next++
	c.Dropped[0].Version++
	_ = append(c.Segments[:1], Segment{})
	if fixture.JSON(t, m) != before {
		t.Errorf("became\n%s", fixture.JSON(t, m))
	}
}
