package fence

import (
	"math"
	"testing"

	"github.com/fencepost/fencepost/internal/testkit/fixture"
)

func TestLimitsValidate(t *testing.T) {
	for _, l := range []Limits{
		DefaultLimits(),
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
		fixture.WantErr(t, tt.limits.Validate(), ErrLimit, tt.text)
	}
}
