package segment

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/memstore"
)

// Blocks of a good size are put into another segment as they are, small ones are
// gathered anew, and all records are there, at their offsets.
func TestAddStored(t *testing.T) {
	const size = 100 << 10
	st := memstore.New(nil)
	src := &Source{Store: st, Log: testLog, Limits: fence.DefaultLimits()}
	put := func(key string, b []byte, sum Summary) Ref {
		t.Helper()
		if _, err := st.Put(t.Context(), key, b, nil); err != nil {
			t.Fatal(err)
		}
		return Ref{Key: key, First: sum.First, End: sum.End, Size: sum.Size, Index: sum.Index}
	}
	var refs []Ref
	next := uint64(0)
	for i, codec := range []frame.Codec{frame.Zstd, frame.Plain, frame.Zstd} {
		var lengths []int
		for range 22 + i {
			lengths = append(lengths, size)
		}
		b, sum := build(t, next, codec, object(t, next, testTime.Add(time.Duration(i)*time.Hour), lengths...))
		refs, next = append(refs, put(fmt.Sprint(i), b, sum)), sum.End
	}
	var out bytes.Buffer
	w := NewWriter(&out, testLog, 0, frame.Zstd)
	stored, small := 0, 0
	for p, err := range src.ReadStored(t.Context(), each(refs, nil)) {
		if err != nil {
			t.Fatal(err)
		}
		if p.Stored == nil {
			small++
			if ok, err := w.AddStored(p.Frame.Stored()); ok || err != nil {
				t.Fatalf("a small block stays as it is: %v", err)
			}
			if err := w.Add(p.Frame); err != nil {
				t.Fatal(err)
			}
			continue
		}
		stored++
		for i, want := range []bool{true, false} { // not twice
			if ok, err := w.AddStored(p.Stored); ok != want || err != nil {
				t.Fatalf("time %d: %v, %v", i, ok, err)
			}
		}
	}
	if stored < 6 || small == 0 {
		t.Errorf("%d as they are, %d small", stored, small)
	}
	sum, err := w.Close()
	if err != nil || sum.Size != int64(out.Len()) || sum.End != next || !sum.From.Equal(testTime.Truncate(time.Microsecond)) || !sum.To.Equal(testTime.Add(2*time.Hour).Truncate(time.Microsecond)) {
		t.Fatalf("%+v, %v", sum, err)
	}
	ref := put("all", out.Bytes(), sum)
	n, prev := uint64(0), uint32(0)
	for f, err := range src.Frames(t.Context(), ref, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Prev != prev {
			t.Errorf("the block at %d does not name the one before it", f.Offset)
		}
		prev = f.Checksum()
		for off, rec := range f.All() {
			if off != n || !bytes.Equal(rec, fixture.Filled(n, size)) {
				t.Fatalf("record %d is at %d, or another", n, off)
			}
			n++
		}
	}
	if n != next {
		t.Errorf("%d records of %d", n, next)
	}
	// Damage in a block that is not unpacked is noticed.
	for _, at := range []int{20, 1000} {
		body := bytes.Clone(out.Bytes())
		body[at] ^= 1
		bad := put("bad", body, sum)
		var failed error
		for _, err := range src.ReadStored(t.Context(), each([]Ref{bad}, nil)) {
			failed = err
		}
		if !errors.Is(failed, fence.ErrCorrupt) || !strings.Contains(failed.Error(), "bad: block 0") {
			t.Errorf("byte %d is flipped: %v", at, failed)
		}
	}
}
