package reader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestConsumer(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	r, err := reader.Open(t.Context(), l.Mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	consume := func(c *reader.Consumer, err error) *reader.Consumer {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a := consume(r.TakeConsumer(t.Context(), "mailer"))
	if next, ok := a.Next(); ok || next != 0 {
		t.Errorf("%d, %v", next, ok)
	}
	if err := a.Commit(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	b := consume(r.Consumer(t.Context(), "mailer", fence.NewToken(7)))
	if next, ok := b.Next(); !ok || next != 5 {
		t.Errorf("%d, %v", next, ok)
	}
	if err := a.Commit(t.Context(), 6); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("%v", err)
	}
	if err := b.Commit(t.Context(), 9); err != nil {
		t.Error(err)
	}
	if _, err := r.Consumer(t.Context(), "mailer", fence.NewToken(6)); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("%v", err)
	}
	if next, ok := consume(r.TakeConsumer(t.Context(), "mailer")).Next(); !ok || next != 9 {
		t.Errorf("%d, %v", next, ok)
	}
	// The zero token, such as that of a new Lease, gives no right.
	if _, err := r.Consumer(t.Context(), "mailer", fence.Token{}); !errors.Is(err, reader.ErrOptions) {
		t.Errorf("the zero token: %v", err)
	}
	// Another name is another position.
	if c, err := r.TakeConsumer(t.Context(), "other"); err != nil {
		t.Error(err)
	} else if next, ok := c.Next(); ok {
		t.Errorf("%d", next)
	}
	for _, name := range []string{"", ".", "..", "a/b", "-x", strings.Repeat("x", 101), "ä"} {
		if _, err := r.TakeConsumer(t.Context(), name); !errors.Is(err, reader.ErrOptions) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// A position that was copied from another log is refused.
func TestConsumerOfAnotherLog(t *testing.T) {
	f := logtest.Format()
	f.Log[0] ^= 1
	l, other := logtest.New(t, logtest.Format(), nil), logtest.New(t, f, nil)
	r, err := reader.Open(t.Context(), other.Mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.TakeConsumer(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	l.Put("consumer/x.json", other.Body("consumer/x.json"))
	if r, err = reader.Open(t.Context(), l.Mem, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.TakeConsumer(t.Context(), "x"); !errors.Is(err, reader.ErrCorrupt) || !strings.Contains(err.Error(), "another log") {
		t.Errorf("%v", err)
	}
}

// A consumer that was killed goes on where its last commit was.
func ExampleReader_Consumer() {
	ctx, st := context.Background(), memstore.New(nil)
	fill(ctx, st, "one", "two", "three")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	for range 2 { // the second time after a restart
		c, err := r.TakeConsumer(ctx, "mailer")
		if err != nil {
			panic(err)
		}
		next, _ := c.Next()
		for rec, err := range r.Read(ctx, next) {
			if err != nil {
				panic(err)
			}
			fmt.Printf("%s ", rec.Value)
			if rec.Offset == 1 {
				break
			}
		}
		if err := c.Commit(ctx, 2); err != nil {
			panic(err)
		}
	}
	// Output: one two three
}
