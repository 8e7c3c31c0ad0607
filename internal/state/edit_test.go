package state

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
)

func goldenEdit() *manifest.Edit {
	return &manifest.Edit{
		Add: []manifest.File{
			{Key: testFile(3, 2), Size: 80000, CRC32C: 0xe3069283, Records: 120, Meta: map[string]string{"day": "2024-02-29", "min": "a<b"}},
			{Key: layout.FileKey(3, "00000000-0000-7000-8000-000000000003", "")},
		},
		Remove:     []string{testFile(1, 4)},
		Properties: map[string]string{"schema": "3"},
		Unset:      []string{"draft"},
	}
}

func TestGoldenEdit(t *testing.T) {
	e := goldenEdit()
	b, err := EncodeEdit(e)
	if err != nil {
		t.Fatal(err)
	}
	want := fixture.Golden(t, "edit.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	if got, err := DecodeEdit(want); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("decoded\n%s, %v", fixture.JSON(t, got), err)
	}
}

// What a newer program can say, and this one does not know, is not left out.
//
// guard:edit-whole. Without this check: a newer program commits an edit with a new field; an old
// program applies the edit without this field; the two programs have different tables.
func TestEditOfTheFuture(t *testing.T) {
	b, err := EncodeEdit(goldenEdit())
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{`{`, `{"key"`} {
		novel := strings.Replace(string(b), at, `{"novelty":[1],`+at[1:], 1)
		_, err := DecodeEdit([]byte(novel))
		if novel == string(b) || !errors.Is(err, fence.ErrFormat) || !strings.Contains(err.Error(), "upgrade") {
			t.Errorf("%v\n%s", err, novel)
		}
	}
}

func TestEditTooLarge(t *testing.T) {
	e := &manifest.Edit{}
	for i := range manifest.MaxEdit / 60 {
		e.Remove = append(e.Remove, testFile(1, i))
	}
	_, err := EncodeEdit(e)
	fixture.WantErr(t, err, fence.ErrLimit, "commit it in several")
	_, err = DecodeEdit(bytes.Repeat([]byte(" "), manifest.MaxEdit+1))
	fixture.WantErr(t, err, fence.ErrCorrupt, "at most 4194304")
	for doc, says := range map[string]string{"": "unexpected end", "{}": "changes nothing", "null": "changes nothing", "[]": "cannot unmarshal", `{"remove":"x"}`: "cannot unmarshal", "{} x": "after top-level"} {
		_, err := DecodeEdit([]byte(doc))
		fixture.WantErr(t, err, fence.ErrCorrupt, says)
	}
}

// An edit claims as many files as it has room for commas.
//
// guard:elements. Without this check: somebody stores a manifest with a right checksum, whose list of
// segments is 8 MiB of "null,"; each process that reads it makes 1.7 million empty segments, and
// allocates about a gigabyte.
func TestEditMemory(t *testing.T) {
	const size = 256 << 10
	for _, element := range []string{"null,", "{},", `"",`} {
		doc := []byte(`{"add":[` + strings.Repeat(element, size/len(element)) + `null]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := DecodeEdit(doc)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, fence.ErrCorrupt) || used > size {
			t.Errorf("%q: %d bytes for %d, %v", element, used, len(doc), err)
		}
	}
}

func TestSetProperties(t *testing.T) {
	before := map[string]string{"a": "1", "b": "2"}
	for _, tt := range []struct {
		e    manifest.Edit
		want map[string]string
	}{
		{manifest.Edit{Remove: []string{"x"}}, before},
		{manifest.Edit{Properties: map[string]string{"b": "3", "c": "4"}, Unset: []string{"a", "z"}}, map[string]string{"b": "3", "c": "4"}},
		{manifest.Edit{Unset: []string{"a", "b"}}, nil},
	} {
		if got, err := SetProperties(&tt.e, before); err != nil || !reflect.DeepEqual(got, tt.want) || len(before) != 2 || before["b"] != "2" {
			t.Errorf("%+v makes %v of %v, %v", tt.e, got, before, err)
		}
	}
	many := map[string]string{"x": strings.Repeat("y", manifest.MaxProperties-10)}
	_, err := SetProperties((&manifest.Edit{Properties: map[string]string{"another": "1"}}), many)
	fixture.WantErr(t, err, fence.ErrLimit, "at most 32768")
}

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
