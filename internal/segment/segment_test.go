package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

var (
	testLog  = fence.ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	testTime = time.Date(2024, 2, 29, 12, 34, 56, 789012000, time.UTC)
)

// object is an object of the chain with a record of each length.
func object(t testing.TB, first uint64, at time.Time, lengths ...int) *frame.Frame {
	t.Helper()
	var b frame.Builder
	for i, n := range lengths {
		b.Add(fixture.Filled(first+uint64(i), n))
	}
	h := frame.Header{Log: testLog, Position: fence.Position{Epoch: 1, Seq: first + 1}, Offset: first, Time: at}
	f, err := frame.Decode(bytes.Clone(b.Finish(&h, frame.Plain)), fence.Limits{Object: fence.MaxObject, Record: fence.MaxObject})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// build makes a segment of frames, which begins with record first.
func build(t testing.TB, first uint64, codec frame.Codec, frames ...*frame.Frame) ([]byte, Summary) {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out, testLog, first, codec)
	for _, f := range frames {
		if err := w.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), sum
}

func indexOf(t testing.TB, b []byte, sum Summary) []Block {
	t.Helper()
	blocks, err := DecodeIndex(b[int64(len(b))-sum.Index:], sum.Size, testLog, sum.First, sum.End)
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// checkRecords compares the records of a whole segment with filled ones.
func checkRecords(t testing.TB, b []byte, sum Summary, lengths []int) []Block {
	t.Helper()
	blocks := indexOf(t, b, sum)
	next := sum.First
	for i, blk := range blocks {
		f, err := DecodeBlock(b[blk.At:blk.At+blk.Len], blocks, i, testLog, sum.End, fence.DefaultLimits())
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		if f.PayloadLen() > BlockSize && f.Header.Records != 1 {
			t.Errorf("block %d has %d records in %d bytes", i, f.Header.Records, f.PayloadLen())
		}
		for off, rec := range f.All() {
			if off != next || !bytes.Equal(rec, fixture.Filled(off, lengths[off-sum.First])) {
				t.Fatalf("record %d is another", off)
			}
			next++
		}
	}
	if next != sum.End || sum.End-sum.First != uint64(len(lengths)) {
		t.Errorf("%d records to %d, %d were added", next-sum.First, sum.End, len(lengths))
	}
	return blocks
}

func TestRoundTrip(t *testing.T) {
	const most = BlockSize - 3 // what fits into a block with its length
	for name, lengths := range map[string][]int{
		"one":              {5},
		"empty":            {0},
		"many empty":       make([]int, 3000),
		"just one block":   {most - 2, 1},
		"one too many":     {most - 2, 1, 0},
		"one byte more":    {most - 2, 2},
		"a block":          {most},
		"more than block":  {most + 1},
		"small and large":  {10, 3 * BlockSize, 10, 10, BlockSize, 10},
		"two large":        {2 * BlockSize, 2 * BlockSize},
		"many":             slices.Repeat([]int{1000, 0, 5000, 100}, 600),
		"ends with blocks": {most, most, most},
	} {
		for codec, first := range map[frame.Codec]uint64{frame.Plain: 0, frame.Zstd: math.MaxUint64 - 5000} {
			var frames []*frame.Frame
			next := first
			for part := range slices.Chunk(lengths, 7) {
				frames = append(frames, object(t, next, testTime, part...))
				next += uint64(len(part))
			}
			b, sum := build(t, first, codec, frames...)
			if sum.First != first || sum.End != next || sum.Size != int64(len(b)) || !sum.From.Equal(testTime) || !sum.To.Equal(testTime) {
				t.Errorf("%s: %+v of %d bytes", name, sum, len(b))
			}
			blocks := checkRecords(t, b, sum, lengths)
			want := map[string]int{
				"one": 1, "empty": 1, "many empty": 1, "just one block": 1, "one too many": 2, "one byte more": 2, "a block": 1,
				"more than block": 1, "small and large": 5, "two large": 2, "ends with blocks": 3,
			}[name]
			if want > 0 && len(blocks) != want {
				t.Errorf("%s: %d blocks, want %d", name, len(blocks), want)
			}
			if sum.Index != int64(len(blocks)*entrySize+trailerSize) {
				t.Errorf("%s: an index of %d bytes for %d blocks", name, sum.Index, len(blocks))
			}
			for off := first; off < next; off += max(1, (next-first)/50) {
				i := Find(blocks, off)
				if blocks[i].First > off || i+1 < len(blocks) && blocks[i+1].First <= off {
					t.Fatalf("%s: %d is found in block %d", name, off, i)
				}
			}
			if Find(blocks, next-1) != len(blocks)-1 {
				t.Errorf("%s: the last record is in block %d", name, Find(blocks, next-1))
			}
		}
	}
}

// TestMergedRuns: a segment is made of others' blocks as well as of objects of the
// chain, and the first of them may begin before the run.
func TestMergedRuns(t *testing.T) {
	lengths := slices.Repeat([]int{100, 30_000, 7}, 200)
	a, as := build(t, 0, frame.Zstd, object(t, 0, testTime, lengths[:300]...))
	b, bs := build(t, 300, frame.Plain, object(t, 300, testTime.Add(time.Hour), lengths[300:]...))
	for _, first := range []uint64{0, 150, 299, 300, 555} {
		var out bytes.Buffer
		w := NewWriter(&out, testLog, first, frame.Zstd)
		for _, s := range []struct {
			b   []byte
			sum Summary
		}{{a, as}, {b, bs}} {
			blocks := indexOf(t, s.b, s.sum)
			for i, blk := range blocks {
				f, err := DecodeBlock(s.b[blk.At:blk.At+blk.Len], blocks, i, testLog, s.sum.End, fence.DefaultLimits())
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Add(f); err != nil {
					t.Fatal(err)
				}
			}
		}
		if w.Records() != 600-first {
			t.Errorf("%d records", w.Records())
		}
		sum, err := w.Close()
		if err != nil || sum.First != first || sum.End != 600 {
			t.Fatalf("%+v, %v", sum, err)
		}
		checkRecords(t, out.Bytes(), sum, lengths[first:])
	}
}

func TestWriterErrors(t *testing.T) {
	w := NewWriter(&bytes.Buffer{}, testLog, 5, frame.Plain)
	if _, err := w.Close(); err == nil {
		t.Error("an empty segment")
	}
	w = NewWriter(&bytes.Buffer{}, testLog, 5, frame.Plain)
	for range 2 {
		if err := w.Add(object(t, 6, testTime, 1)); err == nil || !strings.Contains(err.Error(), "record 6 follows record 4") {
			t.Errorf("a gap: %v", err)
		}
	}
	if _, err := w.Close(); err == nil {
		t.Error("closed after a gap")
	}
	w = NewWriter(&bytes.Buffer{}, testLog, 0, frame.Plain)
	if err := w.Add(object(t, 0, testTime, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(); err == nil {
		t.Error("closed twice")
	}
	if err := w.Add(object(t, 1, testTime, 1)); err == nil {
		t.Error("added after Close")
	}
	full := errors.New("disk full")
	for limit := range 5 {
		w := NewWriter(&failing{left: limit, err: full}, testLog, 0, frame.Plain)
		err := w.Add(object(t, 0, testTime, BlockSize, 1, BlockSize, 1, BlockSize))
		_, cerr := w.Close()
		if limit < 5 && !errors.Is(cerr, full) || limit < 4 && !errors.Is(err, full) {
			t.Errorf("%d writes: %v, %v", limit, err, cerr)
		}
	}
}

// failing takes so many writes.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, f.err
	}
	return len(p), nil
}

// TestWriterSize is what the compactor ends a segment by: it counts all.
func TestWriterSize(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, testLog, 0, frame.Plain)
	for i := range uint64(20) {
		if err := w.Add(object(t, i, testTime, 200_000)); err != nil {
			t.Fatal(err)
		}
		if s := w.Size(); s < int64(i+1)*200_000 || s > int64(i+1)*200_000+1000 {
			t.Errorf("after %d records: %d", i+1, s)
		}
	}
	before := w.Size()
	sum, err := w.Close()
	if err != nil || sum.Size < before || sum.Size > before+frame.HeaderSize+entrySize+trailerSize {
		t.Errorf("%d before, %+v, %v", before, sum, err)
	}
}

// TestIndexLimit: a segment whose index no reader would accept is not finished;
// its records would be lost when the chain is pruned.
func TestIndexLimit(t *testing.T) {
	w := NewWriter(&bytes.Buffer{}, testLog, 0, frame.Plain)
	w.index = make([]Block, maxBlocks-1)
	if err := w.Add(object(t, 0, testTime, BlockSize, 1)); err != nil {
		t.Fatal(err)
	}
	if s := w.Size(); s < maxBlocks*entrySize {
		t.Errorf("its size does not count the index: %d", s)
	}
	if _, err := w.Close(); err == nil || !strings.Contains(err.Error(), "make segments smaller") {
		t.Error(err)
	}
	if maxBlocks*entrySize+trailerSize > maxIndex || (maxBlocks+1)*entrySize+trailerSize <= maxIndex {
		t.Errorf("%d blocks are %d bytes", maxBlocks, maxBlocks*entrySize+trailerSize)
	}
}

// TestTimes are the least and greatest, and such that JSON can hold them: with a
// writer's clock in the year 292277 the manifest could not be written any more.
func TestTimes(t *testing.T) {
	day := 24 * time.Hour
	wild, early := time.UnixMicro(math.MaxInt64), time.UnixMicro(math.MinInt64)
	for _, tt := range []struct {
		times    []time.Time
		from, to time.Time
	}{
		{[]time.Time{testTime.Add(day), testTime, testTime.Add(3 * day)}, testTime, testTime.Add(3 * day)},
		{[]time.Time{testTime, wild, testTime}, testTime, maxTime},
		{[]time.Time{early, testTime}, minTime, testTime},
		{[]time.Time{testTime, early}, minTime, testTime},
		{[]time.Time{wild, wild}, maxTime, maxTime},
		{[]time.Time{early}, minTime, minTime},
	} {
		var frames []*frame.Frame
		for i, at := range tt.times {
			frames = append(frames, object(t, uint64(i), at, 4))
		}
		b, sum := build(t, 0, frame.Plain, frames...)
		if !sum.From.Equal(tt.from) || !sum.To.Equal(tt.to) {
			t.Errorf("%v: from %v to %v", tt.times, sum.From, sum.To)
		}
		for _, at := range []time.Time{sum.From, sum.To} {
			if _, err := at.MarshalJSON(); err != nil {
				t.Error(err)
			}
		}
		if blocks := indexOf(t, b, sum); !blocks[0].Latest.Equal(tt.to) {
			t.Errorf("%v: latest is %v", tt.times, blocks[0].Latest)
		}
	}
}

// TestSmallObjects: a log whose objects are smaller than a block has segments all
// the same. Its own limits would make each block unreadable, after the chain that
// it came from was deleted.
func TestSmallObjects(t *testing.T) {
	limits := fence.Limits{Object: 1000, Record: 900, Cursor: 10}
	var frames []*frame.Frame
	for i := range uint64(5000) {
		frames = append(frames, object(t, i, testTime, 900))
	}
	b, sum := build(t, 0, frame.Plain, frames...)
	blocks := indexOf(t, b, sum)
	for i, blk := range blocks {
		if _, err := DecodeBlock(b[blk.At:blk.At+blk.Len], blocks, i, testLog, sum.End, limits); err != nil {
			t.Fatalf("block %d of %d bytes: %v", i, blk.Len, err)
		}
	}
	// Records over the log's limit are refused as ever.
	b, sum = build(t, 0, frame.Plain, object(t, 0, testTime, 901))
	_, err := DecodeBlock(b[:sum.Size-sum.Index], indexOf(t, b, sum), 0, testLog, sum.End, limits)
	if !errors.Is(err, fence.ErrLimit) {
		t.Error(err)
	}
}

// sample is a small segment of three blocks.
func sample(t testing.TB) ([]byte, Summary) {
	t.Helper()
	return build(t, 100, frame.Zstd, object(t, 100, testTime, 3, 5), object(t, 102, testTime.Add(time.Second), BlockSize), object(t, 103, testTime.Add(time.Minute), 7))
}

// redo makes the checksum of a tampered index right again.
func redo(tail []byte) []byte {
	binary.LittleEndian.PutUint32(tail[len(tail)-4:], crc32.Checksum(tail[:len(tail)-4], castagnoli))
	return tail
}

func TestIndexRefuses(t *testing.T) {
	b, sum := sample(t)
	tail := b[sum.Size-sum.Index:]
	le := binary.LittleEndian
	trailer := len(tail) - trailerSize
	tests := map[string]struct {
		change func([]byte) []byte
		says   string
	}{
		"nothing":              {func([]byte) []byte { return nil }, "0 bytes of"},
		"trailer only":         {func(b []byte) []byte { return redo(b[trailer:]) }, "it has 64 bytes"},
		"half an entry":        {func(b []byte) []byte { return redo(b[16:]) }, "it has 144 bytes"},
		"an entry less":        {func(b []byte) []byte { return redo(b[entrySize:]) }, "3 blocks in"},
		"bigger than it is":    {func(b []byte) []byte { return append(make([]byte, sum.Size), b...) }, "bytes of"},
		"another magic":        {func(b []byte) []byte { b[trailer+56] = 'X'; return redo(b) }, "does not end with"},
		"damaged":              {func(b []byte) []byte { b[3] ^= 1; return b }, "checksum"},
		"damaged version":      {func(b []byte) []byte { b[trailer+52] ^= 2; return b }, "checksum"},
		"another log":          {func(b []byte) []byte { b[trailer] ^= 1; return redo(b) }, "belongs to log"},
		"another first":        {func(b []byte) []byte { b[trailer+16] ^= 1; return redo(b) }, "holds [101, 104)"},
		"another end":          {func(b []byte) []byte { b[trailer+24] ^= 1; return redo(b) }, "holds [100, 105)"},
		"another place":        {func(b []byte) []byte { b[trailer+32] ^= 1; return redo(b) }, "3 blocks in"},
		"more blocks":          {func(b []byte) []byte { b[trailer+40] = 4; return redo(b) }, "4 blocks in"},
		"block beyond the end": {func(b []byte) []byte { le.PutUint64(b[2*entrySize+8:], 1<<40); return redo(b) }, "block 2 is at"},
		"block overflows":      {func(b []byte) []byte { le.PutUint64(b[2*entrySize+8:], math.MaxInt64); return redo(b) }, "block 2 is at"},
		"negative length":      {func(b []byte) []byte { le.PutUint64(b[8:], 1<<63+200); return redo(b) }, "block 0 is at 0 with -"},
		"block without frame":  {func(b []byte) []byte { le.PutUint64(b[8:], 127); return redo(b) }, "block 0 is at 0 with 127"},
		"gap between blocks":   {func(b []byte) []byte { le.PutUint64(b[entrySize:], le.Uint64(b[entrySize:])+1); return redo(b) }, "block 1 is at"},
		"blocks overlap":       {func(b []byte) []byte { le.PutUint64(b[entrySize:], 0); return redo(b) }, "block 1 is at 0"},
		"blocks too short":     {func(b []byte) []byte { le.PutUint64(b[2*entrySize+8:], 128); return redo(b) }, "the blocks end at"},
		"first before":         {func(b []byte) []byte { le.PutUint64(b[16:], 99); return redo(b) }, "block 0 begins with record 99"},
		"first behind":         {func(b []byte) []byte { le.PutUint64(b[16:], 101); return redo(b) }, "block 0 begins with record 101"},
		"empty block":          {func(b []byte) []byte { le.PutUint64(b[entrySize+16:], 100); return redo(b) }, "block 1 begins with record 100"},
		"goes back":            {func(b []byte) []byte { le.PutUint64(b[2*entrySize+16:], 101); return redo(b) }, "block 2 begins with record 101"},
		"begins at the end":    {func(b []byte) []byte { le.PutUint64(b[2*entrySize+16:], 104); return redo(b) }, "block 2 begins with record 104"},
	}
	for name, tt := range tests {
		blocks, err := DecodeIndex(tt.change(bytes.Clone(tail)), sum.Size, testLog, sum.First, sum.End)
		if blocks != nil || !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, %v; want %q", name, blocks, err, tt.says)
		}
	}
	future := bytes.Clone(tail)
	future[trailer+52] = 2
	_, err := DecodeIndex(redo(future), sum.Size, testLog, sum.First, sum.End)
	if !errors.Is(err, fence.ErrFormat) || !strings.Contains(err.Error(), "upgrade") {
		t.Error(err)
	}
	// The checksum finds every flipped bit.
	for i := range 8 * len(tail) {
		bad := bytes.Clone(tail)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := DecodeIndex(bad, sum.Size, testLog, sum.First, sum.End); !errors.Is(err, fence.ErrCorrupt) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
}

func TestBlockRefuses(t *testing.T) {
	b, sum := sample(t)
	blocks := indexOf(t, b, sum)
	body := func(i int) []byte { return bytes.Clone(b[blocks[i].At : blocks[i].At+blocks[i].Len]) }
	seal := frame.Header{Log: testLog, Position: fence.Position{Epoch: 1, Seq: 1}}
	var cursor frame.Builder
	cursor.Add([]byte("record"))
	cursor.SetCursor([]byte("c"))
	withCursor := frame.Header{Log: testLog, Position: fence.Position{Epoch: 1, Seq: 1}, Offset: blocks[0].First}
	for name, tt := range map[string]struct {
		b    []byte
		i    int
		log  fence.ID
		says string
	}{
		"another block": {body(1), 0, testLog, "block 0 holds [102, 103)"},
		"another log":   {body(0), 0, fence.ID{7}, "should be"},
		"cut off":       {body(0)[:130], 0, testLog, "the body has"},
		"a cursor":      {cursor.Finish(&withCursor, frame.Plain), 0, testLog, "block 0 has a cursor"},
		"a seal":        {frame.EncodeSeal(&seal, 2), 0, testLog, "block 0 holds [0, 0)"},
	} {
		f, err := DecodeBlock(tt.b, blocks, tt.i, tt.log, sum.End, fence.DefaultLimits())
		if f != nil || !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	if _, err := DecodeBlock(body(2), blocks, 2, testLog, sum.End+1, fence.DefaultLimits()); !errors.Is(err, fence.ErrCorrupt) {
		t.Errorf("a block that is short of the end: %v", err)
	}
	good := body(0)
	for i := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := DecodeBlock(bad, blocks, 0, testLog, sum.End, fence.DefaultLimits()); !errors.Is(err, fence.ErrCorrupt) {
			t.Fatalf("bit %d: %v", i, err)
		}
	}
}

// TestGolden: a segment of the first version stays readable.
func TestGolden(t *testing.T) {
	lengths := []int{10, 0, 20}
	now, made := build(t, 1000, frame.Plain, object(t, 1000, testTime, 10, 0), object(t, 1002, testTime.Add(time.Second), 20))
	dump := fmt.Sprintf("# A segment with the records 1000 to 1002; its index has %d bytes. docs/format.md has the layout.\n", made.Index)
	for line := range slices.Chunk(now, 32) {
		dump += hex.EncodeToString(line) + "\n"
	}
	text := fixture.Golden(t, "segment.hex", []byte(dump))
	_, digits, _ := strings.Cut(string(text), "\n")
	b, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
	if err != nil {
		t.Fatal(err)
	}
	sum := Summary{First: 1000, End: 1003, Size: int64(len(b)), Index: entrySize + trailerSize}
	blocks := checkRecords(t, b, sum, lengths)
	if want := []Block{{At: 0, Len: sum.Size - sum.Index, First: 1000, Latest: testTime.Add(time.Second)}}; !slices.Equal(blocks, want) {
		t.Errorf("%+v, want %+v", blocks, want)
	}
	// What is written today is the same, but for the nonce.
	copy(now[24:40], b[24:40])
	binary.LittleEndian.PutUint32(now[124:], crc32.Checksum(now[:124], castagnoli))
	if !bytes.Equal(now, b) {
		t.Errorf("written\n%x\nthe file has\n%x", now, b)
	}
}

// TestDocumentedLayout changes every byte of an index entry and of the trailer,
// and looks whether docs/format.md says what that is.
func TestDocumentedLayout(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	b, sum := sample(t)
	tail := b[sum.Size-sum.Index:]
	says := map[string]string{
		"at": "block 1 is at", "length": "block ", "first": "block 1 begins with record", "log": "belongs to log", "first record": "it holds [",
		"end record": "it holds [", "blocks end": "3 blocks in", "blocks": "blocks in", "segment version": "segment version", "segment magic": "does not end with",
		"index checksum": "checksum is",
	}
	for head, size := range map[string]int{"Field of an index entry": entrySize, "Field of the trailer": trailerSize} {
		_, table, ok := strings.Cut(string(doc), "| "+head+" |")
		if !ok {
			t.Errorf("docs/format.md has no table %q", head)
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		base := entrySize // of the second entry
		if size == trailerSize {
			base = len(tail) - trailerSize
		}
		end := 0
		for _, row := range regexp.MustCompile(`(?m)^\| ([a-z ]+) \| (\d+) \| (\d+) \|`).FindAllStringSubmatch(table, -1) {
			name := row[1]
			offset, _ := strconv.Atoi(row[2])
			n, _ := strconv.Atoi(row[3])
			if offset != end {
				t.Errorf("%s: %s is at %d, the row before it ends at %d", head, name, offset, end)
			}
			end = offset + n
			for i := offset; i < end; i++ {
				bad := bytes.Clone(tail)
				bad[base+i] ^= 0x80
				if name != "index checksum" {
					redo(bad)
				}
				blocks, err := DecodeIndex(bad, sum.Size, testLog, sum.First, sum.End)
				switch want := says[name]; {
				case name == "latest":
					if err != nil || blocks[1].Latest.Equal(testTime.Add(time.Second)) {
						t.Errorf("byte %d of latest: %v, %+v", i, err, blocks)
					}
				case name == "reserved":
					if err != nil {
						t.Errorf("reserved byte %d: %v", i, err)
					}
				case want == "":
					t.Errorf("%s has a row %q that nobody knows", head, name)
				case err == nil || !strings.Contains(err.Error(), want):
					t.Errorf("byte %d is documented as %s of %s: %v", i, name, head, err)
				}
			}
		}
		if end != size {
			t.Errorf("%s: the rows end at %d of %d bytes", head, end, size)
		}
	}
	if !strings.Contains(string(doc), fmt.Sprintf("at most %d MiB before compression", BlockSize>>20)) {
		t.Error("docs/format.md does not say how large a block is")
	}
	if !strings.Contains(string(doc), fmt.Sprintf("index of more than %d MiB", maxIndex>>20)) {
		t.Error("docs/format.md does not say how large an index is")
	}
}
