package s3store_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// TestCopyFrom: a copy has the source's content, replaces nothing, and is of the version that
// was seen.
func TestCopyFrom(t *testing.T) {
	srv := start(t, nil)
	st := open(t, srv)
	from, err := store.Sub(st, "a")
	if err != nil {
		t.Fatal(err)
	}
	to, err := store.Sub(st, "b/c")
	if err != nil {
		t.Fatal(err)
	}
	const key = "file/x y+z%20ü?#.parquet"
	found := put(t, from, key, "content", store.Condition{})
	c, ok := to.(store.Copier)
	if !ok {
		t.Fatal("it is no Copier")
	}
	info, err := c.CopyFrom(t.Context(), "copy", from, found)
	if err != nil || info.Key != "copy" || info.Size != 7 || info.Version == "" {
		t.Fatalf("%+v, %v", info, err)
	}
	if body, _ := get(t, st, "b/c/copy", nil); body != "content" {
		t.Errorf("%q", body)
	}
	if n := srv.Counts().Of(s3stub.CopyObject); n != 1 {
		t.Errorf("%d copies", n)
	}
	if _, err := c.CopyFrom(t.Context(), "copy", from, found); store.OutcomeOf(err) != store.Refused {
		t.Errorf("again: %v", err)
	}
	put(t, from, key, "newer", store.Condition{})
	if _, err := c.CopyFrom(t.Context(), "other", from, found); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("of an old version: %v", err)
	}
	found.Key = "none"
	if _, err := c.CopyFrom(t.Context(), "third", from, found); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
	// Another service, and none.
	elsewhere := open(t, start(t, nil))
	for name, other := range map[string]store.Store{"another endpoint": elsewhere, "memory": memstore.New(nil)} {
		if _, err := c.CopyFrom(t.Context(), "fourth", other, found); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.CopyFrom(t.Context(), "/bad", from, found); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a bad key: %v", err)
	}
}
