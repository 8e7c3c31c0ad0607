package manifest

import (
	"os"
	"testing"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/document"
)

func FuzzDecodeFormat(f *testing.F) {
	b, err := os.ReadFile("testdata/format.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"log":"101112131415161718191a1b1c1d1e1f","limits":{"object":9,"record":8,"cursor":0,"manifest":262144}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v Format
		var err error
		body := document.Sum(layout.FormatKey, b)
		test.Affords(t, len(b), 64, 64<<10, func() { v, err = decodeFormat(body) })
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		again, err := v.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeFormat(again)
		if err != nil || fixture.JSON(t, got) != fixture.JSON(t, v) {
			t.Fatalf("%s became %s: %v", fixture.JSON(t, v), again, err)
		}
	})
}
