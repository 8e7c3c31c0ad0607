package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

const key = "segment/compactor/00000000000000000001/00000000-0000-4000-8000-000000000001"

var quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 100}

var built = map[string]func() ([]byte, Summary){}

// segmentOf makes each segment once.
func segmentOf(t testing.TB, first uint64, lengths []int) ([]byte, Summary) {
	t.Helper()
	name := fmt.Sprint(first, lengths)
	if made, ok := built[name]; ok {
		return made()
	}
	var frames []*frame.Frame
	next := first
	for part := range slices.Chunk(lengths, 50) {
		frames = append(frames, object(t, next, testTime, part...))
		next += uint64(len(part))
	}
	b, sum := build(t, first, frame.Plain, frames...)
	built[name] = func() ([]byte, Summary) { return b, sum }
	return b, sum
}

// stored puts a segment with records of these lengths into a faulty store.
func stored(t testing.TB, opts *faultstore.Options, first uint64, lengths []int) (*Source, *faultstore.Store, Ref) {
	t.Helper()
	b, sum := segmentOf(t, first, lengths)
	inner := memstore.New(nil)
	if _, err := inner.Upload(t.Context(), key, bytes.NewReader(b), nil); err != nil {
		t.Fatal(err)
	}
	st := faultstore.New(inner, opts)
	s := &Source{Store: st, Log: testLog, Limits: fence.DefaultLimits(), Settle: quick}
	return s, st, Ref{Key: key, First: sum.First, End: sum.End, Size: sum.Size, Index: sum.Index}
}

// read returns the offsets of the records that Frames yields, having checked them.
func read(t testing.TB, s *Source, ref Ref, from uint64, lengths []int) (first, end uint64, err error) {
	t.Helper()
	begun := false
	for f, ferr := range s.Frames(t.Context(), ref, from) {
		if ferr != nil {
			return first, end, ferr
		}
		for off, rec := range f.All() {
			if !begun {
				first, end, begun = off, off, true
			}
			if off != end || !bytes.Equal(rec, fixture.Filled(off, lengths[off-ref.First])) {
				t.Fatalf("record %d is another", off)
			}
			end++
		}
	}
	return first, end, nil
}

// several blocks, in several requests.
var mixed = append(slices.Repeat([]int{100_000, 0, 7, 300_000}, 12), 5<<20, 3, 2<<20)

func TestFrames(t *testing.T) {
	s, st, ref := stored(t, nil, 1000, mixed)
	before := runtime.NumGoroutine()
	blocks, err := s.Index(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	for from := ref.First - 3; from < ref.End; from += 13 {
		first, end, err := read(t, s, ref, from, mixed)
		want := blocks[Find(blocks, max(from, ref.First))].First
		if err != nil || first != want || end != ref.End {
			t.Fatalf("from %d: [%d, %d), %v; want [%d, %d)", from, first, end, err, want, ref.End)
		}
	}
	fixture.Quiet(t, st, before)
	// The last block costs the index and itself, what is after the end nothing.
	st.ResetCounts()
	if first, end, err := read(t, s, ref, ref.End-1, mixed); err != nil || first != ref.End-1 || end != ref.End {
		t.Errorf("[%d, %d), %v", first, end, err)
	}
	if n := st.Counts().Of("", ""); n != 2 {
		t.Errorf("%d requests", n)
	}
	st.ResetCounts()
	if first, end, err := read(t, s, ref, ref.End, mixed); err != nil || first != end || st.Counts().Of("", "") != 0 {
		t.Errorf("[%d, %d), %v, %d requests", first, end, err, st.Counts().Of("", ""))
	}
	// Small blocks are read several at once.
	st.ResetCounts()
	if _, _, err := read(t, s, ref, 0, mixed); err != nil {
		t.Fatal(err)
	}
	if n := st.Counts().Of("", ""); n >= len(blocks) {
		t.Errorf("%d requests for %d blocks", n, len(blocks))
	}
}

func TestFramesOverFaults(t *testing.T) {
	for seed := range uint64(2) {
		s, st, ref := stored(t, &faultstore.Options{Seed: seed, Rates: faultstore.Rates{Fail: 0.2, Break: 0.3, MaxDelay: 300 * time.Microsecond}}, 5, mixed)
		before := runtime.NumGoroutine()
		for _, from := range []uint64{5, 40} {
			if _, end, err := read(t, s, ref, from, mixed); err != nil || end != ref.End {
				t.Errorf("seed %d: to %d, %v", seed, end, err)
			}
		}
		fixture.Quiet(t, st, before)
	}
}

// hanging answers only the reads that begin at some places.
type hanging struct {
	store.Store
	answers []int64
}

func (h hanging) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if !slices.Contains(h.answers, opts.Offset) {
		<-ctx.Done()
		return nil, &store.Error{Op: "get", Key: key, Err: ctx.Err()}
	}
	return h.Store.Get(ctx, key, opts)
}

// TestFramesBrokenOff by its caller, or by its context: what is under way is
// cancelled and waited for.
func TestFramesBrokenOff(t *testing.T) {
	s, st, ref := stored(t, nil, 0, mixed)
	// The index and the first run come; what is read ahead never does.
	s.Store = hanging{st, []int64{0, ref.Size - ref.Index}}
	before := runtime.NumGoroutine()
	for _, err := range s.Frames(t.Context(), ref, 0) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	fixture.Quiet(t, st, before)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range s.Frames(ctx, ref, 0) {
		last = err
		cancel()
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("it ended with %v", last)
	}
	fixture.Quiet(t, st, before)
}

// TestDamage: whatever has become of the object, the error names it and what is
// returned before is right.
func TestDamage(t *testing.T) {
	lengths := slices.Repeat([]int{400_000}, 14)
	whole := func(st store.Store) []byte {
		obj, err := st.Get(t.Context(), key, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer obj.Body.Close()
		b, err := io.ReadAll(obj.Body)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tt := range map[string]struct {
		change func([]byte) []byte
		claim  func(*Ref)
		want   error
		says   string
	}{
		"missing":          {func([]byte) []byte { return nil }, nil, store.ErrNotFound, "no such object"},
		"shorter":          {func(b []byte) []byte { return b[:len(b)-1] }, nil, fence.ErrCorrupt, "the manifest says"},
		"much shorter":     {func(b []byte) []byte { return b[:1000] }, nil, fence.ErrCorrupt, "the manifest says"},
		"longer":           {func(b []byte) []byte { return append(b, 0) }, nil, fence.ErrCorrupt, "the manifest says"},
		"much longer":      {func(b []byte) []byte { return append(b, b...) }, nil, fence.ErrCorrupt, "the manifest says"},
		"bit in index":     {func(b []byte) []byte { b[len(b)-90] ^= 1; return b }, nil, fence.ErrCorrupt, "checksum"},
		"bit in block":     {func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, nil, fence.ErrCorrupt, "block 3: "},
		"another run":      {nil, func(r *Ref) { r.First++ }, fence.ErrCorrupt, "the manifest says [1, 14)"},
		"index too small":  {nil, func(r *Ref) { r.Index -= entrySize }, fence.ErrCorrupt, "index"},
		"index too large":  {nil, func(r *Ref) { r.Index += entrySize }, fence.ErrCorrupt, "index"},
		"index of nothing": {nil, func(r *Ref) { r.Index = 0 }, fence.ErrCorrupt, "an index of 0 bytes"},
		"negative index":   {nil, func(r *Ref) { r.Index = -1 }, fence.ErrCorrupt, "an index of -1"},
		"index over all":   {nil, func(r *Ref) { r.Index = r.Size + 1 }, fence.ErrCorrupt, "an index of"},
		"huge index":       {nil, func(r *Ref) { r.Size, r.Index = 1<<40, 1<<30 }, fence.ErrCorrupt, "an index of 1073741824"},
		"huge size":        {nil, func(r *Ref) { r.Size = 1 << 62 }, fence.ErrCorrupt, "the manifest says"},
		"a smaller claim":  {nil, func(r *Ref) { r.Size -= 100 }, fence.ErrCorrupt, "the manifest says"},
	} {
		s, st, ref := stored(t, nil, 0, lengths)
		b := whole(st)
		if tt.change != nil {
			if b = tt.change(b); b == nil {
				if err := st.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			} else if _, err := st.Put(t.Context(), key, b, nil); err != nil {
				t.Fatal(err)
			}
		}
		if tt.claim != nil {
			tt.claim(&ref)
		}
		before := runtime.NumGoroutine()
		_, _, err := read(t, s, ref, ref.First, lengths)
		if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.says) || !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("%s: %v; want %q", name, err, tt.says)
		}
		fixture.Quiet(t, st, before)
	}
}

// TestReplacedWhileRead: the index was read, and then the object is gone or is
// another. Nobody of ours does that, but it must not be taken for the end.
func TestReplacedWhileRead(t *testing.T) {
	lengths := slices.Repeat([]int{400_000}, 14)
	for name, tt := range map[string]struct {
		replace func(store.Store) error
		want    error
	}{
		"gone":    {func(st store.Store) error { return st.Delete(context.Background(), key) }, store.ErrNotFound},
		"shorter": {func(st store.Store) error { return overwrite(st, make([]byte, 1000)) }, fence.ErrCorrupt},
		"empty":   {func(st store.Store) error { return overwrite(st, nil) }, fence.ErrCorrupt},
		"another": {func(st store.Store) error { return overwrite(st, make([]byte, 7<<20)) }, fence.ErrCorrupt},
	} {
		s, st, ref := stored(t, nil, 0, lengths)
		inner := st.Client("inner")
		gets := 0
		var mu sync.Mutex
		st.SetBefore(func(_ context.Context, op faultstore.Op) {
			if op.Client != "" {
				return // the replacing itself
			}
			mu.Lock()
			defer mu.Unlock()
			if gets++; gets == 2 {
				if err := tt.replace(inner); err != nil {
					t.Error(err)
				}
			}
		})
		before := runtime.NumGoroutine()
		_, end, err := read(t, s, ref, 0, lengths)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: to %d, %v", name, end, err)
		}
		fixture.Quiet(t, st, before)
	}
}

func overwrite(st store.Store, b []byte) error { return overwriteKey(st, key, b) }

func overwriteKey(st store.Store, key string, b []byte) error {
	_, err := st.Put(context.Background(), key, b, nil)
	return err
}

// TestHugeBlock: a block that the log's limits do not allow is not read.
func TestHugeBlock(t *testing.T) {
	s, st, ref := stored(t, nil, 0, []int{1000, 2 << 20, 5})
	s.Limits = fence.Limits{Object: 1 << 20, Record: 1 << 19, Cursor: 10}
	_, err := s.Index(t.Context(), ref)
	if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "block 1 has 2097") || !strings.Contains(err.Error(), key) {
		t.Error(err)
	}
	st.ResetCounts()
	if _, _, err := read(t, s, ref, 0, nil); !errors.Is(err, fence.ErrCorrupt) || st.Counts().Of("", "") != 1 {
		t.Errorf("%v, %d requests", err, st.Counts().Of("", ""))
	}
}
