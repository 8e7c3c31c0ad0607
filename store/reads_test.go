package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func TestRetry(t *testing.T) {
	flaky := &store.Error{Op: "get", Key: "k", Status: 503}
	inWorld(t, nil, func(w *world) {
		tries := 0
		f := func(fails int, with error) func(context.Context) error {
			tries = 0
			return func(context.Context) error {
				if tries++; tries <= fails {
					return with
				}
				return nil
			}
		}
		if err := store.Retry(w.Context(), w.opts, f(7, flaky)); err != nil || tries != 8 {
			t.Errorf("seven failures: %v after %d tries", err, tries)
		}
		if err := store.Retry(w.Context(), w.opts, f(8, flaky)); !errors.Is(err, flaky) || tries != 8 {
			t.Errorf("eight failures: %v after %d tries", err, tries)
		}
		w.opts.Reads = 2
		if err := store.Retry(w.Context(), w.opts, f(3, flaky)); !errors.Is(err, flaky) || tries != 2 {
			t.Errorf("two tries allowed: %v after %d", err, tries)
		}
		for _, kind := range []error{
			store.ErrNotFound, store.ErrNotModified, store.ErrRange, store.ErrTooLarge,
			store.ErrUnsupported, store.ErrDenied, store.ErrNoBucket, store.ErrInvalid,
		} {
			if err := store.Retry(w.Context(), w.opts, f(9, &store.Error{Kind: kind})); !errors.Is(err, kind) || tries != 1 {
				t.Errorf("an answer: %v after %d tries", err, tries)
			}
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(w.Context())
		w.opts.Reads = 100
		err := store.Retry(ctx, w.opts, func(context.Context) error { cancel(enough); return flaky })
		if !errors.Is(err, enough) || !errors.Is(err, flaky) {
			t.Errorf("cancelled in the pause: %v", err)
		}
	})
}

func TestReadWhole(t *testing.T) {
	inWorld(t, []faultstore.Rule{
		on("get", 1, overloaded),
		on("get", 2, faultstore.Fault{Cut: true, Keep: 2}),
		on("get", 3, faultstore.Fault{Cut: true, Keep: 2, Err: faultstore.ErrReset}),
	}, func(w *world) {
		want := w.put("body")
		got, info, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Limit: 4, Settle: w.opts})
		if err != nil || string(got) != "body" || info.Version != want.Version {
			t.Errorf("%q, %+v, %v", got, info, err)
		}
		w.requests(0, 4)
		if _, info, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Limit: 3, Settle: w.opts}); !errors.Is(err, store.ErrTooLarge) || info.Size != 4 {
			t.Errorf("one byte over the limit: %+v, %v", info, err)
		}
		w.put("")
		if got, _, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Limit: 0, Settle: w.opts}); err != nil || len(got) != 0 {
			t.Errorf("an empty object: %q, %v", got, err)
		}
		w.remove()
		if got, _, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Limit: 3, Settle: w.opts}); !errors.Is(err, store.ErrNotFound) || got != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	inWorld(t, []faultstore.Rule{each("get", faultstore.Fault{Cut: true, Keep: 2})}, func(w *world) {
		w.put("body")
		if got, _, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Limit: 9, Settle: w.opts}); !errors.Is(err, io.ErrUnexpectedEOF) || got != nil {
			t.Errorf("a body that always ends early: %q, %v", got, err)
		}
	})
}

func TestRead(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		v := w.put("0123456789").Version
		for _, c := range []struct {
			get   store.GetOptions
			limit int64
			want  string
			err   error
		}{
			{store.GetOptions{Offset: 2, Length: 3}, 3, "234", nil},
			{store.GetOptions{Offset: 8, Length: 3}, 2, "89", nil},
			{store.GetOptions{Offset: 4}, 6, "456789", nil},
			{store.GetOptions{Offset: 4}, 5, "", store.ErrTooLarge},
			{store.GetOptions{Offset: 10}, 5, "", store.ErrRange},
			{store.GetOptions{IfNoneMatch: v}, 5, "", store.ErrNotModified},
			{store.GetOptions{IfNoneMatch: "other"}, 10, "0123456789", nil},
		} {
			got, _, err := store.Read(w.Context(), w.st, "k", &store.ReadOptions{Offset: c.get.Offset, Length: c.get.Length, IfNoneMatch: c.get.IfNoneMatch, Limit: c.limit, Settle: w.opts})
			if string(got) != c.want || !errors.Is(err, c.err) {
				t.Errorf("%+v: %q, %v", c.get, got, err)
			}
		}
	})
}

// liarStore claims any size for a body of any length.
type liarStore struct {
	store.Store
	claims int64
	body   *endless
}

func (l *liarStore) Get(_ context.Context, key string, _ *store.GetOptions) (*store.Object, error) {
	return &store.Object{Info: store.Info{Key: key, Version: "v", Size: l.claims}, Body: l.body}, nil
}

func (l *liarStore) Put(_ context.Context, key string, _ []byte, _ *store.PutOptions) (store.Info, error) {
	return store.Info{}, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
}

// endless gives out length bytes and counts them.
type endless struct{ length, read int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.length == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.length)
	e.length -= n
	e.read += n
	return int(n), nil
}

func (e *endless) Close() error { return nil }

// What a store claims costs nothing; what it sends is read up to the limit.
func TestMemoryIsBoundedWhateverIsClaimed(t *testing.T) {
	one := &store.SettleOptions{Reads: 1}
	huge := int64(1) << 50
	for name, c := range map[string]struct {
		claims, sends, most int64
		want                error
	}{
		"claims too much":          {huge, huge, 0, store.ErrTooLarge},
		"sends more than claimed":  {10, huge, 4096, nil},
		"claims less than nothing": {-5, huge, 4096, nil},
		"sends less than claimed":  {1 << 20, 3, 3, io.ErrUnexpectedEOF},
	} {
		body := &endless{length: c.sends}
		got, _, err := store.Read(t.Context(), &liarStore{claims: c.claims, body: body}, "k", &store.ReadOptions{Limit: 1 << 20, Settle: one})
		if err == nil || c.want != nil && !errors.Is(err, c.want) || got != nil || body.read > c.most {
			t.Errorf("%s: %d bytes, %v, %d were read", name, len(got), err, body.read)
		}
	}
	// Settling reads no more than the identity.
	body := &endless{length: huge}
	_, err := store.Create(t.Context(), &liarStore{claims: huge, body: body}, "k", []byte("mine"), nil)
	if store.OutcomeOf(err) != store.Refused || body.read > 4 {
		t.Errorf("%v, %d bytes were read", err, body.read)
	}
}

// TestLargeIsAllocatedOnce: of a large object there is one copy, and what had arrived
// before its size was believed.
func TestLargeIsAllocatedOnce(t *testing.T) {
	st := memstore.New(nil)
	for _, size := range []int64{9 << 20, 40 << 20} {
		if _, err := st.Put(t.Context(), "k", make([]byte, size), nil); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		body, _, err := store.Read(t.Context(), st, "k", &store.ReadOptions{Limit: size})
		runtime.ReadMemStats(&after)
		if err != nil || int64(len(body)) != size {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if n := int64(after.TotalAlloc - before.TotalAlloc); n > size+9<<20 {
			t.Errorf("%d bytes were allocated for %d", n, size)
		}
	}
}

func TestListAll(t *testing.T) {
	fill := func(w *world) {
		for i := range 5 {
			if _, err := w.inner.Put(w.Context(), fmt.Sprintf("d/%d", i), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	list := func(w *world) (map[string]bool, error) {
		found := map[string]bool{}
		for info, err := range store.ListAll(w.Context(), w.st, "d/", nil, w.opts) {
			if err != nil {
				return found, err
			}
			found[info.Key] = true
		}
		return found, nil
	}
	breaks := faultstore.Fault{Cut: true, Keep: 3}
	for name, fault := range map[string]faultstore.Fault{"breaks off": breaks, "fails": overloaded, "hangs": {Hang: true}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, []faultstore.Rule{on("list", 1, fault), on("list", 2, fault)}, func(w *world) {
				fill(w)
				if found, err := list(w); err != nil || len(found) != 5 {
					t.Errorf("%v, %v", found, err)
				}
			})
		})
	}
	inWorld(t, []faultstore.Rule{each("list", breaks)}, func(w *world) {
		fill(w)
		if _, err := list(w); !errors.Is(err, faultstore.ErrInjected) || w.fault.Counts().Of("list", "") != 8 {
			t.Errorf("%v after %d listings", err, w.fault.Counts().Of("list", ""))
		}
	})
	inWorld(t, nil, func(w *world) {
		fill(w)
		n := 0
		for range store.ListAll(w.Context(), w.st, "d/", nil, w.opts) {
			n++
			break
		}
		if n != 1 || w.fault.Counts().Of("list", "") != 1 {
			t.Errorf("went on after the caller had stopped")
		}
		// A caller may take its time.
		n = 0
		for _, err := range store.ListAll(w.Context(), w.st, "d/", nil, w.opts) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			n++
		}
		if n != 5 || w.fault.Counts().Of("list", "") != 2 {
			t.Errorf("%d entries for a slow caller", n)
		}
		// The hint gets through: some listings of a memstore take it.
		for tries := 0; ; tries++ {
			var listed []string
			for info := range store.ListAll(w.Context(), w.st, "d/", &store.ListOptions{StartAfter: "d/3"}, w.opts) {
				listed = append(listed, info.Key)
			}
			if slices.Equal(listed, []string{"d/4"}) {
				break
			}
			if tries == 64 || !slices.Contains(listed, "d/4") {
				t.Fatalf("listed %v", listed)
			}
		}
	})
}

// stallingStore lists a few entries and then stalls.
type stallingStore struct{ store.Store }

func (s stallingStore) List(ctx context.Context, _ string, _ *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		for i := range 3 {
			if !yield(store.Info{Key: fmt.Sprint(i)}, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(store.Info{}, ctx.Err())
	}
}

func TestListAllDoesNotStall(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		w.opts.Reads = 2
		start := time.Now()
		for _, err := range store.ListAll(w.Context(), stallingStore{w.st}, "", nil, w.opts) {
			if err != nil && !strings.Contains(err.Error(), "no answer within 30s") {
				t.Error(err)
			}
		}
		if took := time.Since(start); took < time.Minute || took > 61*time.Second {
			t.Errorf("two listings that stalled took %v", took)
		}
	})
}

func TestDeleteAll(t *testing.T) {
	inWorld(t, []faultstore.Rule{on("delete", 2, lost), on("delete", 3, overloaded)}, func(w *world) {
		var keys []string
		for i := range 2500 {
			keys = append(keys, fmt.Sprintf("d/%d", i))
			if _, err := w.inner.Put(w.Context(), keys[i], nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.DeleteAll(w.Context(), w.st, keys, w.opts); err != nil {
			t.Fatal(err)
		}
		if n, _ := w.inner.Len(); n != 0 {
			t.Errorf("%d are left", n)
		}
		for _, e := range w.fault.Log() {
			if len(e.Op.Keys) > 1000 {
				t.Errorf("one request for %d keys", len(e.Op.Keys))
			}
		}
		if n := w.fault.Counts().Of("delete", ""); n != 5 { // three batches, two of them again
			t.Errorf("%d requests", n)
		}
		if err := store.DeleteAll(w.Context(), w.st, nil, w.opts); err != nil || w.fault.Counts().Of("delete", "") != 5 {
			t.Errorf("nothing to delete: %v", err)
		}
	})
	inWorld(t, []faultstore.Rule{each("delete", denied)}, func(w *world) {
		if err := store.DeleteAll(w.Context(), w.st, []string{"k"}, w.opts); !errors.Is(err, store.ErrDenied) || w.fault.Counts().Of("", "") != 1 {
			t.Errorf("%v", err)
		}
	})
}

// The zero options work on a real clock too.
func TestNilOptions(t *testing.T) {
	st := memstore.New(nil)
	if _, err := store.Create(t.Context(), st, "k", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if b, _, err := store.Read(t.Context(), st, "k", &store.ReadOptions{Limit: 1}); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
}
