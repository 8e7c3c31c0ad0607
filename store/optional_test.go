package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// aborter is a store in which uploads for keys are under way.
type aborter struct {
	store.Store
	keys []string
}

func (a *aborter) AbortUploads(_ context.Context, prefix string, doomed func(store.Info) bool) (int, error) {
	before := len(a.keys)
	a.keys = slices.DeleteFunc(a.keys, func(key string) bool {
		return len(key) >= len(prefix) && key[:len(prefix)] == prefix && doomed(store.Info{Key: key})
	})
	return before - len(a.keys), nil
}

func TestAbortUploads(t *testing.T) {
	all := func(store.Info) bool { return true }
	if n, err := sub(t, memstore.New(nil), "a").(store.UploadAborter).AbortUploads(t.Context(), "file/", all); n != 0 || err != nil {
		t.Errorf("a store without parts: %d, %v", n, err)
	}
	a := &aborter{Store: memstore.New(nil), keys: []string{"file/1", "orders/file/1", "orders/file/2", "orders/list/3", "x"}}
	st, err := store.Sub(a, "orders")
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	n, err := st.(store.UploadAborter).AbortUploads(t.Context(), "file/", func(info store.Info) bool {
		seen = append(seen, info.Key)
		return info.Key == "file/1"
	})
	slices.Sort(seen)
	if n != 1 || err != nil || !slices.Equal(seen, []string{"file/1", "file/2"}) || !slices.Equal(a.keys, []string{"file/1", "orders/file/2", "orders/list/3", "x"}) {
		t.Errorf("%d, %v; it was asked of %q, left are %q", n, err, seen, a.keys)
	}
	if _, err := st.(store.UploadAborter).AbortUploads(t.Context(), "../x/", all); err == nil {
		t.Error("it leaves its prefix")
	}
}

// wrapped stands in front of a store.
type wrapped struct{ store.Store }

func (w wrapped) Unwrap() store.Store { return w.Store }

// TestAs finds what the store below implements, through wrappers and views, unless one does not
// say what is below it.
func TestAs(t *testing.T) {
	a := &aborter{Store: memstore.New(nil), keys: []string{"orders/file/1"}}
	closed := struct{ store.Store }{a}
	for name, tt := range map[string]struct {
		st   store.Store
		want bool
	}{
		"itself": {a, true}, "wrapped": {wrapped{a}, true}, "twice": {wrapped{wrapped{a}}, true},
		"embedded": {closed, false}, "wrapped embedded": {wrapped{closed}, false}, "none": {memstore.New(nil), false}, "nil": {nil, false},
	} {
		if found, ok := store.As[store.UploadAborter](tt.st); ok != tt.want || ok && found != store.UploadAborter(a) {
			t.Errorf("%s: %v, %v", name, found, ok)
		}
	}
	// A view of a wrapper finds it too.
	view, ok := store.As[store.UploadAborter](sub(t, wrapped{a}, "orders"))
	if !ok {
		t.Fatal("a view is none")
	}
	if n, err := view.AbortUploads(t.Context(), "file/", func(store.Info) bool { return true }); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
