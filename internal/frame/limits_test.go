package frame

import (
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
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
	l := fence.Limits{Object: 100, Record: 10, Cursor: 5}
	if err := CheckRecord(l, 10); err != nil {
		t.Error(err)
	}
	fixture.WantErr(t, CheckRecord(l, 11), fence.ErrLimit, "a record of 11 bytes; the log allows 10")
	if err := CheckCursor(l, 5); err != nil {
		t.Error(err)
	}
	fixture.WantErr(t, CheckCursor(l, 6), fence.ErrLimit, "a cursor of 6 bytes; the log allows 5")
	if n := MaxFrame(l); n != HeaderSize+100+5 {
		t.Error(n)
	}
}

// The longest frame that the limits allow has the length that MaxFrame says.
func TestMaxFrame(t *testing.T) {
	l := fence.Limits{Object: RecordSize(300), Record: 300, Cursor: 7}
	b, _ := build(testHeader(), Plain, make([]byte, 7), string(make([]byte, 300)))
	if _, err := Decode(b, l); err != nil || int64(len(b)) != MaxFrame(l) {
		t.Errorf("%d bytes of %d, %v", len(b), MaxFrame(l), err)
	}
}
