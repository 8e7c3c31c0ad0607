package survey_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
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

func take(t *testing.T, st store.Store) *survey.Log {
	t.Helper()
	s, err := survey.Take(t.Context(), st, &survey.Options{Objects: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEmpty(t *testing.T) {
	s := take(t, newLog(t))
	if s.Tail != frame.Start().Position || s.End != 0 || s.Leader.Epoch != 0 || s.Leader.Leads || s.Version != 0 || s.Noted != s.Floor ||
		s.Objects[inspect.Format].Objects != 1 || s.Probe == nil {
		t.Errorf("%+v", s)
	}
	if _, err := survey.Take(t.Context(), memstore.New(nil), nil); !errors.Is(err, manifest.ErrNotInitialized) {
		t.Errorf("no log: %v", err)
	}
}

// The end is found on the chain, whatever is folded, and the counts are those of a
// listing.
func TestEnd(t *testing.T) {
	st := newLog(t)
	lead(t, st, 1, "at 1", "a", "b")
	compact(t, st, 1)
	lead(t, st, 2, "\x00\xff", "c")
	listed := 0
	s, err := survey.Take(t.Context(), st, &survey.Options{Objects: true, Progress: func(n int) { listed = n }})
	if err != nil {
		t.Fatal(err)
	}
	objects, _ := st.Len()
	if s.Tail != (fence.Position{Epoch: 2, Seq: 2}) || s.End != 3 || s.First != 0 || listed != objects {
		t.Errorf("%d listed of %d: %+v", listed, objects, s)
	}
	if string(s.Cursor) != "\x00\xff" || s.CursorText != "" {
		t.Errorf("the cursor is %q, as text %q", s.Cursor, s.CursorText)
	}
	m := s.State
	if m.Segments != 1 || m.Floor != (fence.Position{Epoch: 1, Seq: 3}) || m.FloorOffset != 2 || m.Noted == m.Floor || m.Compactor != 1 {
		t.Errorf("%+v", m)
	}
	if s.BeforeFloor.Objects != 1 { // the seal of epoch 0 stays
		t.Errorf("before the floor: %+v", s.BeforeFloor)
	}
	lead(t, st, 3, "text")
	if s := take(t, st); s.Tail != (fence.Position{Epoch: 3, Seq: 1}) {
		t.Errorf("%+v", s)
	}
	lead(t, st, 4, "text", "d")
	if s := take(t, st); s.CursorText != "text" {
		t.Errorf("the cursor as text is %q", s.CursorText)
	}
}

func TestLeadership(t *testing.T) {
	st := newLog(t)
	e, err := leader.New(st, layout.LockPrefix, &leader.Options{Identity: "me", Validity: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := take(t, st).Leader
	if !l.Leads || l.Holder != "me" || l.Epoch != 1 || l.Lasts() != 30*time.Second {
		t.Errorf("%+v", l)
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := take(t, st)
	if l := s.Leader; l.Leads || l.Holder != "me" || l.Reason == "" {
		t.Errorf("resigned: %+v", l)
	}
	if s.Compactor.Epoch != 0 {
		t.Errorf("nobody compacts: %+v", s.Compactor)
	}
	if s.Leader.EndedBy != "" {
		t.Errorf("it has resigned by itself: %+v", s.Leader)
	}
	if term, err = e.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	operator, err := leader.New(st, layout.LockPrefix, &leader.Options{Identity: "operator"})
	if err == nil {
		_, err = operator.StepDown(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = term.Resign(t.Context())
	if l := take(t, st).Leader; l.EndedBy != "operator" || l.Holder != "me" {
		t.Errorf("deposed: %+v", l)
	}
}

// A lock that cannot be read fails a survey, unless somebody is told of it. The other lock is read.
func TestBadLock(t *testing.T) {
	st := newLog(t)
	if _, err := st.Put(t.Context(), layout.LockKey(layout.CompactorLockPrefix, 7), []byte("{"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := survey.Take(t.Context(), st, nil); !errors.Is(err, leader.ErrCorrupt) {
		t.Error(err)
	}
	told := ""
	if _, err := survey.Take(t.Context(), st, &survey.Options{BadLock: func(of inspect.Kind, err error) {
		if errors.Is(err, leader.ErrCorrupt) {
			told += string(of)
		}
	}}); err != nil || told != string(inspect.CompactorLock) {
		t.Error(told, err)
	}
}

// What is unknown to a log may be of a group of workers at the same place.
func TestStrange(t *testing.T) {
	st := newLog(t)
	for _, key := range []string{"group/group.json", group.PartitionPrefix(3) + "/format.json", group.CompactorsPrefix + "group/group.json", "groups.txt"} {
		if _, err := st.Put(t.Context(), key, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if s := take(t, st); s.Strange != 1 || s.Objects[inspect.Unknown].Objects != 4 {
		t.Errorf("%d, %+v", s.Strange, s.Objects)
	}
}
