package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

func newLog(t testing.TB) *memstore.Store {
	t.Helper()
	return logtest.New(t, logtest.Format(), nil).Mem
}

func open(t testing.TB, st store.Store, epoch fence.Epoch) *writer.Writer {
	t.Helper()
	return openUntil(context.Background(), t, st, epoch)
}

// openUntil opens a writer whose term ends with until.
func openUntil(until context.Context, t testing.TB, st store.Store, epoch fence.Epoch) *writer.Writer {
	t.Helper()
	w, err := writer.Open(t.Context(), st, fence.NewToken(epoch), &writer.Options{Concurrency: 2, BatchBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Until(until)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Close(ctx)
	})
	return w
}

func contents(t testing.TB, st store.Store) string {
	t.Helper()
	all, err := logtest.Read(st, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "")
}

// stuck is a store that applies the writes of some log objects, or not, and never
// answers.
type stuck struct {
	store.Store
	from  uint64 // the first slot, 0 for none
	apply bool
	// hung: the first slot was asked for. before is how many slots before it were put.
	hung   atomic.Bool
	before atomic.Int32
}

func (s *stuck) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	p, ok := layout.ParseDataKey(key)
	if ok && p.Epoch == 1 && s.from > 0 && p.Seq >= s.from {
		if s.apply {
			if _, err := s.Store.Put(ctx, key, body, opts); err != nil {
				return store.Info{}, err
			}
		}
		if p.Seq == s.from {
			s.hung.Store(true)
		}
		<-ctx.Done()
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: ctx.Err()}
	}
	info, err := s.Store.Put(ctx, key, body, opts)
	if ok && p.Epoch == 1 {
		s.before.Add(1)
	}
	return info, err
}

// lost reports whether the term may end. If the first slot, or one before it, was not asked for by then, the writer
// never asks for it, and knows that it has committed nothing after it either.
func (s *stuck) lost() bool { return s.hung.Load() && uint64(s.before.Load()) == s.from-1 }

// lines of such a length that a batch has some of them.
func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", 8000))
	}
	return b.String()
}

// TestLostTerm loses the term while requests have got no answer, whether or not
// they were applied, and goes on in the next. The input cannot go back.
func TestLostTerm(t *testing.T) {
	for _, apply := range []bool{false, true} {
		for _, source := range []string{"", "somewhere"} {
			t.Run(fmt.Sprintf("applied=%v/source=%q", apply, source), func(t *testing.T) {
				st := &stuck{Store: newLog(t), from: 3, apply: apply}
				want := lines(500)
				f := New(NewInput(io.MultiReader(strings.NewReader(want)), "x", Lines), source, Hooks{})
				until, lose := context.WithCancelCause(t.Context())
				lost := errors.New("deposed")
				go func() {
					for !st.lost() && t.Context().Err() == nil {
						time.Sleep(time.Millisecond)
					}
					lose(lost)
				}()
				w := openUntil(until, t, st, 1)
				err := f.Work(until, w)
				if !errors.Is(err, lost) {
					t.Fatal(err)
				}
				// fencepost.Run does this.
				_ = w.Close(until)
				if source == "" {
					var unknown *UnknownError
					if !errors.As(err, &unknown) || !errors.As(f.Fatal(), &unknown) {
						t.Fatalf("%v, fatal %v", err, f.Fatal())
					}
					got := f.Stats()
					if unknown.Committed != got.Records || unknown.From != got.Position || unknown.Unknown == 0 || unknown.To <= unknown.From {
						t.Errorf("%+v beside %+v", unknown, got)
					}
					if have := contents(t, st.Store); !strings.HasPrefix(have, want[:got.Position]) || !strings.HasPrefix(want, have) || int64(len(have)) > unknown.To {
						t.Errorf("the log has %d bytes, certain are %d, possible %d", len(have), got.Position, unknown.To)
					}
					// It stays so.
					if err := f.Work(t.Context(), open(t, st.Store, 2)); !errors.Is(err, f.Fatal()) {
						t.Error(err)
					}
					return
				}
				if f.Fatal() != nil {
					t.Fatal(f.Fatal())
				}
				w = open(t, st.Store, 2)
				if err := f.Work(t.Context(), w); err != nil {
					t.Fatal(err)
				}
				if err := w.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := contents(t, st.Store); got != want {
					t.Errorf("the log has %d bytes, not the %d of the input", len(got), len(want))
				}
				if got := f.Stats(); got.Records != 500 || got.Bytes != int64(len(want)) || got.End != 500 || got.Position != int64(len(want)) {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// TestFencedWithoutCursor: a successor's seal says for certain what was not
// committed, so feeding goes on without a cursor.
func TestFencedWithoutCursor(t *testing.T) {
	st := newLog(t)
	r, pipe := io.Pipe()
	f := New(NewInput(r, "x", Lines), "", Hooks{})
	w := open(t, st, 1)
	done := make(chan error, 1)
	go func() { done <- f.Work(t.Context(), w) }()
	if _, err := pipe.Write([]byte("a\nb\n")); err != nil {
		t.Fatal(err)
	}
	for contents(t, st) != "a\nb\n" {
		time.Sleep(time.Millisecond)
	}
	other := open(t, st, 2)
	if _, err := other.Append(t.Context(), [][]byte{[]byte("between\n")}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = pipe.Write([]byte("c\nd\n")); pipe.Close() }()
	if err := <-done; !errors.Is(err, writer.ErrFenced) {
		t.Fatal(err)
	}
	if f.Fatal() != nil {
		t.Fatal(f.Fatal())
	}
	w = open(t, st, 3)
	if err := f.Work(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, st); got != "a\nb\nbetween\nc\nd\n" {
		t.Errorf("%q", got)
	}
	if got := f.Stats(); got.Records != 4 || got.Bytes != 8 || got.End != 5 {
		t.Errorf("%+v", got)
	}
}

// TestOthersFeedToo: two processes feed the same source in turns, with batches
// that are not cut alike.
func TestOthersFeedToo(t *testing.T) {
	st := newLog(t)
	want := lines(100)
	a := New(NewInput(strings.NewReader(want), "x", Lines), "same", Hooks{})
	// It got only part of it: the rest comes later.
	r, pipe := io.Pipe()
	b := New(NewInput(r, "x", Lines), "same", Hooks{})
	go func() { _, _ = pipe.Write([]byte(want[:100000])); pipe.Close() }()
	w := open(t, st, 1)
	if err := b.Work(t.Context(), w); err != nil { // ends in the midst of a line
		t.Fatal(err)
	}
	if err := a.Work(t.Context(), open(t, st, 2)); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, st); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

func TestCursor(t *testing.T) {
	c := Cursor{Source: "a", Format: Lines}
	full := Cursor{"a", Lines, 7, 9}
	if got, err := c.check(full.encode()); err != nil || got != full {
		t.Error(got, err)
	}
	if got, err := c.check(nil); err != nil || got != c {
		t.Error(got, err)
	}
	for says, bad := range map[string][]byte{
		`source "b"`:      Cursor{"b", Lines, 7, 9}.encode(),
		"--format frames": Cursor{"a", Frames, 7, 9}.encode(),
		"another program": []byte("kafka:17"),
		`has set, "{}"`:   []byte("{}"),
		`"offset\":-1`:    []byte(`{"source":"a","format":"lines","offset":-1}`),
	} {
		if _, err := c.check(bad); !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := c.check(bytes.Repeat([]byte("x"), 4000)); err == nil || len(err.Error()) > 400 {
		t.Error("a long cursor is not cut short")
	}
}
