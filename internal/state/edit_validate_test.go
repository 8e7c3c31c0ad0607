package state

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
	"github.com/fencepost/fencepost/manifest"
)

func TestEditValidate(t *testing.T) {
	long := strings.Repeat("x", manifest.MaxMeta)
	for name, tt := range map[string]struct {
		change func(*manifest.Edit)
		says   string
	}{
		"nothing": {func(e *manifest.Edit) { *e = manifest.Edit{} }, "changes nothing"},
		"a segment": {func(e *manifest.Edit) {
			e.Add[0].Key = layout.SegmentKey(layout.Compactor, 1, "00000000-0000-4000-8000-000000000003")
		}, "no name of a file"},
		"no uuid":           {func(e *manifest.Edit) { e.Add[0].Key = "file/00000000000000000003/x.parquet" }, "no name of a file"},
		"epoch 0":           {func(e *manifest.Edit) { e.Add[0].Key = testFile(0, 1) }, "no name of a file"},
		"a folder":          {func(e *manifest.Edit) { e.Remove[0] += "/x" }, "no name of a file"},
		"added twice":       {func(e *manifest.Edit) { e.Add[1].Key = e.Add[0].Key }, "added twice"},
		"removed twice":     {func(e *manifest.Edit) { e.Remove = append(e.Remove, e.Remove[0]) }, "removed twice"},
		"added and removed": {func(e *manifest.Edit) { e.Remove[0] = e.Add[0].Key }, "or added too"},
		"negative size":     {func(e *manifest.Edit) { e.Add[1].Size = -1 }, "has -1 bytes"},
		"set and unset":     {func(e *manifest.Edit) { e.Unset[0] = "schema" }, `"schema" is set and unset`},
		"binary name":       {func(e *manifest.Edit) { e.Properties["\xff"] = "" }, "not UTF-8"},
		"binary value":      {func(e *manifest.Edit) { e.Properties["x"] = "\xff" }, "not UTF-8"},
		"binary unset":      {func(e *manifest.Edit) { e.Unset[0] = "\xff" }, "not UTF-8"},
		"binary meta":       {func(e *manifest.Edit) { e.Add[0].Meta["x"] = "\xff" }, "not UTF-8"},
		"much meta":         {func(e *manifest.Edit) { e.Add[0].Meta["x"] = long }, "at most 1024"},
		"much meta as JSON": {func(e *manifest.Edit) { e.Add[0].Meta["x"] = strings.Repeat("\x00", manifest.MaxMeta/6) }, "at most 1024"},
		"much properties":   {func(e *manifest.Edit) { e.Properties["x"] = strings.Repeat("x", manifest.MaxProperties) }, "at most 32768"},
	} {
		e := goldenEdit()
		tt.change(e)
		err := e.Validate()
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.HasPrefix(name, "much") != errors.Is(err, fence.ErrLimit) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
		if _, eerr := EncodeEdit(e); eerr == nil || eerr.Error() != err.Error() {
			t.Errorf("%s: encoding: %v", name, eerr)
		}
		if _, err := DecodeEdit([]byte(fixture.JSON(t, e))); !errors.Is(err, fence.ErrCorrupt) && !strings.HasPrefix(name, "binary") {
			t.Errorf("%s: decoding: %v", name, err)
		}
	}
	// The limits themselves are possible.
	e := goldenEdit()
	e.Add[0].Meta = map[string]string{"x": strings.Repeat("\x00", (manifest.MaxMeta-9-len("x"))/6)}
	e.Properties = map[string]string{"x": strings.Repeat("y", manifest.MaxProperties-len(`"x":"",`))}
	if b, err := EncodeEdit(e); err != nil {
		t.Error(err)
	} else if got, err := DecodeEdit(b); err != nil || !reflect.DeepEqual(got, e) {
		t.Error(err)
	}
}
