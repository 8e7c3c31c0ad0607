package manifest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

func numbered(epoch fence.Epoch, n int, ext string) string {
	return layout.FileKey(epoch, fmt.Sprintf("00000000-0000-7000-8000-%012d", n), ext)
}

// TestReplaces: the keys come back in their order, also of several epochs and extensions.
func TestReplaces(t *testing.T) {
	many := []string{}
	for n := range 40 {
		many = append(many, numbered(7, n, ".parquet"))
	}
	for _, keys := range [][]string{
		nil,
		{numbered(1, 1, "")},
		{numbered(1, 1, ".parquet"), numbered(1, 2, ".parquet"), numbered(2, 3, ".parquet"), numbered(1, 4, ".x-y_z.gz")},
		many,
	} {
		f := File{Key: numbered(9, 9, ""), Meta: map[string]string{"day": "2026-11-22"}}
		meta := f.Meta
		if err := f.SetReplaces(keys); err != nil {
			t.Fatal(err)
		}
		got, err := f.Replaces()
		if err != nil || !slices.Equal(got, keys) {
			t.Errorf("%q became %q, %v", keys, got, err)
		}
		if len(meta) != 1 || f.Meta["day"] != "2026-11-22" {
			t.Errorf("the meta is %q, the caller's %q", f.Meta, meta)
		}
		if err := f.SetReplaces(keys); err == nil {
			t.Error("noted twice")
		}
	}
	golden := File{Key: numbered(9, 9, "")}
	if err := golden.SetReplaces([]string{numbered(1, 1, ".parquet"), numbered(2, 3, "")}); err != nil {
		t.Fatal(err)
	}
	if got, want := golden.Meta["replaces"], "1.parquet:AAAAAAAAcACAAAAAAAAAAQ 2:AAAAAAAAcACAAAAAAAAAAw"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, err := (&File{}).Replaces(); got != nil || err != nil {
		t.Error(got, err)
	}
}

func TestReplacesErrors(t *testing.T) {
	f := File{Key: numbered(9, 9, "")}
	var all []string
	for range 60 {
		all = append(all, layout.FileKey(1, uuid.NewString(), ""))
	}
	fixture.WantErr(t, f.SetReplaces(all), fence.ErrLimit, "at most 1024")
	if err := f.SetReplaces([]string{"data/1/2"}); err == nil {
		t.Error("not the key of a file")
	}
	if f.Meta != nil {
		t.Error("a refused list was noted")
	}
	for _, bad := range []string{"x", "1", "1:", "1:AAAA", "x.parquet:AAAAAAAAcACAAAAAAAAAAQ", "1./:AAAAAAAAcACAAAAAAAAAAQ", "1:=", "file/1/2"} {
		f.Meta = map[string]string{"replaces": bad}
		if keys, err := f.Replaces(); bad != "1:" || len(keys) > 0 || err != nil {
			fixture.WantErr(t, err, fence.ErrCorrupt, f.Key)
		}
	}
}

func FuzzReplaces(f *testing.F) {
	f.Add("1.parquet:AAAAAAAAcACAAAAAAAAAAQ 2:AAAAAAAAcACAAAAAAAAAAw")
	f.Fuzz(func(t *testing.T, list string) {
		keys, err := unpackKeys(list)
		if err != nil {
			return
		}
		packed, err := packKeys(keys)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := unpackKeys(packed); err != nil || !slices.Equal(again, keys) {
			t.Errorf("%q became %q, %v", keys, again, err)
		}
	})
}
