package manifest

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
)

func goldenFormat() Format {
	f := testFormat()
	f.Probe = &probe.Report{
		Store: "s3://bucket/orders", At: testTime, Kept: []string{probe.Create, probe.Swap}, Clients: 8, CreateRaces: 25, SwapRaces: 25,
		Unknown: 1, StoreClock: true, Put: probe.Latency{Requests: 70, P50: 12.5, Max: 40},
	}
	return f
}

func TestGoldenFormat(t *testing.T) {
	f := goldenFormat()
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := fixture.Golden(t, "format.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	got, err := decodeFormat(want)
	if err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestFormatRefuses(t *testing.T) {
	const id = `"log":"101112131415161718191a1b1c1d1e1f"`
	const limits = `"limits":{"object":1000,"record":900,"cursor":0,"manifest":1000000}`
	for body, says := range map[string]string{
		"":                              "invalid character",
		"{}":                            "invalid character",
		`{"created":"noon"}`:            "says format 0",
		`{"format":0}`:                  "says format 0",
		`{"format":1,` + limits + `}`:   "has no id",
		`{"format":1,` + id + `}`:       "objects of 0 bytes",
		`{"format":1,"log":"1011"}`:     "an id has 32",
		`{"format":1,"created":"noon"}`: "parsing time",
		`{"format":1,` + id + `,` + limits + `,"grace":"soon"}`:                                   "invalid duration",
		`{"format":1,` + id + `,` + limits + `,"grace":"-1s"}`:                                    "grace is -1s",
		`{"format":1,` + id + `,` + strings.Replace(limits, "900", "999", 1) + `}`:                "does not fit into an object of 1000",
		`{"format":1,` + id + `,` + strings.Replace(limits, "1000000", "200000", 1) + `}`:         "possible are 262144",
		`{"format":1,` + id + `,` + strings.Replace(limits, "1000000", "1e15", 1) + `}`:           "cannot unmarshal",
		`{"format":1,` + id + `,` + strings.Replace(limits, "1000000", "100000000", 1) + `}`:      "to 67108864",
		`{"format":1,` + id + `,` + strings.Replace(limits, `"cursor":0`, `"cursor":-1`, 1) + `}`: "cursors of -1",
		// A gigabyte is the most that a decoder can be made to hold.
		`{"format":1,` + id + `,` + strings.Replace(limits, "1000,", "9223372036854775807,", 1) + `}`: "objects of 9223372036854775807",
	} {
		f, err := decodeFormat(document.Sum(layout.FormatKey, []byte(body)))
		fixture.WantErr(t, err, fence.ErrCorrupt, says)
		fixture.WantErr(t, err, fence.ErrCorrupt, layout.FormatKey)
		if !reflect.DeepEqual(f, Format{}) {
			t.Errorf("%s: it returns what it refuses", body)
		}
	}
}

// TestUnknownMembersAreIgnored: a newer program may add what an older one can do
// without.
func TestUnknownMembersAreIgnored(t *testing.T) {
	f := goldenFormat()
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`{`), []byte(`{"novelty": [],`), 1)
	if got, err := decodeFormat(document.Sum(layout.FormatKey, b)); err != nil || !reflect.DeepEqual(got, f) {
		t.Errorf("%+v, %v", got, err)
	}
}
