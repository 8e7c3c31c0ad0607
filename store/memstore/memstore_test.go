package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

func put(t *testing.T, st store.Store, key, body string) store.Info {
	t.Helper()
	info, err := st.Put(context.Background(), key, []byte(body), nil)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func keys(t *testing.T, st store.Store, prefix string) []string {
	t.Helper()
	var found []string
	for info, err := range st.List(context.Background(), prefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info.Key)
	}
	return found
}

func read(t *testing.T, st store.Store, key string) string {
	t.Helper()
	obj, err := st.Get(context.Background(), key, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(obj.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A reader that is slow sees the object that it opened, whatever is written.
func TestOpenBodySurvivesReplacement(t *testing.T) {
	st := memstore.New(nil)
	put(t, st, "k", "first")
	obj, err := st.Get(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, st, "k", "other")
	if err := st.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(obj.Body); string(got) != "first" {
		t.Errorf("read %q", got)
	}
}

func TestVersions(t *testing.T) {
	t.Run("unique", func(t *testing.T) {
		st := memstore.New(nil)
		seen := map[store.Version]bool{}
		var order []string
		for range 1000 {
			v := put(t, st, "k", "same").Version
			if seen[v] {
				t.Fatalf("version %q came twice", v)
			}
			seen[v] = true
			order = append(order, string(v))
		}
		if slices.IsSorted(order) {
			t.Error("versions rise; somebody will rely on it")
		}
	})
	t.Run("T13 content", func(t *testing.T) {
		st := memstore.New(&memstore.Options{ContentVersions: true})
		a := put(t, st, "k", "same").Version
		if b := put(t, st, "k", "other").Version; a == b {
			t.Errorf("bodies differ, versions do not: %q", a)
		}
		if b := put(t, st, "k", "same").Version; a != b {
			t.Errorf("equal bodies have versions %q and %q", a, b)
		}
		if a != `"51037a4a37730f52c8732586d3aaa316"` {
			t.Errorf("version %s is not the quoted MD5", a)
		}
	})
}

func TestListOrder(t *testing.T) {
	fill := func(opts *memstore.Options) *memstore.Store {
		st := memstore.New(opts)
		for i := range 50 {
			put(t, st, fmt.Sprintf("d/%02d", i), "")
		}
		return st
	}
	for name, opts := range map[string]*memstore.Options{"random": nil, "seeded": {Seed: 7}} {
		st := fill(opts)
		a, b := keys(t, st, "d/"), keys(t, st, "d/")
		if slices.IsSorted(a) || slices.Equal(a, b) {
			t.Errorf("%s: listings have an order to rely on: %v, %v", name, a, b)
		}
		slices.Sort(a)
		slices.Sort(b)
		if len(a) != 50 || !slices.Equal(a, b) {
			t.Errorf("%s: the listings differ: %v, %v", name, a, b)
		}
	}
	one, two, other := fill(&memstore.Options{Seed: 7}), fill(&memstore.Options{Seed: 7}), fill(&memstore.Options{Seed: 8})
	for range 3 {
		if a, b := keys(t, one, ""), keys(t, two, ""); !slices.Equal(a, b) {
			t.Errorf("same seed, other order: %v, %v", a, b)
		}
	}
	if slices.Equal(keys(t, one, ""), keys(t, other, "")) {
		t.Error("another seed has the same order")
	}
}

// Some listings take the hint and some do not, so that nobody relies on either; a
// seed says which.
func TestT31_StartAfterIsAHint(t *testing.T) {
	listings := func(opts *memstore.Options) (counts []int) {
		st := memstore.New(opts)
		for _, k := range []string{"b/1", "b/2", "b/c/3"} {
			put(t, st, k, k)
		}
		for range 64 {
			var got []string
			for info, err := range st.List(t.Context(), "b/", &store.ListOptions{StartAfter: "b/1"}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, info.Key)
			}
			slices.Sort(got)
			if !slices.Equal(got[len(got)-2:], []string{"b/2", "b/c/3"}) {
				t.Errorf("listed %v", got)
			}
			counts = append(counts, len(got))
		}
		return counts
	}
	for name, opts := range map[string]*memstore.Options{"random": nil, "seeded": {Seed: 7}} {
		if got := listings(opts); !slices.Contains(got, 2) || !slices.Contains(got, 3) {
			t.Errorf("%s: %v keys listed: always the same", name, got)
		}
	}
	if a, b := listings(&memstore.Options{Seed: 7}), listings(&memstore.Options{Seed: 7}); !slices.Equal(a, b) {
		t.Errorf("same seed, other listings: %v, %v", a, b)
	}
}

// The newest of a row of numbered objects never seems older than it was when
// the listing began, though old ones are deleted and new ones created.
func TestT37_ListIsASnapshot(t *testing.T) {
	st := memstore.New(nil)
	key := func(n int) string { return fmt.Sprintf("m/%d/%020d", n%7, n) } // over several folders
	for i := range 300 {
		put(t, st, fmt.Sprintf("m/other-%d/0", i), "") // to take long over
	}
	put(t, st, key(1), "")
	var newest atomic.Int64
	newest.Store(1)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 2; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_, _ = st.Put(context.Background(), key(n), nil, &store.PutOptions{If: store.IfAbsent()})
			newest.Store(int64(n))
			_ = st.Delete(context.Background(), key(n-1))
		}
	}()
	for range 500 {
		before, high := newest.Load(), int64(0)
		for _, k := range keys(t, st, "m/") {
			n, err := strconv.ParseInt(k[strings.LastIndexByte(k, '/')+1:], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			high = max(high, n)
		}
		if high < before {
			t.Errorf("%d existed before the listing, which shows %d at most", before, high)
			break
		}
	}
	close(stop)
	<-done
}

func TestUploadCancelled(t *testing.T) {
	st := memstore.New(nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	if _, err := st.Upload(ctx, "new", readerFunc(func(p []byte) (int, error) {
		cancel(cause)
		return copy(p, "x"), nil
	}), nil); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("cancelled in the middle: %v", err)
	}
	if n, size := st.Len(); n != 0 || size != 0 {
		t.Errorf("Len is %d objects, %d bytes", n, size)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// wall is a clock whose time of day is set by hand.
type wall struct {
	clock.Clock
	now time.Time
}

func (w *wall) Wall() time.Time { return w.now }

func TestDates(t *testing.T) {
	w := &wall{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	st := memstore.New(&memstore.Options{Clock: w})
	written := w.now
	put(t, st, "k", "")
	w.now = w.now.Add(time.Hour)
	obj, err := st.Get(t.Context(), "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !obj.LastModified.Equal(written) || !obj.Date.Equal(w.now) {
		t.Errorf("modified %v, date %v", obj.LastModified, obj.Date)
	}
}

func TestLenCountsReplacedAndDeleted(t *testing.T) {
	st := memstore.New(nil)
	put(t, st, "a", "12345")
	put(t, st, "a", "123")
	put(t, st, "d/b", "1")
	if n, size := st.Len(); n != 2 || size != 4 {
		t.Errorf("%d objects, %d bytes", n, size)
	}
	if err := st.Delete(t.Context(), "a", "d/b", "d/b", "never"); err != nil {
		t.Fatal(err)
	}
	if n, size := st.Len(); n != 0 || size != 0 {
		t.Errorf("%d objects, %d bytes", n, size)
	}
}

func TestOpenURL(t *testing.T) {
	open := func(url string) store.Store {
		t.Helper()
		st, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	a, b, other, below := open("mem://one"), open("mem://one"), open("mem://two"), open("mem://one/sub/dir")
	put(t, a, "sub/dir/k", "body")
	if got := read(t, b, "sub/dir/k"); got != "body" {
		t.Errorf("the second opening reads %q", got)
	}
	if got := read(t, below, "k"); got != "body" {
		t.Errorf("below the prefix: %q", got)
	}
	if got := keys(t, other, ""); len(got) != 0 {
		t.Errorf("another name shows %v", got)
	}
	if tr := below.Traits(); tr.Name != "mem://one/sub/dir" || tr.MultiProcess {
		t.Errorf("traits %+v", tr)
	}
	for _, url := range []string{"mem://", "mem:///path", "mem://u:secret@x", "mem://u:/secret@x?a=b", "mem://x?a=secret", "mem://x#secret", "mem://x?a=b", "mem://x/../y"} {
		_, err := store.Open(t.Context(), url)
		var e *store.Error
		if !errors.Is(err, store.ErrInvalid) || !errors.As(err, &e) || e.Hint == "" {
			t.Errorf("%s: %v", url, err)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the password is in %v", url, err)
		}
	}
}
