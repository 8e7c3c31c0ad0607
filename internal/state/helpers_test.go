package state

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
)

var (
	testLog   = fence.ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	testNonce = fence.ID{0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f}
	testTime  = time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC)
)

func testFormat() manifest.Format {
	return manifest.Format{Version: document.Format, Log: testLog, Created: testTime.Truncate(time.Second), Limits: fence.DefaultLimits(), Grace: manifest.DefaultGrace}
}

// quick lets nobody wait for a store that is in memory.
var quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 100}

func testOpen(st store.Store) *Log { return With(st, testFormat(), &Options{Settle: quick}) }

func testUpdater(t testing.TB, st store.Store, role layout.Role, epoch fence.Epoch) *Updater {
	t.Helper()
	u, err := testOpen(st).Updater(role, fence.NewToken(epoch))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// effect is an update that leaves a trace that is never wiped out: a segment of
// one record. Applied twice, it is there twice, and check refuses it.
func effect(id string) func(*Change) error {
	return func(m *Change) error {
		m.Segments = append(m.Segments, Segment{Key: layout.SegmentKey(layout.Compactor, 1, id), First: m.Floor.Offset, End: m.Floor.Offset + 1, Size: 200, Index: 96, From: testTime, To: testTime})
		m.Floor.Offset++
		m.Floor.Position.Seq++
		return nil
	}
}

// effects returns the ids that left a trace, in order.
func effects(m *Manifest) []string {
	var ids []string
	for _, s := range m.Segments {
		ids = append(ids, s.Key[strings.LastIndexByte(s.Key, '/')+1:])
	}
	return ids
}

func count(ids []string, id string) int {
	n := 0
	for _, other := range ids {
		if other == id {
			n++
		}
	}
	return n
}

func newest(t testing.TB, st store.Store) *Manifest {
	t.Helper()
	m, err := testOpen(st).Newest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// apply makes n updates of role in epoch and returns their ids.
func apply(t testing.TB, st store.Store, role layout.Role, epoch fence.Epoch, n int) []string {
	t.Helper()
	u := testUpdater(t, st, role, epoch)
	var ids []string
	for range n {
		id := uuid.NewString()
		if _, err := u.Update(context.Background(), effect(id)); err != nil {
			t.Fatalf("update of %s %d: %v", role, epoch, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// prune deletes every manifest below the newest, and returns how many.
func prune(ctx context.Context, st store.Store) (int, error) {
	m, err := testOpen(st).Newest(ctx)
	if err != nil {
		return 0, err
	}
	var keys []string
	for info, err := range store.ListAll(ctx, st, layout.ManifestPrefix, nil, quick) {
		if err != nil {
			return 0, err
		}
		if v, ok := layout.ParseManifestKey(info.Key); ok && v < m.Version {
			keys = append(keys, info.Key)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	return len(keys), store.DeleteAll(ctx, st, keys, quick)
}

func mustPrune(t testing.TB, st store.Store) {
	t.Helper()
	if _, err := prune(context.Background(), st); err != nil {
		t.Fatal(err)
	}
}

// junk is what a zombie puts into a hole: a manifest that is right in itself.
func junk(t testing.TB, version uint64) []byte {
	t.Helper()
	m := &Manifest{Format: document.Format, Log: testLog, Version: version, Nonce: fence.ID(uuid.New()), Floor: frame.Start()}
	b, err := m.encode(fence.DefaultLimits().Manifest)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// full is a manifest that uses every member.
func full() *Manifest {
	hint := frame.Point{Position: fence.Position{Epoch: 3, Seq: 12}, Offset: 1500, Cursor: []byte("topic-3@1500"), Prev: 0xcafef00d}
	return &Manifest{
		Format: document.Format, Log: testLog, Version: 42, Nonce: testNonce, Written: testTime,
		Roles: map[layout.Role]RoleState{
			layout.Writer:    {Epoch: 3, Update: 7, Nonce: fence.ID{1}},
			layout.Compactor: {Epoch: 2, Update: 9, Nonce: fence.ID{2}},
		},
		Floor: frame.Point{Position: fence.Position{Epoch: 3, Seq: 4}, Offset: 1000, Cursor: []byte("topic-3@1000"), Prev: 0x12345678},
		Hint:  &hint,
		Segments: []Segment{
			{Key: layout.SegmentKey(layout.Compactor, 1, "00000000-0000-4000-8000-000000000001"), First: 0, End: 600, Size: 5000, Index: 96, From: testTime, To: testTime.Add(time.Minute)},
			{Key: layout.SegmentKey(layout.Compactor, 2, "00000000-0000-4000-8000-000000000002"), First: 600, End: 1000, Size: 4000, Index: 128, From: testTime.Add(time.Minute), To: testTime.Add(time.Hour)},
		},
		Seals: []Seal{
			{Position: frame.Genesis(), Next: 1, Nonce: fence.ID{3}},
			{Position: fence.Position{Epoch: 1, Seq: 9}, Next: 3, Nonce: fence.ID{4}, Offset: 900},
		},
		Table: Table{
			Edits: 17, EditedAt: 900, Properties: map[string]string{"schema": "3"},
			Files: []manifest.File{
				{Key: testFile(3, 1), Size: 70000, CRC32C: 0xe3069283},
				{Key: testFile(3, 2), Size: 80000, CRC32C: 1, Records: 120, Meta: map[string]string{"day": "2024-02-29"}},
			},
			Removed:      []string{testFile(1, 4)},
			RemovedPages: []Page[string]{{Key: testPage(6), Count: 2, Size: 300, CRC32C: 7, From: testFile(1, 5), To: testFile(1, 9)}},
			FilePages: []Page[string]{
				{Key: testPage(1), Count: 900, Size: 120000, CRC32C: 7, From: testFile(1, 1), To: testFile(1, 900)},
				{Key: testPage(2), Count: 1, Size: 350, CRC32C: 7, From: testFile(2, 7), To: testFile(2, 7)},
			},
		},
		PruneMark: 40,
		Dropped: []Dropped{
			{Key: layout.SegmentKey(layout.Compactor, 1, "00000000-0000-4000-8000-000000000003"), Version: 41},
			{Key: testFile(1, 4), Version: 42},
		},
	}
}

func testFile(epoch fence.Epoch, n int) string {
	return layout.FileKey(epoch, fmt.Sprintf("00000000-0000-7000-8000-%012d", n), ".parquet")
}

func testPage(n int) string {
	return layout.ListKey(layout.Compactor, 2, fmt.Sprintf("00000000-0000-4000-8000-%012d", n))
}

// paged is a manifest that has pages of all lists, and so uses every member.
func paged() *Manifest {
	m := full()
	m.Start = 100
	m.SegmentPages = []Page[uint64]{{Key: testPage(3), Count: 1, Size: 400, CRC32C: 7, From: 0, To: 600}}
	m.SealPages = []Page[uint64]{{Key: testPage(4), Count: 1, Size: 300, CRC32C: 7, From: 0, To: 1}}
	m.DroppedPages = []Page[uint64]{{Key: testPage(5), Count: 2, Size: 400, CRC32C: 7, From: 30, To: 41}}
	m.Segments, m.Seals, m.Forgotten = m.Segments[1:], m.Seals[1:], 35
	return m
}

func encoded(t testing.TB, m *Manifest) []byte {
	t.Helper()
	b, err := m.encode(fence.DefaultLimits().Manifest)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func short(ids []string) string {
	var s []string
	for _, id := range ids {
		s = append(s, id[:4])
	}
	return fmt.Sprint(s)
}

// compacted takes the blanks, the line ends and the checksum out of a document.
func compacted(t testing.TB, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return regexp.MustCompile(`,"checksum":"[0-9a-f]{8}"}$`).ReplaceAllString(out.String(), "}")
}

// decodeFormat reads a format.json.
func decodeFormat(t testing.TB, body []byte) (manifest.Format, error) {
	st := memstore.New(nil)
	fixture.Put(t, st, layout.FormatKey, body)
	return manifest.ReadFormat(t.Context(), st, quick)
}

// leastRoom is what the least manifest has beside its cursors, in bytes.
const leastRoom = 256 << 10
