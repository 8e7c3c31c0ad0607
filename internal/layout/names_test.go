package layout

import (
	"math"
	"testing"

	"github.com/fencepost/fencepost/fence"
)

const d20 = "00000000000000000000"

func TestParseNumber(t *testing.T) {
	for s, want := range map[string]uint64{
		"00000000000000000000": 0, "00000000000000000042": 42, "18446744073709551615": math.MaxUint64,
	} {
		if n, ok := ParseNumber(s); !ok || n != want || FormatNumber(want) != s {
			t.Errorf("%q: %d, %v; FormatNumber gives %q", s, n, ok, FormatNumber(want))
		}
	}
	for _, s := range []string{
		"", "42", "0000000000000000042", "000000000000000000042", "18446744073709551616", "99999999999999999999",
		"+0000000000000000042", "-0000000000000000042", "0x000000000000000042", "0000000000000000_042",
		" 0000000000000000042", "0000000000000000042 ", "0000000000000000004\n", "00000000000000004٢", "0000000000000000004a",
	} {
		if n, ok := ParseNumber(s); ok {
			t.Errorf("%q is read as %d", s, n)
		}
	}
}

func TestParseDataKey(t *testing.T) {
	const one = "00000000000000000001"
	for key, want := range map[string]fence.Position{
		"data/" + d20 + "/" + one:                        {Epoch: 0, Seq: 1},
		"data/" + one + "/" + one:                        {Epoch: 1, Seq: 1},
		"data/18446744073709551615/18446744073709551615": {Epoch: math.MaxUint64, Seq: math.MaxUint64},
	} {
		if p, ok := ParseDataKey(key); !ok || p != want || DataKey(p) != key {
			t.Errorf("%q: %v, %v; its key is %q", key, p, ok, DataKey(p))
		}
	}
	for _, key := range []string{
		"", "data/", "data/" + one, "data/" + one + "/", "data//" + one, "data/" + one + "/" + one + "/", "data/" + one + "/" + one + ".json",
		"data/" + one + "/" + d20, // seq begins at 1
		"data/1/1", "data/" + one + "/1", "data/1/" + one, "/data/" + one + "/" + one, "Data/" + one + "/" + one,
		"lock/" + one + ".json", "data/" + one + one, "data/" + one + "//" + one, "data/" + one + "/" + one + "/" + one, "x/data/" + one + "/" + one,
		"data/18446744073709551616/" + one, "data/" + one + "/18446744073709551616",
	} {
		if p, ok := ParseDataKey(key); ok {
			t.Errorf("%q is read as %v", key, p)
		}
	}
}
