package reader_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
)

// table puts records and edits on the chain, object by object, as a leader does, and
// remembers what the log says after each.
type table struct {
	*world
	at     frame.Point
	states []shown
}

// shown is what a snapshot after an object shows.
type shown struct {
	offset     uint64
	position   fence.Position // of the object
	time       time.Time      // of the object
	files      []string
	properties map[string]string
	cursor     string
}

// newTable opens the log for a new epoch.
func newTable(w *world) *table {
	w.Helper()
	w.Close(w.Open(nil))
	return newTableAt(w)
}

// newTableAt goes on in a log, in its last epoch.
func newTableAt(w *world) *table {
	w.Helper()
	t := &table{world: w, at: frame.Start(), states: []shown{{}}}
	t.toTail()
	return t
}

// takeOver begins another epoch.
func (t *table) takeOver() {
	t.Helper()
	t.Close(t.Open(nil))
	t.toTail()
}

func (t *table) toTail() {
	t.Helper()
	src := chain.Source{Store: t.Mem, Log: t.Format.Log, Limits: t.Format.Limits, Settle: logtest.Quick}
	for step, err := range src.Walk(context.Background(), t.at) {
		if err != nil {
			t.Fatal(err)
		}
		t.at = step.To
	}
}

func (t *table) now() shown { return t.states[len(t.states)-1] }

func (t *table) write(b *frame.Builder, s shown) {
	t.Helper()
	s.time, s.position = time.Now(), t.at.Position
	h := frame.Header{Log: t.Format.Log, Nonce: fence.ID(uuid.New()), Position: t.at.Position, Offset: t.at.Offset, Prev: t.at.Prev, Time: s.time}
	t.Put(layout.DataKey(t.at.Position), slices.Clone(b.Finish(&h, frame.Plain)))
	t.at = t.at.After(&h, []byte(s.cursor))
	s.offset = t.at.Offset
	t.states = append(t.states, s)
}

// record appends some records in one object, with a cursor.
func (t *table) record(n int) {
	t.Helper()
	var b frame.Builder
	for range n {
		v := fmt.Sprint("record ", len(t.History()))
		b.Add([]byte(v))
		t.Appended(v)
	}
	s := t.now()
	s.cursor = fmt.Sprint("cursor ", len(t.History()))
	b.SetCursor([]byte(s.cursor))
	t.write(&b, s)
}

// edit adds some files, removes the first ones, and counts itself.
func (t *table) edit(add, remove int) {
	t.Helper()
	before := t.now()
	s := before
	e := manifest.Edit{Properties: map[string]string{"edits": fmt.Sprint(len(t.states))}, Remove: before.files[:remove]}
	s.files = slices.Clone(before.files[remove:])
	for range add {
		key := layout.FileKey(t.at.Position.Epoch, uuid.Must(uuid.NewV7()).String(), ".parquet")
		t.Put(key, []byte("a file"))
		e.Add = append(e.Add, manifest.File{Key: key, Size: 6})
		s.files = append(s.files, key)
	}
	slices.Sort(s.files)
	s.properties = maps.Clone(before.properties)
	if s.properties == nil {
		s.properties = map[string]string{}
	}
	maps.Copy(s.properties, e.Properties)
	doc, err := state.EncodeEdit(&e)
	if err != nil {
		t.Fatal(err)
	}
	var b frame.Builder
	b.SetEdit(doc)
	t.write(&b, s)
}

// upTo returns the state after all objects that lie before record offset.
func (t *table) upTo(offset uint64) shown {
	var last shown
	for _, s := range t.states {
		if s.offset <= offset {
			last = s
		}
	}
	return last
}

// check compares a snapshot with a state and the records up to end.
func (t *table) check(s *reader.Snapshot, want shown, end uint64) error {
	if s.End() != end {
		return fmt.Errorf("it ends at %d, want %d", s.End(), end)
	}
	if !maps.Equal(s.Properties(), want.properties) {
		return fmt.Errorf("properties %v, want %v", s.Properties(), want.properties)
	}
	if c := s.Cursor(); string(c) != want.cursor {
		return fmt.Errorf("cursor %q, want %q", c, want.cursor)
	}
	var files []string
	for f, err := range s.Files(context.Background()) {
		if err != nil {
			return err
		}
		files = append(files, f.Key)
		if !slices.Contains(t.Keys("file/"), f.Key) {
			return fmt.Errorf("file %s is gone", f.Key)
		}
	}
	if !slices.Equal(files, want.files) || s.Live() != len(files) {
		return fmt.Errorf("%d files, want %d", len(files), len(want.files))
	}
	for _, from := range []uint64{reader.Oldest, (s.First() + end) / 2, end + 1} {
		g := got{from: from}
		if from == reader.Oldest {
			g.from = s.First()
		}
		for rec, err := range s.Records(context.Background(), from) {
			if err == nil {
				err = g.add(rec)
			}
			if err != nil {
				return fmt.Errorf("records from %d: %w", from, err)
			}
		}
		if want := t.History()[min(g.from, end):end]; !slices.Equal(g.values, want) {
			return fmt.Errorf("records from %d: %q, want %q", from, g.values, want)
		}
	}
	return nil
}

// story is some leaderships with records and edits, and what happens between them.
func (t *table) story(between func(i int)) {
	t.Helper()
	for i := range 4 {
		t.edit(2, 0)
		time.Sleep(time.Minute)
		t.record(3)
		time.Sleep(time.Minute)
		t.edit(1, 1)
		t.edit(3, 2)
		time.Sleep(time.Minute)
		t.record(1)
		t.record(2)
		if i%2 == 1 {
			t.takeOver()
		}
		time.Sleep(time.Minute)
		between(i)
	}
}

// inTable gives a table in virtual time.
func inTable(t *testing.T, grace time.Duration, f func(tt *table)) {
	t.Helper()
	inBubble(t, grace, func(t *testing.T, w *world) { f(newTable(w)) })
}
