package faultstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func late(l faultstore.Late) (*faultstore.Store, *memstore.Store) {
	return scripted(faultstore.Rule{Kind: faultstore.Put, Prefix: "late", Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &l}})
}

func TestT09_LateLanding(t *testing.T) {
	t.Run("by count", func(t *testing.T) {
		st, inner := late(faultstore.Late{Ops: 3})
		if err := put(st, "late", "x", store.IfAbsent()); store.OutcomeOf(err) != store.Unknown {
			t.Fatal(err)
		}
		for i := range 2 {
			if got := body(t, st, "late"); got != "-" {
				t.Fatalf("landed %d requests later: %q", i+1, got)
			}
		}
		// The third finds it due, and it lands before the third is applied.
		if got := body(t, st, "late"); got != "x" {
			t.Fatalf("has not landed: %q", got)
		}
		if body(t, inner, "late") != "x" {
			t.Error("still late")
		}
	})
	t.Run("by time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, _ := late(faultstore.Late{After: time.Minute})
			_ = put(st, "late", "x", store.IfAbsent())
			time.Sleep(time.Minute - time.Nanosecond)
			if got := body(t, st, "late"); got != "-" {
				t.Fatalf("landed early: %q", got)
			}
			time.Sleep(time.Nanosecond)
			if got := body(t, st, "late"); got != "x" {
				t.Fatalf("has not landed: %q", got)
			}
		})
	})
	t.Run("by hand, twice, condition included", func(t *testing.T) {
		st, inner := late(faultstore.Late{Copies: 2})
		_ = put(st, "late", "x", store.IfAbsent())
		for range 100 {
			_ = body(t, st, "late")
		}
		if n := st.Release(t.Context(), func(op faultstore.Op) bool { return op.Key != "late" }); n != 0 {
			t.Fatalf("%d landed that were not chosen", n)
		}
		if n := st.Release(t.Context(), nil); n != 2 {
			t.Fatalf("%d landed", n)
		}
		if got := body(t, inner, "late"); got != "x" {
			t.Errorf("the store holds %q", got)
		}
		var outcomes []store.Outcome
		for _, e := range st.Log() {
			if e.Landed {
				outcomes = append(outcomes, store.OutcomeOf(e.Err))
			}
		}
		if !slices.Equal(outcomes, []store.Outcome{store.Applied, store.Refused}) {
			t.Errorf("landings ended %v", outcomes)
		}
	})
}

func TestT09_LateCopies(t *testing.T) {
	t.Run("duplicate of an applied one", func(t *testing.T) {
		st, inner := scripted(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Late: &faultstore.Late{Ops: 2}}})
		if err := put(st, "k", "first", store.Condition{}); err != nil {
			t.Fatal(err)
		}
		if err := put(st, "k", "second", store.Condition{}); err != nil {
			t.Fatal(err)
		}
		if got := body(t, st, "k"); got != "first" || body(t, inner, "k") != "first" {
			t.Errorf("the duplicate did not land: %q", got)
		}
	})
	t.Run("sender's buffer and context are gone", func(t *testing.T) {
		st, inner := late(faultstore.Late{})
		ctx, cancel := context.WithCancel(t.Context())
		buf := []byte("x")
		_, _ = st.Put(ctx, "late", buf, &store.PutOptions{If: store.IfAbsent()})
		buf[0] = 'y'
		cancel()
		st.Crash()
		if n := st.Client("other").Release(ctx, nil); n != 1 || body(t, inner, "late") != "x" {
			t.Errorf("%d landed, the store holds %q", n, body(t, inner, "late"))
		}
	})
	t.Run("delete", func(t *testing.T) {
		st, inner := scripted(faultstore.Rule{Kind: faultstore.Delete, Fault: faultstore.Fault{Drop: true, Late: &faultstore.Late{Ops: 1}}})
		_ = put(st, "a", "x", store.Condition{})
		if err := st.Delete(t.Context(), "a", "b"); err == nil {
			t.Fatal("the reply came through")
		}
		if body(t, inner, "a") != "x" || body(t, st, "a") != "-" {
			t.Error("the late delete did not land when it was due")
		}
	})
	t.Run("upload", func(t *testing.T) {
		st, inner := scripted(faultstore.Rule{Kind: faultstore.Upload, Fault: faultstore.Fault{Drop: true, Late: &faultstore.Late{}}})
		if _, err := st.Upload(t.Context(), "u", strings.NewReader("x"), nil); err == nil || body(t, inner, "u") != "-" {
			t.Fatalf("%v, %q", err, body(t, inner, "u"))
		}
		st.Release(t.Context(), nil)
		if got := body(t, inner, "u"); got != "x" {
			t.Errorf("the store holds %q", got)
		}
	})
}
