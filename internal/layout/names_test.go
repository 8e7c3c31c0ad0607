package layout

import (
	"math"
	"strings"
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

func TestKeys(t *testing.T) {
	for _, v := range []uint64{1, 42, math.MaxUint64} {
		if got, ok := ParseManifestKey(ManifestKey(v)); !ok || got != v {
			t.Errorf("%s is %d, %t", ManifestKey(v), got, ok)
		}
	}
	for _, key := range []string{
		"", "manifest/", "manifest/1.json", ManifestKey(1) + "x", "x" + ManifestKey(1), strings.TrimSuffix(ManifestKey(1), ".json"),
		"manifest/00000000000000000000.json", "manifest/18446744073709551616.json", "manifest/+0000000000000000001.json",
		"manifest/a/00000000000000000001.json",
	} {
		if v, ok := ParseManifestKey(key); ok {
			t.Errorf("%q is manifest %d", key, v)
		}
	}
}

func TestOtherKeys(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000001"
	for _, ext := range []string{"", ".sst", ".tar.gz", ".A_z-9", "." + strings.Repeat("x", MaxExt-1)} {
		epoch, gotID, gotExt, ok := ParseFileKey(FileKey(7, id, ext))
		if !ok || epoch != 7 || gotID != id || gotExt != ext {
			t.Errorf("%q: %d %q %q %t", ext, epoch, gotID, gotExt, ok)
		}
	}
	for _, key := range []string{
		"", "file/", FileKey(7, id, "sst"), FileKey(7, id, "."), FileKey(7, id, "./x"), FileKey(7, id, ".é"), FileKey(7, id, ". "), FileKey(7, id, "."+strings.Repeat("x", MaxExt)),
		FileKey(7, strings.ToUpper("abcdef00-0000-4000-8000-000000000001"), ""), FileKey(7, id[:35], ""), "x" + FileKey(7, id, ""), "file/7/" + id, "file/" + id,
	} {
		if _, _, _, ok := ParseFileKey(key); ok {
			t.Errorf("%q is a file", key)
		}
	}
	for _, key := range []string{"", "pin/" + id, "pin/.json", "pin/x/" + id + ".json", id + ".json", PinKey(id) + ".json"} {
		if _, ok := ParsePinKey(key); ok {
			t.Errorf("%q is a pin", key)
		}
	}
	for _, key := range []string{"", SegmentKey(Compactor, 1, id), ListKey("reader", 1, id), ListKey(Writer, 1, id+"/"), "list/writer/1/" + id} {
		if _, _, ok := ParseListKey(key); ok {
			t.Errorf("%q is a page", key)
		}
	}
	if role, epoch, ok := ParseListKey(ListKey(Compactor, 7, id)); !ok || role != Compactor || epoch != 7 {
		t.Errorf("%s %d %t", role, epoch, ok)
	}
}

// Only what we name ourselves is read as a name: a pruner deletes by it.
func FuzzKeys(f *testing.F) {
	f.Add(ManifestKey(7))
	f.Add(SegmentKey(Writer, 3, "00000000-0000-4000-8000-000000000001"))
	f.Add(ListKey(Compactor, 2, "00000000-0000-4000-8000-000000000001"))
	f.Add(FileKey(1, "00000000-0000-7000-8000-000000000001", ".parquet"))
	f.Add(PinKey("00000000-0000-4000-8000-000000000001"))
	f.Fuzz(func(t *testing.T, key string) {
		if v, ok := ParseManifestKey(key); ok && ManifestKey(v) != key {
			t.Errorf("%q is read as %d", key, v)
		}
		if role, epoch, ok := ParseSegmentKey(key); ok && SegmentKey(role, epoch, key[len(key)-36:]) != key {
			t.Errorf("%q is read as %s %d", key, role, epoch)
		}
		if role, epoch, ok := ParseListKey(key); ok && ListKey(role, epoch, key[len(key)-36:]) != key {
			t.Errorf("%q is read as %s %d", key, role, epoch)
		}
		if epoch, id, ext, ok := ParseFileKey(key); ok && (FileKey(epoch, id, ext) != key || strings.Contains(ext, "/")) {
			t.Errorf("%q is read as %d %q %q", key, epoch, id, ext)
		}
		if id, ok := ParsePinKey(key); ok && PinKey(id) != key {
			t.Errorf("%q is read as %q", key, id)
		}
	})
}

func TestKinds(t *testing.T) {
	const id = "00000000-0000-4000-8000-000000000001"
	n := FormatNumber(1)
	for key, want := range map[string]string{
		FormatKey: KindFormat, "lock/" + n + ".json": KindLock, "compactor-lock/" + n + ".json": KindCompactorLock, "data/" + n + "/" + n: KindData,
		ManifestKey(1): KindManifest, SegmentKey(Compactor, 1, id): KindSegment, ListKey(Writer, 1, id): KindList, PinKey(id): KindPin,
		FileKey(1, id, ".sst"): KindFile, "file/_delta_log/x": KindFile, "file/_delta_logs": KindUnknown, "tmp/x": KindTmp,
		"": KindUnknown, "format": KindUnknown, "tmp": KindUnknown, "lock": KindUnknown, "lock/1.json": KindUnknown, "compactor-lock/readme": KindUnknown,
		"data/x": KindUnknown, "x/" + FormatKey: KindUnknown, "unknown/x": KindUnknown,
	} {
		if got := KindOf(key); got != want {
			t.Errorf("%q is %s, want %s", key, got, want)
		}
	}
}

func TestDeltaKeys(t *testing.T) {
	const n = "00000000000000000042"
	if key := DeltaCommitKey(42); key != "file/_delta_log/"+n+".json" {
		t.Error(key)
	}
	for key, want := range map[string]int64{
		DeltaCommitKey(0): 0, DeltaCommitKey(42): 42, DeltaCommitKey(math.MaxInt64): math.MaxInt64,
		DeltaHintKey: -1, DeltaPrefix + n: -1, DeltaPrefix + n + ".checkpoint.parquet": -1, DeltaPrefix + "42.json": -1, n + ".json": -1,
		DeltaPrefix + "09223372036854775808.json": -1,
	} {
		if got, ok := ParseDeltaCommitKey(key); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is read as %d, %t", key, got, ok)
		}
	}
}
