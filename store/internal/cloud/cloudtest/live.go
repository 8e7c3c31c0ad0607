package cloudtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/store/storetest"
)

// Open opens the store of a URL.
func Open(t testing.TB, url string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Conformance runs the suite against a store, over clients with connections of their own.
func Conformance(t *testing.T, url string, quick bool) {
	storetest.Run(t, func(tb storetest.TB) store.Store {
		st, err := store.Open(tb.Context(), url)
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		return st
	}, &storetest.Options{Quick: quick})
}

// Probe probes a live store, which must be accepted.
func Probe(t *testing.T, url string) {
	t.Helper()
	report, err := probe.Run(t.Context(), Open(t, url), &probe.Options{
		Open: func(ctx context.Context) (store.Store, error) { return store.Open(ctx, url) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	for _, promise := range []string{probe.Create, probe.CreateAtomic, probe.Swap, probe.SwapAtomic, probe.ListWrite} {
		if !slices.Contains(report.Kept, promise) {
			t.Errorf("the report does not say that %q is kept", promise)
		}
	}
	if !report.ConditionalUpload || report.Leftover != 0 {
		t.Errorf("conditional upload %t, %d objects left", report.ConditionalUpload, report.Leftover)
	}
}

// DeadServer writes to a server that is killed: the outcome is unknown, and is settled when
// the server is back.
func DeadServer(t *testing.T, url string, kill, restart func()) {
	t.Helper()
	st := Open(t, url)
	kill()
	if err := put(t, st, []byte("v")); err == nil || store.OutcomeOf(err) != store.Unknown {
		t.Errorf("outcome %v of %v, want unknown", store.OutcomeOf(err), err)
	}
	restart()
	if _, err := store.Create(t.Context(), st, "k", []byte("v"), nil); err != nil {
		t.Error(err)
	}
}

// NoBucket sends requests to a bucket that is missing. Those in named get an error that
// names it.
func NoBucket(t *testing.T, url, bucket string, named ...string) {
	t.Helper()
	st := Open(t, url)
	_, _, read := Get(t, st, "k", nil)
	for op, err := range map[string]error{"put": put(t, st, []byte("v")), "get": read, "list": ListErr(t, st), "delete": st.Delete(t.Context(), "k")} {
		if slices.Contains(named, op) && (!errors.Is(err, store.ErrNoBucket) || !strings.Contains(err.Error(), bucket)) {
			t.Errorf("%s: %v does not say that there is no bucket %s", op, err, bucket)
		}
	}
}
