package manifest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// A log is not made in a folder that another log keeps for itself, wherever the views begin that show the place.
func TestInitWithinALog(t *testing.T) {
	bucket := faultstore.New(memstore.New(nil), nil)
	sub := func(st store.Store, prefix string) store.Store {
		t.Helper()
		st, err := store.Sub(st, prefix)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	outer := sub(bucket, "team/orders")
	f, err := manifest.Init(t.Context(), outer, nil)
	if err != nil {
		t.Fatal(err)
	}
	probed := &manifest.InitOptions{Probed: f.Probe}
	before := keys(t, bucket)
	for name, st := range map[string]store.Store{
		"in one step":  sub(bucket, "team/orders/data"),
		"deeper":       sub(bucket, "team/orders/data/00000000000000000001/x"),
		"in two":       sub(sub(bucket, "team"), "orders/lock"),
		"of the log's": sub(outer, "manifest/x"),
		"hooked":       sub(store.Hooked(outer, store.Hooks{Answered: func(store.Answer) {}}, nil), "tmp"),
		"upper case":   sub(outer, "DATA"),
	} {
		if _, err := manifest.Init(t.Context(), st, probed); !errors.Is(err, manifest.ErrOptions) || !strings.Contains(err.Error(), "lies within the log in mem://") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := keys(t, bucket); after != before {
		t.Errorf("%s became %s", before, after)
	}
	for _, prefix := range []string{"data", "team/data", "team/orders/partition/000001", "team/orders/eu", "other/data/lock"} {
		if _, err := manifest.Init(t.Context(), sub(bucket, prefix), probed); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

// Whether there is a log above cannot be told: then none is made. Whose rights are those for the place makes one.
func TestInitWithinWhatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		answer error
		made   bool
	}{{&store.Error{Op: "get", Kind: store.ErrDenied}, true}, {context.DeadlineExceeded, false}} {
		bucket := faultstore.New(memstore.New(nil), nil)
		bucket.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Kind == faultstore.Get && op.Key == "format.json" {
				return faultstore.Fault{Drop: true, Err: c.answer}
			}
			return faultstore.Fault{}
		})
		st, err := store.Sub(bucket, "data")
		if err != nil {
			t.Fatal(err)
		}
		_, err = manifest.Init(t.Context(), st, &manifest.InitOptions{Settle: &store.SettleOptions{Reads: 1}})
		if (err == nil) != c.made {
			t.Errorf("%v: %v", c.answer, err)
		}
	}
}

func keys(t *testing.T, st store.Store) string {
	t.Helper()
	var all []string
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Key)
	}
	return strings.Join(all, " ")
}

// What a later key of a log would break, Init refuses, and nothing else: compact once failed for ever where init had worked.
func TestInitInALongPrefix(t *testing.T) {
	bucket := memstore.New(nil)
	f, err := manifest.Init(t.Context(), bucket, nil)
	if err != nil {
		t.Fatal(err)
	}
	probed := manifest.InitOptions{Probed: f.Probe}
	place := func(n int) store.Store {
		t.Helper()
		half := strings.Repeat("p", n/2)
		st, err := store.Sub(bucket, half)
		if err == nil {
			st, err = store.Sub(st, strings.Repeat("q", n-len(half)-1))
		}
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	longest := store.MaxKey - manifest.MaxKey - 1
	if _, err := manifest.Init(t.Context(), place(longest+1), &probed); !errors.Is(err, manifest.ErrOptions) || !strings.Contains(err.Error(), "at most 909") {
		t.Errorf("%v", err)
	}
	st := place(longest)
	if _, err := manifest.Init(t.Context(), st, &probed); err != nil {
		t.Fatal(err)
	}
	r, err := reader.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.TakeConsumer(t.Context(), strings.Repeat("c", 100)); err != nil {
		t.Error(err)
	}
	if _, err := r.TakeConsumer(t.Context(), strings.Repeat("c", 101)); !errors.Is(err, reader.ErrOptions) {
		t.Errorf("a longer key: %v", err)
	}
	files := probed
	files.Files = place(store.MaxKey - 32 - 90) // an id and the longest name of a file
	if _, err := manifest.Init(t.Context(), memstore.New(nil), &files); !errors.Is(err, manifest.ErrOptions) || !strings.Contains(err.Error(), "a shorter one") {
		t.Errorf("%v", err)
	}
}
