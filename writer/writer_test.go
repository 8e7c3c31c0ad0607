package writer_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

func TestAppendReadAndTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		for i := range 10 {
			off, err := a.Append(t.Context(), recs(fmt.Sprint("a", i)), writer.Cursor([]byte{byte(i)}))
			if err != nil || off != uint64(i) {
				t.Fatal(off, err)
			}
		}
		b := e.open("b", 2, nil)
		if got := b.Recovered(); got.Offset != 10 || !bytes.Equal(got.Cursor, []byte{9}) || got.Epoch != 2 {
			t.Fatalf("recovered %+v", got)
		}
		_, err := a.Append(t.Context(), recs("zombie"))
		if kind(err) != "not" || !errors.Is(err, store.ErrPrecondition) {
			t.Fatalf("zombie's append: %v", err)
		}
		e.fenced(err, 2)
		var f *fence.FencedError
		if errors.As(err, &f); f.Key != layout.DataKey(at(1, 11)) || f.Epoch != 1 {
			t.Fatalf("%+v", f)
		}
		if off, err := b.Append(t.Context(), recs("b0", "b1")); err != nil || off != 10 {
			t.Fatal(off, err)
		}
		if got := e.Contents(); len(got) != 12 || got[11] != "b1" || got[9] != "a9" {
			t.Fatal(got)
		}
	})
}

// Opening costs six requests if nothing is unfolded, the first two at once, and the
// leader's first manifest three more.
func TestOpeningCosts(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		e.append(a, "0", "1")
		if err := a.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.open("b", 2, nil)
		want := []string{
			"get format.json", "list manifest/", "get manifest/2.json", "get data/1/2", "put data/1/2", "list manifest/",
			"list manifest/", "put manifest/3.json", "list manifest/",
		}
		got := e.sequence("b")
		slices.Sort(got[:min(2, len(got))])
		if !slices.Equal(got, want) {
			t.Errorf("requests are\n%q, want\n%q", got, want)
		}
	})
}

// A commit is one PUT, and nothing else.
func TestCommitCosts(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{BatchBytes: 1})
		e.Faulty.ResetCounts()
		const commits = 300
		var last writer.Future
		for i := range commits {
			if i%3 == 0 {
				e.append(w, "sync")
				continue
			}
			last = e.async(w, "async", writer.Cursor([]byte{1}))
		}
		if _, err := last.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := e.Faulty.Counts()
		if all, puts := c.Of("", ""), c.Of(faultstore.Put, layout.DataPrefix); all != commits || puts != commits {
			t.Errorf("%d commits took %d PUTs of %d requests: %v", commits, puts, all, c)
		}
	})
}

func TestNothingToOpen(t *testing.T) {
	st := memstore.New(nil)
	for _, err := range []error{
		second(writer.Open(t.Context(), st, fence.Token{}, nil)),
		second(writer.Open(t.Context(), nil, fence.NewToken(1), nil)),
	} {
		if n, _ := st.Len(); err == nil || n != 0 {
			t.Errorf("error is %v, %d objects were written", err, n)
		}
	}
}

func second(_ *writer.Writer, err error) error { return err }

// Open makes a log where there is none, as Init says.
func TestOpenCreatesTheLog(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		st, err := store.Sub(e.Mem, "new")
		if err != nil {
			t.Fatal(err)
		}
		w, err := writer.Open(t.Context(), st, fence.NewToken(7), options(&writer.Options{
			Init: &manifest.InitOptions{Limits: fence.Limits{Object: 1000}},
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer abandon(w)
		if w.Format().Limits.Object != 1000 || w.Epoch() != 7 || w.Recovered().Offset != 0 || len(w.Recovered().Cursor) != 0 {
			t.Errorf("%+v, epoch %d, %+v", w.Format().Limits, w.Epoch(), w.Recovered())
		}
	})
}

// The recovered cursor is the caller's own.
func TestRecoveredIsACopy(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		if _, err := a.Append(t.Context(), nil, writer.Cursor([]byte("abc"))); err != nil {
			t.Fatal(err)
		}
		b := e.open("b", 2, nil)
		copy(b.Recovered().Cursor, "xyz")
		e.append(b, "0")
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := e.Newest().Hint.Cursor; string(got) != "abc" {
			t.Errorf("the manifest says %q", got)
		}
	})
}
