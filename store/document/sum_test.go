package document

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
)

type sample struct {
	Format int      `json:"format"`
	Name   string   `json:"name"`
	List   []string `json:"list"`
}

const sampleKey = "list/x/00000000-0000-4000-8000-000000000001"

func sampleDocument(t testing.TB) []byte {
	t.Helper()
	b, err := Encode(sampleKey, sample{Format, "a", []string{"b", "requires"}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenDocument: docs/format.md shows how the checksum is computed. These bytes never
// change.
func TestGoldenDocument(t *testing.T) {
	const want = "{\n \"format\": 1,\n \"name\": \"a\",\n \"list\": [\n  \"b\",\n  \"requires\"\n ],\n \"checksum\": \"bda2af45\"\n}\n"
	b := sampleDocument(t)
	if string(b) != want {
		t.Errorf("encoded\n%s\nwant\n%s", b, want)
	}
	var got sample
	if err := Decode(sampleKey, b, &got); err != nil || got.Name != "a" || len(got.List) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Decode("elsewhere/"+sampleKey, b, &got); err != nil {
		t.Errorf("in another folder: %v", err)
	}
	if again := Sum(sampleKey, bytes.Replace(b, []byte(`"bd`), []byte(`"00`), 1)); !bytes.Equal(again, b) {
		t.Errorf("summed up again:\n%s", again)
	}
}

// A document that has changed in one bit, was cut anywhere, has got more bytes or another name is
// refused as damaged. It never becomes another document.
//
// guard:document-sum. Without this check: the first empty slot is 24; a disk flips one bit in a
// manifest, and its hint says slot 26 instead of 22; an opener begins at slot 26, takes it for the
// tail, and acknowledges appends after it; readers stop at the empty slot 24.
func TestDamagedDocument(t *testing.T) {
	whole := sampleDocument(t)
	refused := func(what, key string, b []byte, says string) {
		t.Helper()
		var got sample
		err := Decode(key, b, &got)
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one about %s that says %q", what, err, key, says)
		}
		if got.Name != "" || got.List != nil {
			t.Errorf("%s: it returns what it refuses", what)
		}
	}
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			refused("a flipped bit", sampleKey, b, "checksum")
		}
		refused("a cut", sampleKey, whole[:i], "does not end with its checksum")
		refused("a byte too many", sampleKey, append(bytes.Clone(whole[:i]), append([]byte{' '}, whole[i:]...)...), "checksum")
	}
	refused("more at the end", sampleKey, append(bytes.Clone(whole), ' '), "does not end with its checksum")
	refused("another name", sampleKey[:len(sampleKey)-1]+"2", whole, "another name")
	refused("a checksum in capitals", sampleKey, []byte(strings.Replace(string(whole), "bda2af45", "BDA2AF45", 1)), "its checksum is bda2af45")
	refused("without a checksum", sampleKey, []byte("{\"format\":1}"), "does not end with its checksum")
}

// A format or a feature that this program does not know is reported as such, wherever it
// stands.
func TestDocumentOfTheFuture(t *testing.T) {
	for body, says := range map[string]string{
		`{"format":2}`:                                "says format 2",
		`{"format":1,"requires":["tiers"]}`:           `requires ["tiers"]`,
		"{\n \"format\": 1,\n \"requires\": [\"x\"]}": `requires ["x"]`,
		`{"name":7,"requires":["x"],"format":1}`:      `requires ["x"]`,
	} {
		var got sample
		if err := Decode("x", Sum("x", []byte(body)), &got); !errors.Is(err, fence.ErrFormat) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one that says %q", body, err, says)
		}
	}
	for body, says := range map[string]string{
		`{"format":0}`:              "says format 0",
		`{"name":"x"}`:              "says format 0",
		`{"format":1,"requires":3}`: "cannot unmarshal",
		`{"format":1,"name":3}`:     "cannot unmarshal",
		"{\n \"format\": 1,\n x}":   "invalid character",
		"":                          "invalid character",
	} {
		var got sample
		if err := Decode("x", Sum("x", []byte(body)), &got); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one that says %q", body, err, says)
		}
	}
}
