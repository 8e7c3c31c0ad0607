package store_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/storetest"
)

// A store with hooks behaves like the store below.
func TestHookedConforms(t *testing.T) {
	mem := memstore.New(nil)
	storetest.Run(t, func(storetest.TB) store.Store {
		return store.Hooked(mem, store.Hooks{Answered: func(store.Answer) {}}, nil)
	}, &storetest.Options{Quick: true})
}

// Each request is told once, with its outcome and its bytes.
func TestHookedTellsEachRequest(t *testing.T) {
	var mu sync.Mutex
	var all []store.Answer
	told := func() store.Answer {
		mu.Lock()
		defer mu.Unlock()
		if len(all) != 1 {
			t.Fatalf("told %+v", all)
		}
		a := all[0]
		all = nil
		return a
	}
	mem := memstore.New(nil)
	st := store.Hooked(mem, store.Hooks{Answered: func(a store.Answer) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, a)
	}}, nil)
	ctx := t.Context()

	_, err := st.Put(ctx, "a", []byte("body"), nil)
	if a := told(); err != nil || a.Op != "put" || a.Key != "a" || a.Err != nil || a.Sent != 4 {
		t.Errorf("%v: %+v", err, a)
	}
	_, err = st.Put(ctx, "a", []byte("body"), &store.PutOptions{If: store.IfAbsent()})
	if a := told(); !errors.Is(err, store.ErrPrecondition) || !errors.Is(a.Err, err) {
		t.Errorf("%v: %+v", err, a)
	}
	_, err = st.Upload(ctx, "b", strings.NewReader("longer body"), nil)
	if a := told(); err != nil || a.Op != "upload" || a.Sent != 11 {
		t.Errorf("%v: %+v", err, a)
	}
	obj, err := st.Get(ctx, "b", nil)
	if err != nil || len(all) != 0 {
		t.Fatalf("%v: told before the body is read: %+v", err, all)
	}
	_, _ = io.CopyN(io.Discard, obj.Body, 6)
	_ = obj.Body.Close()
	_ = obj.Body.Close()
	if a := told(); a.Op != "get" || a.Received != 6 || a.Err != nil {
		t.Errorf("%+v", a)
	}
	_, err = st.Get(ctx, "none", nil)
	if a := told(); !errors.Is(a.Err, store.ErrNotFound) || !errors.Is(a.Err, err) {
		t.Errorf("%v: %+v", err, a)
	}
	for range st.List(ctx, "", nil) {
		break
	}
	if a := told(); a.Op != "list" || a.Objects != 1 {
		t.Errorf("%+v", a)
	}
	if a := st.Delete(ctx, "a", "b"); a != nil || told().Objects != 2 {
		t.Errorf("delete: %v", a)
	}
	if store.Hooked(mem, store.Hooks{}, nil) != store.Store(mem) {
		t.Error("without hooks it is another store")
	}
}

// optional is a store with what a driver may implement besides.
type optional struct{ store.Store }

func (optional) AbortUploads(context.Context, string, func(store.Info) bool) (int, error) {
	return 3, nil
}

func (optional) Expiries(context.Context, string) ([]store.Expiry, error) {
	return []store.Expiry{{Rule: "old"}}, nil
}

// What a driver can do besides, it can do with hooks too.
func TestHookedKeepsOptionalInterfaces(t *testing.T) {
	for _, c := range []struct {
		st    store.Store
		parts int
		rules int
	}{{memstore.New(nil), 0, 0}, {optional{memstore.New(nil)}, 3, 1}} {
		st := store.Hooked(c.st, store.Hooks{Answered: func(store.Answer) {}}, nil)
		n, err := st.(store.UploadAborter).AbortUploads(t.Context(), "", nil)
		rules, rerr := st.(store.ExpiryTeller).Expiries(t.Context(), "")
		if n != c.parts || len(rules) != c.rules || err != nil || rerr != nil {
			t.Errorf("%T: %d parts, %v, %v, %v", c.st, n, rules, err, rerr)
		}
	}
}
