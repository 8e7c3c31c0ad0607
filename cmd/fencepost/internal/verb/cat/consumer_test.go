package cat

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
)

// TestConsumerIsFenced: a cat whose name was taken over ends, and never sets the position back.
func TestConsumerIsFenced(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	l.Lead(10)
	r, err := reader.Open(t.Context(), l.Mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := &consumer{name: "mail"}, &consumer{name: "mail"}
	var from uint64
	ctx, err := first.open(t.Context(), r, &from)
	if err != nil {
		t.Fatal(err)
	}
	later, err := second.open(t.Context(), r, &from)
	if err != nil {
		t.Fatal(err)
	}
	second.printed(10)
	if err := second.close(later, nil); err != nil {
		t.Fatal(err)
	}
	first.printed(2)
	<-ctx.Done() // it finds out within a second
	if err := context.Cause(ctx); !strings.Contains(err.Error(), "fenced") {
		t.Errorf("%v", err)
	}
	if err := first.close(t.Context(), nil); !errors.Is(err, fence.ErrFenced) {
		t.Errorf("%v", err)
	}
	c, err := r.TakeConsumer(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	if next, ok := c.Next(); next != 10 || !ok {
		t.Errorf("the position is %d, %t", next, ok)
	}
}
