package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/fencepost/fencepost/store"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		err  store.Error
		want string
	}{
		{store.Error{Op: "get", Key: "k", Kind: store.ErrNotFound}, `store: get "k": no such object`},
		{store.Error{Op: "put", Key: "k", Status: 503, Code: "SlowDown"}, `store: put "k": 503 SlowDown`},
		{store.Error{Op: "put", Key: "k", Status: 500}, `store: put "k": status 500`},
		{store.Error{Op: "put", Key: "k", Code: "Busy"}, `store: put "k": Busy`},
		{
			store.Error{Op: "open", Key: "s3://b", Kind: store.ErrInvalid, Err: io.EOF, Hint: "write it so"},
			`store: open "s3://b": invalid request: EOF (write it so)`,
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

func TestErrorUnwraps(t *testing.T) {
	err := fmt.Errorf("outer: %w", &store.Error{Op: "get", Key: "k", Kind: store.ErrNotFound, Err: io.EOF})
	var e *store.Error
	if !errors.Is(err, store.ErrNotFound) || !errors.Is(err, io.EOF) || errors.Is(err, store.ErrDenied) || !errors.As(err, &e) || e.Key != "k" {
		t.Errorf("%v", err)
	}
	bare := &store.Error{}
	if errors.Is(bare, store.ErrNotFound) || len(bare.Unwrap()) != 0 {
		t.Error("an error without kind and cause has some")
	}
}

func TestOutcomeOf(t *testing.T) {
	kind := func(k error) error { return fmt.Errorf("outer: %w", &store.Error{Kind: k}) }
	for _, c := range []struct {
		err  error
		want store.Outcome
		text string
	}{
		{nil, store.Applied, "applied"},
		{kind(store.ErrPrecondition), store.Refused, "refused"},
		{&store.ConflictError{}, store.Refused, "refused"},
		{kind(store.ErrDenied), store.Rejected, "rejected"},
		{kind(store.ErrNoBucket), store.Rejected, "rejected"},
		{kind(store.ErrUnsupported), store.Rejected, "rejected"},
		{kind(store.ErrInvalid), store.Rejected, "rejected"},
		// Everything that is not one of these may have been applied.
		{kind(nil), store.Unknown, "unknown"},
		{kind(store.ErrNotFound), store.Unknown, "unknown"},
		{&store.Error{Status: 409, Code: "ConditionalRequestConflict"}, store.Unknown, "unknown"},
		{&store.Error{Status: 503}, store.Unknown, "unknown"},
		{context.Canceled, store.Unknown, "unknown"},
		{io.ErrUnexpectedEOF, store.Unknown, "unknown"},
		{errors.Join(kind(store.ErrPrecondition), store.ErrUnknown), store.Unknown, "unknown"},
	} {
		if got := store.OutcomeOf(c.err); got != c.want || got.String() != c.text {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	var zero store.Outcome
	if zero != store.Unknown {
		t.Error("the zero Outcome claims to know something")
	}
}
