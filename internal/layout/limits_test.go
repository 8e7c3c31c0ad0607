package layout

import (
	"math"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

func TestCheckLimits(t *testing.T) {
	for _, l := range []fence.Limits{
		fence.DefaultLimits(),
		{Object: fence.MaxObject, Record: fence.MaxObject - 5, Cursor: fence.MaxCursor, Manifest: fence.MaxManifest},
		{Object: 1, Record: 0, Cursor: 0, Manifest: leastRoom},
		{Object: 128, Record: 127, Cursor: 0, Manifest: leastRoom},
	} {
		if err := CheckLimits(l); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, tt := range []struct {
		limits fence.Limits
		text   string
	}{
		{fence.Limits{}, "objects of 0 bytes; possible are 1 to 1073741824"},
		{fence.Limits{Object: -1}, "objects of -1 bytes"},
		{fence.Limits{Object: fence.MaxObject + 1}, "objects of 1073741825 bytes"},
		{fence.Limits{Object: 128, Record: 128}, "a record of 128 bytes does not fit into an object of 128, where its length takes 2 bytes more"},
		{fence.Limits{Object: 128, Record: math.MaxInt}, "does not fit"},
		{fence.Limits{Object: 128, Record: -1}, "a record of -1 bytes"},
		{fence.Limits{Object: 128, Record: 1, Cursor: -1}, "cursors of -1 bytes; possible are 0 to 1048576"},
		{fence.Limits{Object: 128, Record: 1, Cursor: fence.MaxCursor + 1}, "cursors of 1048577 bytes"},
	} {
		fixture.WantErr(t, CheckLimits(tt.limits), fence.ErrLimit, tt.text)
	}
}

// TestLimitsLeaveRoom: a manifest limit that two cursors or the seals can fill
// would stop compaction one day; such a log is not made.
func TestLimitsLeaveRoom(t *testing.T) {
	l := fence.DefaultLimits()
	l.Cursor = fence.MaxCursor
	l.Manifest = 256<<10 + 2*1398104
	if err := CheckLimits(l); err != nil {
		t.Error(err)
	}
	l.Manifest--
	fixture.WantErr(t, CheckLimits(l), fence.ErrLimit, "3058352 (262144 for lists and properties, 2796208 for two cursors of 1048576 in base64)")
}
