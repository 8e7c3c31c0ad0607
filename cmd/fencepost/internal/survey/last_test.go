package survey_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// TestLast: a look reads what came after the look before, and the last object again. It sees all the same what a
// look from the last checkpoint sees.
func TestLast(t *testing.T) {
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
	o := &survey.Options{Last: &survey.Last{}}
	look := func(what string, most int) {
		t.Helper()
		mu.Lock()
		clear(reads)
		mu.Unlock()
		s, err := survey.Take(t.Context(), f, o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if want := take(t, st); s.Tail != want.Tail || s.Offset != want.Offset || string(s.Cursor) != string(want.Cursor) {
			t.Errorf("%s: %+v, not %+v", what, s, want)
		}
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
	if _, err := survey.Take(t.Context(), f, o); !errors.Is(err, fence.ErrCorrupt) {
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
