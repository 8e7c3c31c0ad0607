package store_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

func sub(t *testing.T, st store.Store, prefix string) store.Store {
	t.Helper()
	s, err := store.Sub(st, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSub(t *testing.T) {
	ctx, inner := t.Context(), memstore.New(&memstore.Options{Name: "mem://bucket"})
	st := sub(t, inner, "/team/orders/")
	info, err := st.Put(ctx, "data/1", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	if err != nil || info.Key != "data/1" || info.Version == "" {
		t.Fatalf("%+v, %v", info, err)
	}
	if _, err := st.Upload(ctx, "data/2", strings.NewReader("yy"), nil); err != nil {
		t.Fatal(err)
	}
	obj, err := st.Get(ctx, "data/1", &store.GetOptions{})
	if err != nil || obj.Key != "data/1" || obj.Version != info.Version {
		t.Fatalf("%+v, %v", obj, err)
	}
	if b, _ := io.ReadAll(obj.Body); string(b) != "x" {
		t.Errorf("read %q", b)
	}
	if _, err := inner.Put(ctx, "team/ordersx/1", nil, nil); err != nil {
		t.Fatal(err)
	}
	list := func(prefix string, opts *store.ListOptions) (keys []string) {
		for info, err := range st.List(ctx, prefix, opts) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, info.Key)
		}
		slices.Sort(keys)
		return keys
	}
	if got := list("", nil); !slices.Equal(got, []string{"data/1", "data/2"}) {
		t.Errorf("listed %v", got)
	}
	// The hint gets through: some listings of a memstore take it.
	for n := 0; ; n++ {
		got := list("data/", &store.ListOptions{StartAfter: "data/1"})
		if slices.Equal(got, []string{"data/2"}) {
			break
		}
		if n == 64 || !slices.Equal(got, []string{"data/1", "data/2"}) {
			t.Fatalf("listed %v", got)
		}
	}
	for range st.List(ctx, "", nil) {
		break // must not go on
	}
	if err := st.Delete(ctx, "data/1", "data/2"); err != nil {
		t.Fatal(err)
	}
	if got := list("", nil); got != nil {
		t.Errorf("left are %v", got)
	}
	if n, _ := inner.Len(); n != 1 {
		t.Errorf("%d objects are left below the prefix's neighbour", n)
	}
	if got := st.Traits().Name; got != "mem://bucket/team/orders" {
		t.Errorf("it calls itself %q", got)
	}
}

func TestSubOfSub(t *testing.T) {
	inner := memstore.New(nil)
	st := sub(t, sub(t, inner, "a"), "b/c")
	if _, err := st.Put(t.Context(), "k", nil, nil); err != nil {
		t.Fatal(err)
	}
	if obj, err := inner.Get(t.Context(), "a/b/c/k", nil); err != nil || obj.Body.Close() != nil {
		t.Error(err)
	}
	for _, none := range []string{"", "/", "//"} {
		if sub(t, inner, none) != store.Store(inner) {
			t.Errorf("Sub with %q is not the store itself", none)
		}
	}
}

// Nothing that is not below the prefix can be reached.
func TestSubCannotBeLeft(t *testing.T) {
	ctx, inner := t.Context(), store.Store(struct{ store.Store }{}) // whatever reaches it panics
	for _, prefix := range []string{"..", "a/../b", "a//b", `a\b`} {
		if _, err := store.Sub(inner, prefix); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Sub with %q: %v", prefix, err)
		}
	}
	st := sub(t, inner, "a")
	for _, key := range []string{"../secret", "/secret", "", "b/../../secret", "."} {
		_, get := st.Get(ctx, key, nil)
		_, put := st.Put(ctx, key, nil, nil)
		_, upload := st.Upload(ctx, key, strings.NewReader(""), nil)
		var list error
		for _, err := range st.List(ctx, "../", nil) {
			list = err
		}
		for op, err := range map[string]error{"get": get, "put": put, "upload": upload, "list": list, "delete": st.Delete(ctx, "fine", key)} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s %q: %v", op, key, err)
			}
		}
	}
}

func TestConditions(t *testing.T) {
	if _, ok := (store.Condition{}).Match(); ok {
		t.Error("the zero Condition has a version")
	}
	if v, ok := store.IfMatch("v").Match(); !ok || v != "v" {
		t.Error("IfMatch lost its version")
	}
	// An empty version must not turn a swap into an overwrite.
	if _, ok := store.IfMatch("").Match(); !ok {
		t.Error("IfMatch of no version is no condition")
	}
	if _, err := memstore.New(nil).Put(t.Context(), "k", nil, &store.PutOptions{If: store.IfMatch("")}); store.OutcomeOf(err) != store.Refused {
		t.Errorf("%v", err)
	}
	for cond, want := range map[store.Condition]string{{}: "always", store.IfAbsent(): "if absent", store.IfMatch("v"): "if match"} {
		if cond.String() != want {
			t.Errorf("%q, want %q", cond, want)
		}
	}
}
