package fence

import (
	"math"
	"testing"
)

func TestRecordSize(t *testing.T) {
	var b Builder
	for _, n := range []int{0, 1, 2, 126, 127, 128, 129, 255, 256, 16382, 16383, 16384, 16385, 1<<21 - 1, 1 << 21} {
		before := b.Size()
		b.Add(make([]byte, n))
		if grown := b.Size() - before; grown != RecordSize(n) {
			t.Errorf("RecordSize(%d) is %d, the payload grew by %d", n, RecordSize(n), grown)
		}
	}
}

func TestLimitsOfOne(t *testing.T) {
	l := Limits{Object: 100, Record: 10, Cursor: 5}
	if err := l.CheckRecord(10); err != nil {
		t.Error(err)
	}
	wantErr(t, l.CheckRecord(11), ErrLimit, "a record of 11 bytes; the log allows 10")
	if err := l.CheckCursor(5); err != nil {
		t.Error(err)
	}
	wantErr(t, l.CheckCursor(6), ErrLimit, "a cursor of 6 bytes; the log allows 5")
	if n := l.MaxFrame(); n != HeaderSize+100+5 {
		t.Error(n)
	}
}

// The longest frame that the limits allow has the length that MaxFrame says.
func TestMaxFrame(t *testing.T) {
	l := Limits{Object: RecordSize(300), Record: 300, Cursor: 7}
	b, _ := build(testHeader(), Plain, make([]byte, 7), string(make([]byte, 300)))
	if _, err := Decode(b, l); err != nil || int64(len(b)) != l.MaxFrame() {
		t.Errorf("%d bytes of %d, %v", len(b), l.MaxFrame(), err)
	}
}

func TestLimitsValidate(t *testing.T) {
	for _, l := range []Limits{
		DefaultLimits,
		{Object: MaxObject, Record: MaxObject - 5, Cursor: MaxCursor},
		{Object: 1, Record: 0, Cursor: 0},
		{Object: 128, Record: 127, Cursor: 0},
	} {
		if err := l.Validate(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, tt := range []struct {
		limits Limits
		text   string
	}{
		{Limits{}, "objects of 0 bytes; possible are 1 to 1073741824"},
		{Limits{Object: -1}, "objects of -1 bytes"},
		{Limits{Object: MaxObject + 1}, "objects of 1073741825 bytes"},
		{Limits{Object: 128, Record: 128}, "a record of 128 bytes does not fit into an object of 128, where its length takes 2 bytes more"},
		{Limits{Object: 128, Record: math.MaxInt}, "does not fit"},
		{Limits{Object: 128, Record: -1}, "a record of -1 bytes"},
		{Limits{Object: 128, Record: 1, Cursor: -1}, "cursors of -1 bytes; possible are 0 to 1048576"},
		{Limits{Object: 128, Record: 1, Cursor: MaxCursor + 1}, "cursors of 1048577 bytes"},
	} {
		wantErr(t, tt.limits.Validate(), ErrLimit, tt.text)
	}
}
