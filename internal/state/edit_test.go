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
	"github.com/fencepost/fencepost/internal/testkit/fixture"
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

// guard:edit-whole. What a newer program can say, and this one does not know, is
// not left out.
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

// guard:elements. An edit claims as many files as it has room for commas.
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
