package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// row is a log of segments, one after the other, in a faulty store.
type row struct {
	*Source
	st   *faultstore.Store
	mem  *memstore.Store
	refs []Ref
	end  uint64
}

func newRow(t testing.TB, opts *faultstore.Options, segments ...[]int) *row {
	t.Helper()
	r := &row{mem: memstore.New(nil)}
	for i, lengths := range segments {
		b, sum := segmentOf(t, r.end, lengths)
		k := fmt.Sprintf("segment/compactor/00000000000000000001/00000000-0000-4000-8000-%012d", i)
		if _, err := r.mem.Upload(t.Context(), k, bytes.NewReader(b), nil); err != nil {
			t.Fatal(err)
		}
		r.refs = append(r.refs, Ref{Key: k, First: sum.First, End: sum.End, Size: sum.Size, Index: sum.Index})
		r.end = sum.End
	}
	r.st = faultstore.New(r.mem, opts)
	r.Source = &Source{Store: r.st, Log: testLog, Limits: fence.DefaultLimits(), Settle: quick}
	return r
}

func (r *row) all() iter.Seq2[Ref, error] { return each(r.refs, nil) }

// each yields refs, and then an error if there is one.
func each(refs []Ref, err error) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for _, ref := range refs {
			if !yield(ref, nil) {
				return
			}
		}
		if err != nil {
			yield(Ref{}, err)
		}
	}
}

// read returns the offsets of the records that Read yields, having checked them,
// and the segment that the error is about.
func (r *row) read(t testing.TB, refs iter.Seq2[Ref, error], from uint64) (first, end uint64, at Ref, err error) {
	t.Helper()
	begun := false
	for p, rerr := range r.Read(t.Context(), refs, from) {
		if rerr != nil {
			return first, end, p.Ref, rerr
		}
		if p.Frame.Offset < p.Ref.First || p.Frame.Offset >= p.Ref.End {
			t.Fatalf("block %d of [%d, %d)", p.Frame.Offset, p.Ref.First, p.Ref.End)
		}
		for off, rec := range p.Frame.All() {
			if !begun {
				first, end, begun = off, off, true
			}
			if off != end || !bytes.Equal(rec, fixture.Filled(off, len(rec))) {
				t.Fatalf("record %d is another, or %d is", off, end)
			}
			end++
		}
	}
	return first, end, Ref{}, nil
}

var (
	small = []int{10, 0, 3000}
	large = slices.Repeat([]int{700_000, 5}, 9)
)

// Small and large segments follow each other without a seam, from wherever one
// begins.
func TestReadAcross(t *testing.T) {
	r := newRow(t, nil, small, small, large, small, large, large, small)
	before := runtime.NumGoroutine()
	for from := uint64(0); from < r.end+2; from += 7 {
		first, end, _, err := r.read(t, r.all(), from)
		if err != nil || from < r.end && (first > from || end != r.end) || from >= r.end && end != 0 {
			t.Fatalf("from %d: [%d, %d), %v", from, first, end, err)
		}
	}
	if _, end, _, err := r.read(t, each(nil, nil), 0); err != nil || end != 0 {
		t.Errorf("of nothing: to %d, %v", end, err)
	}
	fixture.Quiet(t, r.st, before)
}

// A record of a large segment is found with two requests, and one of a small
// segment with one, however much could be read ahead.
func TestReadFindsQuickly(t *testing.T) {
	r := newRow(t, nil, large, small, large, small)
	r.Budget = 1 << 30
	for off := uint64(0); off < r.end; off += 5 {
		seg := slices.IndexFunc(r.refs, func(ref Ref) bool { return off < ref.End })
		want := 1
		if r.refs[seg].Size > readSize {
			want = 2
		}
		r.st.ResetCounts()
		for _, err := range r.Read(t.Context(), r.all(), off) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if n := r.st.Counts().Of("", ""); n != want {
			t.Errorf("record %d takes %d requests, want %d", off, n, want)
		}
	}
	// All of it costs no more than a request for each 3 MiB, and an index for each
	// large segment.
	r.st.ResetCounts()
	if _, end, _, err := r.read(t, r.all(), 0); err != nil || end != r.end {
		t.Fatal(end, err)
	}
	if n := r.st.Counts().Of("", ""); n > 12 {
		t.Errorf("all takes %d requests", n)
	}
}

// watched tells of every Get.
type watched struct {
	store.Store
	get func(*store.GetOptions)
}

func (w watched) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	w.get(opts)
	return w.Store.Get(ctx, key, opts)
}

// More and more requests are under way at once, across segments, as far as the
// budget goes, and beside the block that is being handed out: also with a small budget
// there is something under way meanwhile.
func TestReadAhead(t *testing.T) {
	blocks := slices.Repeat([]int{3 << 20}, 6) // each is a request of its own
	for budget, want := range map[int64]int{1: 1, 7 << 20: 3, 16 << 20: 6, 64 << 20: 9} {
		r := newRow(t, nil, blocks, blocks)
		r.Budget, r.Settle = budget, &store.SettleOptions{Clock: clock.Go()}
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			now, most := 0, 0
			r.Store = watched{r.st, func(get *store.GetOptions) {
				if get.Length >= 3<<20 {
					mu.Lock()
					defer mu.Unlock()
					now++
					most = max(most, now)
				}
			}}
			got := 0
			for _, err := range r.Read(t.Context(), r.all(), 0) {
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // what was asked for is here
				mu.Lock()
				now-- // handed out
				mu.Unlock()
				got++
			}
			if got != 12 || most != want {
				t.Errorf("a budget of %d: %d blocks, %d at once; want %d", budget, got, most, want)
			}
		})
	}
}

// An error comes after everything that was before it, and says which segment it is about.
func TestReadErrorsInOrder(t *testing.T) {
	refused := errors.New("a page is gone")
	for name, c := range map[string]struct {
		harm func(r *row)
		refs func(r *row) iter.Seq2[Ref, error]
		at   int // segment
		want error
	}{
		"small one missing":  {func(r *row) { remove(t, r.mem, r.refs[3].Key) }, nil, 3, store.ErrNotFound},
		"large one missing":  {func(r *row) { remove(t, r.mem, r.refs[2].Key) }, nil, 2, store.ErrNotFound},
		"the first missing":  {func(r *row) { remove(t, r.mem, r.refs[0].Key) }, nil, 0, store.ErrNotFound},
		"small one cut":      {func(r *row) { cut(t, r.mem, r.refs[3].Key) }, nil, 3, fence.ErrCorrupt},
		"large one cut":      {func(r *row) { cut(t, r.mem, r.refs[4].Key) }, nil, 4, fence.ErrCorrupt},
		"an impossible one":  {func(r *row) { r.refs[3].Index = 0 }, nil, 3, fence.ErrCorrupt},
		"refs that break up": {func(*row) {}, func(r *row) iter.Seq2[Ref, error] { return each(r.refs[:4], refused) }, 4, refused},
		"refs that fail":     {func(*row) {}, func(*row) iter.Seq2[Ref, error] { return each(nil, refused) }, 0, refused},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRow(t, nil, small, large, large, small, large, small)
			before := runtime.NumGoroutine()
			c.harm(r)
			refs := r.all()
			if c.refs != nil {
				refs = c.refs(r)
			}
			_, end, at, err := r.read(t, refs, 0)
			if !errors.Is(err, c.want) || end != r.refs[c.at].First {
				t.Errorf("up to %d: %v; want %v at %d", end, err, c.want, r.refs[c.at].First)
			}
			if c.refs == nil && (at.Key != r.refs[c.at].Key || !strings.Contains(err.Error(), at.Key)) {
				t.Errorf("it is about %q: %v", at.Key, err)
			}
			fixture.Quiet(t, r.st, before)
		})
	}
}

func remove(t testing.TB, st store.Store, key string) {
	t.Helper()
	if err := st.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

func cut(t testing.TB, st store.Store, key string) {
	t.Helper()
	b, _, err := store.Read(t.Context(), st, key, &store.ReadOptions{Limit: 1 << 30, Settle: quick})
	if err != nil {
		t.Fatal(err)
	}
	if err := overwriteKey(st, key, b[:len(b)-1]); err != nil {
		t.Fatal(err)
	}
}

// A loop that is broken off at any block leaves nothing running.
func TestReadBrokenOff(t *testing.T) {
	r := newRow(t, nil, small, large, small, large)
	before := runtime.NumGoroutine()
	for k := range 9 {
		n := 0
		for range r.Read(t.Context(), r.all(), 0) {
			if n++; n > k {
				break
			}
		}
		fixture.Quiet(t, r.st, before)
	}
}

// Compressed blocks, whatever they claim or unpack to, do not exceed the budget: beyond it
// they are unpacked one by one, when it is their turn.
func TestReadUnpacksWithinBudget(t *testing.T) {
	const n, size = 24, 4 << 20
	b, sum := build(t, 0, frame.Zstd, zeros(t, n, size))
	st := memstore.New(nil)
	if _, err := st.Upload(t.Context(), key, bytes.NewReader(b), nil); err != nil {
		t.Fatal(err)
	}
	s := &Source{Store: st, Log: testLog, Limits: fence.DefaultLimits(), Settle: quick, Budget: 9 << 20}
	ref := Ref{Key: key, First: sum.First, End: sum.End, Size: sum.Size, Index: sum.Index}
	var base, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&base)
	got := 0
	for f, err := range s.Frames(t.Context(), ref, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if f.PayloadLen() < size {
			t.Errorf("a block of %d bytes", f.PayloadLen())
		}
		got++
		runtime.GC()
		runtime.ReadMemStats(&now)
		if held := int64(now.HeapAlloc) - int64(base.HeapAlloc); held > 40<<20 {
			t.Fatalf("at block %d it holds %d MiB, of %d", got, held>>20, n*size>>20)
		}
	}
	if got != n {
		t.Errorf("%d blocks", got)
	}
}

func zeros(t testing.TB, n, size int) *frame.Frame {
	t.Helper()
	var b frame.Builder
	for range n {
		b.Add(make([]byte, size))
	}
	h := frame.Header{Log: testLog, Position: fence.Position{Epoch: 1, Seq: 1}, Time: testTime}
	f, err := frame.Decode(b.Finish(&h, frame.Plain), fence.Limits{Object: fence.MaxObject, Record: fence.MaxObject})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
