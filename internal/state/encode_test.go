package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

func TestGoldenManifest(t *testing.T) {
	m := paged()
	b := encoded(t, m)
	want := fixture.Golden(t, "manifest.json", b)
	if !bytes.Equal(b, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", b, want)
	}
	got, err := decode(layout.ManifestKey(m.Version), want, testFormat())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("decoded\n%s\nwant\n%s", fixture.JSON(t, got), fixture.JSON(t, m))
	}
	if got := compacted(t, b); got != fixture.JSON(t, m) {
		t.Errorf("the lines change what is said:\n%s", got)
	}
}

// TestUnknownMembersAreIgnored: a newer program may add what an older one can do
// without.
func TestUnknownMembersAreIgnored(t *testing.T) {
	m := full()
	b := bytes.Replace(encoded(t, m), []byte(`{`), []byte(`{"novelty": {"deep": [1, null]},`), 1)
	b = bytes.Replace(b, []byte(`"first":0`), []byte(`"bloom":"xyz","first":0`), 1)
	got, err := decode(layout.ManifestKey(m.Version), document.Sum(layout.ManifestKey(m.Version), b), testFormat())
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%v\n%s", err, b)
	}
}

// TestUnknownRolesSurvive: a role that only newer programs know is kept by an
// older one that rewrites the manifest, or its holder would lose count.
func TestUnknownRolesSurvive(t *testing.T) {
	st, _ := fixture.Faults(nil)
	m := &Manifest{Format: document.Format, Log: testLog, Version: 1, Floor: frame.Start(), Roles: map[layout.Role]RoleState{"reaper": {Epoch: 5, Update: 6, Nonce: testNonce}}}
	fixture.Put(t, st, layout.ManifestKey(1), encoded(t, m))
	apply(t, st, layout.Writer, 1, 2)
	if got := newest(t, st).Roles["reaper"]; got != m.Roles["reaper"] {
		t.Errorf("it became %+v", got)
	}
}

// The future: what a newer program says must be understood comes first, whatever
// the rest looks like.
func TestFuture(t *testing.T) {
	for body, want := range map[string]string{
		`{"format": 2, "log": 7, "requires": {"a": 1}}`:       "says format 2",
		`{"format": 1, "requires": ["tiers"], "limits": "?"}`: `requires ["tiers"]`,
		`{"format": 9, "requires": ["tiers"]}`:                "says format 9",
	} {
		_, err := decodeFormat(t, document.Sum(layout.FormatKey, []byte(body)))
		fixture.WantErr(t, err, fence.ErrFormat, want)
		fixture.WantErr(t, err, fence.ErrFormat, "upgrade this program")
		body = strings.Replace(body, `"limits": "?"`, `"floor": 8, "version": "x"`, 1)
		_, err = decode(layout.ManifestKey(1), document.Sum(layout.ManifestKey(1), []byte(body)), testFormat())
		fixture.WantErr(t, err, fence.ErrFormat, want)
		fixture.WantErr(t, err, fence.ErrFormat, layout.ManifestKey(1))
	}
}

// guard:promised-start. A manifest promises every record from start on. Without this check: a faulty
// program publishes a manifest with start 599 whose first segment begins at 600; the manifest promises
// record 599, and no object that it names holds it.
//
// guard:dropped-own. Without this check: a faulty program writes the key of a seal into the list; a
// compactor deletes the seal, and a zombie can write into its slot.
//
// guard:dropped-live. Without this check: a faulty program drops a segment, and goes on naming it; a
// compactor deletes the segment; readers of the manifest do not find it.
func TestDecodeRefuses(t *testing.T) {
	seg := func(n int) string {
		return layout.SegmentKey(layout.Compactor, 1, fmt.Sprintf("00000000-0000-4000-8000-%012d", n))
	}
	tests := map[string]struct {
		change func(*Manifest)
		says   string
	}{
		"another log":            {func(m *Manifest) { m.Log = fence.ID{9} }, "belongs to log 09"},
		"another version":        {func(m *Manifest) { m.Version = 43 }, "says that it is version 43"},
		"mark at version":        {func(m *Manifest) { m.PruneMark = 42 }, "prune mark 42"},
		"mark overflow":          {func(m *Manifest) { m.PruneMark = math.MaxUint64 }, "prune mark"},
		"floor nowhere":          {func(m *Manifest) { m.Floor.Position.Seq = 0 }, "a point at 3/0"},
		"hint nowhere":           {func(m *Manifest) { m.Hint.Position.Seq = 0 }, "a point at 3/0"},
		"hint behind":            {func(m *Manifest) { m.Hint.Position.Seq = 3 }, "the hint 3/3"},
		"hint takes back":        {func(m *Manifest) { m.Hint.Offset = 999 }, "at offset 999"},
		"long cursor":            {func(m *Manifest) { m.Floor.Cursor = make([]byte, 5000) }, "cursor of 5000 bytes"},
		"long cursor of hint":    {func(m *Manifest) { m.Hint.Cursor = make([]byte, 4097) }, "cursor of 4097 bytes"},
		"foreign segment":        {func(m *Manifest) { m.Segments[0].Key = "data/00000000000000000001/00000000000000000001" }, "no name of a segment"},
		"segment of a role":      {func(m *Manifest) { m.Segments[0].Key = strings.Replace(seg(1), "compactor", "reader", 1) }, "no name"},
		"segment that climbs":    {func(m *Manifest) { m.Segments[0].Key = "segment/../../../etc" }, "no name"},
		"segment without number": {func(m *Manifest) { m.Segments[0].Key = strings.Replace(seg(1), "00001/", "0000x/", 1) }, "no name"},
		"segment without uuid":   {func(m *Manifest) { m.Segments[0].Key = seg(1)[:len(seg(1))-1] + "\n" }, "no name"},
		"segment of a folder":    {func(m *Manifest) { m.Segments[0].Key = seg(1) + "/x" }, "no name"},
		"upper case": {func(m *Manifest) {
			m.Segments[0].Key = layout.SegmentKey(layout.Compactor, 1, "ABCDEF00-0000-4000-8000-000000000001")
		}, "no name"},
		"segment twice":         {func(m *Manifest) { m.Segments[1].Key = m.Segments[0].Key }, "is there twice"},
		"empty segment":         {func(m *Manifest) { m.Segments[0].End = 0; m.Segments[1].First = 0 }, "holds [0, 0)"},
		"segment backwards":     {func(m *Manifest) { m.Segments[1].First = 1001 }, "holds [1001, 1000)"},
		"no index":              {func(m *Manifest) { m.Segments[0].Index = 0 }, "an index of 0"},
		"negative index":        {func(m *Manifest) { m.Segments[0].Index = math.MinInt64 }, "an index of -"},
		"index over all":        {func(m *Manifest) { m.Segments[0].Index = 5001 }, "an index of 5001"},
		"negative size":         {func(m *Manifest) { m.Segments[0].Size = -1 }, "in -1 bytes"},
		"gap":                   {func(m *Manifest) { m.Segments[1].First = 601 }, "begins at 601"},
		"short of the floor":    {func(m *Manifest) { m.Segments = m.Segments[:1] }, "the segments end at 600"},
		"foreign dropped":       {func(m *Manifest) { m.Dropped[0].Key = "lock/00000000000000000003.json" }, `object "lock/`},
		"seal dropped":          {func(m *Manifest) { m.Dropped[0].Key = layout.DataKey(frame.Genesis()) }, `object "data/`},
		"live dropped":          {func(m *Manifest) { m.Dropped[0].Key = m.Segments[0].Key }, "and is named"},
		"dropped in future":     {func(m *Manifest) { m.Dropped[1].Version = 43 }, "dropped by version 43"},
		"dropped by nobody":     {func(m *Manifest) { m.Dropped[0].Version = 0 }, "dropped by version 0"},
		"seal to itself":        {func(m *Manifest) { m.Seals[1].Next = 1 }, "the seal at "},
		"seal nowhere":          {func(m *Manifest) { m.Seals[1].Position.Seq = 0 }, "the seal at "},
		"seals with a gap":      {func(m *Manifest) { m.Seals[1].Position.Epoch = 2 }, "the seal at "},
		"seals go back":         {func(m *Manifest) { m.Seals[0].Offset = 901 }, "the seal at "},
		"seal beyond the floor": {func(m *Manifest) { m.Seals[1].Offset = 1001 }, "the seals lead to offset 1001"},
		"seals lead elsewhere":  {func(m *Manifest) { m.Seals[1].Next = 4 }, "to epoch 4; the floor"},
		"no seals":              {func(m *Manifest) { m.Seals = nil }, "to epoch 0; the floor"},
	}
	for name, tt := range tests {
		m := full()
		tt.change(m)
		got, err := decode(layout.ManifestKey(42), document.Sum(layout.ManifestKey(42), encoded(t, m)), testFormat())
		if got != nil {
			t.Errorf("%s: it returns what it refuses", name)
		}
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), layout.ManifestKey(42)) {
			t.Errorf("%s: error %v, want %q", name, err, tt.says)
		}
	}
	lists := map[string]struct {
		change func(*Manifest)
		says   string
	}{
		"start beyond the floor":      {func(m *Manifest) { m.Start = 1001 }, "from 1001 on"},
		"guard:promised-start. a gap": {func(m *Manifest) { m.Start, m.SegmentPages = 599, nil }, "the segments begin at 600"},
		"nothing left of it":          {func(m *Manifest) { m.Start, m.SegmentPages, m.Segments = 999, nil, nil }, "the segments begin at 1000"},
		"gap behind the page":         {func(m *Manifest) { m.SegmentPages[0].To = 599 }, "segments begin at 600, the pages end at 599"},
		"gap between pages": {func(m *Manifest) {
			m.SegmentPages = append(m.SegmentPages, Page[uint64]{Key: testPage(7), Count: 1, Size: 100, From: 601, To: 700})
		}, "begins at 601, the one before it ends at 600"},
		"page short of the floor": {func(m *Manifest) { m.Segments = nil }, "the segments end at 600"},
		"seals from later on":     {func(m *Manifest) { m.SealPages[0].From = 1 }, "the seals lead from epoch 1"},
		"gap in the seals":        {func(m *Manifest) { m.SealPages[0].To = 2 }, "seals begin at 1, the pages end at 2"},
		"foreign page":            {func(m *Manifest) { m.SealPages[0].Key = m.Segments[0].Key }, "no name of a page"},
		"page twice":              {func(m *Manifest) { m.SealPages[0].Key = m.SegmentPages[0].Key }, "is there twice"},
		"empty page":              {func(m *Manifest) { m.SealPages[0].Count = 0 }, "has 0 entries"},
		"page of many":            {func(m *Manifest) { m.SealPages[0].Count = 1000 }, "has 1000 entries in 300 bytes"},
		"huge page":               {func(m *Manifest) { m.SealPages[0].Size = fence.MaxManifest + 1 }, "in 67108865 bytes"},
		"page of nothing":         {func(m *Manifest) { m.SealPages[0].Size = 0 }, "in 0 bytes"},
		"page backwards":          {func(m *Manifest) { m.FilePages[0].To = testFile(1, 0) }, "from file/"},
		"pages overlap":           {func(m *Manifest) { m.FilePages[1].From = testFile(1, 900) }, "the one before it ends at"},
		"removed pages overlap":   {func(m *Manifest) { m.RemovedPages = append(m.RemovedPages, m.RemovedPages[0]) }, "the one before it ends at"},
		"files out of order":      {func(m *Manifest) { f := m.Table.Files; f[0], f[1] = f[1], f[0] }, "comes after"},
		"file twice":              {func(m *Manifest) { m.Table.Files[1] = m.Table.Files[0] }, "comes after"},
		"foreign file":            {func(m *Manifest) { m.Table.Files[0].Key = "file/x" }, "no name of a file"},
		"file of the future":      {func(m *Manifest) { m.Table.Files[1].Key = testFile(4, 1) }, "an epoch that is not folded"},
		"file of negative size":   {func(m *Manifest) { m.Table.Files[0].Size = -1 }, "-1 bytes"},
		"much meta": {func(m *Manifest) {
			m.Table.Files[0].Meta = map[string]string{"x": strings.Repeat("y", manifest.MaxMeta)}
		}, "at most 1024"},
		"many properties":          {func(m *Manifest) { m.Properties["x"] = strings.Repeat("y", manifest.MaxProperties) }, "at most 32768"},
		"edit beyond the floor":    {func(m *Manifest) { m.EditedAt = 1001 }, "lies at offset 1001"},
		"foreign removed":          {func(m *Manifest) { m.Removed[0] = "x" }, "no name of a file"},
		"removed of no page":       {func(m *Manifest) { m.Removed[0] = testFile(3, 9) }, "is in no page"},
		"removed twice":            {func(m *Manifest) { m.Removed = append(m.Removed, m.Removed[0]) }, "comes after"},
		"removed and live":         {func(m *Manifest) { m.FilePages[1].To = testFile(3, 9); m.Removed[0] = testFile(3, 1) }, "is removed and live"},
		"live file dropped":        {func(m *Manifest) { m.Dropped[0].Key = testFile(3, 1) }, "and is named"},
		"live page dropped":        {func(m *Manifest) { m.Dropped[0].Key = testPage(3) }, "and is named"},
		"pin dropped":              {func(m *Manifest) { m.Dropped[0].Key = layout.PinKey("00000000-0000-4000-8000-000000000001") }, "neither segment nor page nor file"},
		"dropped out of order":     {func(m *Manifest) { m.Dropped[0].Version = 42; m.Dropped[1].Version = 41 }, "the one before it by 42"},
		"dropped before the pages": {func(m *Manifest) { m.DroppedPages[0].To = 42 }, "dropped begin at 41, the pages end at 42"},
		"dropped page in future":   {func(m *Manifest) { m.Dropped = nil; m.DroppedPages[0].To = 43 }, "dropped by version 43"},
		"forgotten above the mark": {func(m *Manifest) { m.Forgotten = 41 }, "41 is forgotten"},
	}
	for name, tt := range lists {
		m := paged()
		tt.change(m)
		got, err := decode(layout.ManifestKey(42), encoded(t, m), testFormat())
		if got != nil || !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), layout.ManifestKey(42)) {
			t.Errorf("%s: error %v, want %q", name, err, tt.says)
		}
	}
	for body, says := range map[string]string{
		"":                          "invalid character",
		"{}":                        "invalid character",
		`[]`:                        "invalid character",
		`{"novelty":1}`:             "says format 0",
		`{"format":-1}`:             "says format -1",
		`{"format":1e99}`:           "cannot unmarshal",
		`{"format":1} x`:            "after top-level value",
		`{"format":1}`:              "belongs to log 0000",
		"\xff\xfe":                  "invalid character",
		`{"format":1,"log":`:        "invalid character",
		`{"format":1,"requires":3}`: "cannot unmarshal",
		`{"format":1,"log":"abc"}`:  "an id has 32",
		`{"format":1,"version":18446744073709551616}`:  "cannot unmarshal",
		`{"format":1,"segments":[{"size":1e30}]}`:      "cannot unmarshal",
		`{"format":1,"roles":{"writer":{"epoch":-1}}}`: "cannot unmarshal",
	} {
		_, err := decode(layout.ManifestKey(42), document.Sum(layout.ManifestKey(42), []byte(body)), testFormat())
		fixture.WantErr(t, err, fence.ErrCorrupt, says)
	}
}

// TestDensestManifest: what is refused as too dense is nothing that a log can
// come to.
func TestDensestManifest(t *testing.T) {
	m := &Manifest{Format: 1, Log: testLog, Version: 1, Floor: frame.Point{Position: fence.Position{Epoch: MaxInline, Seq: 1}}}
	for e := range fence.Epoch(MaxInline) {
		m.Seals = append(m.Seals, Seal{Position: fence.Position{Epoch: e, Seq: 1}, Next: e + 1})
	}
	b := encoded(t, m)
	if _, err := decode(layout.ManifestKey(1), b, testFormat()); err != nil {
		t.Error(err)
	}
	t.Logf("%d bytes, a comma for every %.1f", len(b), float64(len(b))/float64(bytes.Count(b, []byte(","))))
}

// TestDecodeMemory: a manifest claims as many segments as it has room for commas.
func TestDecodeMemory(t *testing.T) {
	const size = 256 << 10
	for _, list := range []string{"segments", "seals", "dropped", "files", "removed", "file_pages", "seal_pages"} {
		for _, element := range []string{"null,", "{},", "null,           ", "{},             "} {
			body := `{"format":1,"` + list + `":[` + strings.Repeat(element, size/len(element)) + `null]}`
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decode(layout.ManifestKey(1), document.Sum(layout.ManifestKey(1), []byte(body)), testFormat())
			runtime.ReadMemStats(&after)
			if !errors.Is(err, fence.ErrCorrupt) {
				t.Error(err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 50*size {
				t.Errorf("%s of %q: %d bytes for %d", list, element, used, len(body))
			}
		}
	}
}

// members shows what docs/format.md must have a row for.
func members(t *testing.T, v any) []string {
	t.Helper()
	var names []string
	var walk func(rt reflect.Type)
	walk = func(rt reflect.Type) {
		for i := range rt.NumField() {
			f := rt.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous {
				walk(f.Type)
				continue
			}
			if !f.IsExported() {
				continue // of no concern to JSON
			}
			if name == "" {
				t.Errorf("%v.%s has no name in JSON", rt, f.Name)
			}
			names = append(names, name)
		}
	}
	walk(reflect.TypeOf(v))
	return names
}

// formatMembers returns the members of a format.json that has each of them.
func formatMembers(t *testing.T) []string {
	t.Helper()
	st := memstore.New(nil)
	quick := &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}
	if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probe: quick, Files: memstore.New(nil)}); err != nil {
		t.Fatal(err)
	}
	body, _, err := store.Read(t.Context(), st, layout.FormatKey, &store.ReadOptions{Limit: 1 << 20})
	var doc map[string]any
	if err = errors.Join(err, json.Unmarshal(body, &doc)); err != nil {
		t.Fatal(err)
	}
	all := slices.DeleteFunc(slices.Collect(maps.Keys(doc)), func(name string) bool { return name == "checksum" })
	return append(all, "backup", "restoring", "restored") // which a new log has not
}

// TestDocumentedMembers compares the tables of docs/format.md with the members
// that the code writes: each table has exactly its members, in any order.
func TestDocumentedMembers(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	tables := regexp.MustCompile(`(?m)(?:^\|.*\n)+`).FindAllString(string(doc), -1)
	written := map[string][]string{"format.json": formatMembers(t)}
	for what, v := range map[string]any{
		"limits": fence.Limits{}, "manifest": Manifest{}, "point": frame.Point{}, "position": fence.Position{},
		"role": RoleState{}, "segment": Segment{}, "seal": Seal{}, "dropped": Dropped{}, "page": Page[string]{}, "page object": pageDoc[manifest.File]{},
		"edit": manifest.Edit{}, "file": manifest.File{}, "pin": pinDoc{}, "restoring": manifest.Restoring{},
	} {
		written[what] = members(t, v)
	}
	for what, names := range written {
		var table string
		for _, tab := range tables {
			if strings.HasPrefix(tab, "| Member of "+what+" |") {
				table = tab
			}
		}
		rows := map[string]bool{}
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(table, -1) {
			rows[row[1]] = true
		}
		for _, name := range names {
			if !rows[name] {
				t.Errorf("docs/format.md has no row for %q in a table with the head %q", name, "Member of "+what)
			}
			delete(rows, name)
		}
		if len(rows) > 0 {
			t.Errorf("docs/format.md has rows of %s that nothing writes: %v", what, rows)
		}
	}
	for _, says := range []string{
		fmt.Sprintf("| manifest | %d MiB | %d MiB |", fence.DefaultLimits().Manifest>>20, fence.MaxManifest>>20),
		"64 elements in lists and one element for every 32 bytes",
		fmt.Sprintf("JSON of at most %d MiB", manifest.MaxEdit>>20),
		fmt.Sprintf("at most %d bytes, left out", manifest.MaxMeta),
		fmt.Sprintf("at most %d bytes as JSON", manifest.MaxProperties),
		fmt.Sprintf("a dot and 1 to %d letters", layout.MaxExt-1),
	} {
		if !strings.Contains(string(doc), says) {
			t.Errorf("docs/format.md does not say %q", says)
		}
	}
	// The examples on the page are documents.
	var examples int
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		body := []byte(block[1])
		switch {
		case strings.Contains(block[1], `"limits"`):
			_, err = decodeFormat(t, body)
		case strings.Contains(block[1], `"entries"`):
			_, err = sealList.decode(testLog, Page[uint64]{Key: testPage(4), Count: 1, Size: int64(len(body)), CRC32C: crc32.Checksum(body, castagnoli), From: 0, To: 1}, body)
		default:
			var v struct{ Version uint64 }
			_ = json.Unmarshal(body, &v)
			_, err = decode(layout.ManifestKey(v.Version), body, testFormat())
		}
		if err != nil {
			t.Errorf("the example cannot be read: %v\n%s", err, body)
		}
		examples++
	}
	if examples != 3 {
		t.Errorf("%d examples", examples)
	}
}
