package assign

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/fencepost/fencepost/fence"
)

// docs/format.md has the layout of the object.
const (
	magic      = "FNCA"
	version    = 1
	headerSize = 16

	flagLeaving = 1 << 0
)

const (
	// MaxBytes is the size of the largest object that Decode accepts. Read no more of one.
	MaxBytes = 8 << 20
	// maxRaw is the size of the largest payload: all limits at once take less.
	maxRaw = 16 << 20
	// window is the size of the largest column that is packed as well as possible: a byte of
	// each pending entry.
	window = MaxEntries
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The decoder is made with the package: it uses channels, and a channel that is made in a
// bubble of testing/synctest belongs to that bubble. It is small until it is used.
var decoder = newDecoder()

// newEncoder makes an encoder for one assignment. It takes 5 MB and a millisecond. Assignments
// are rare, and only organisers make them, so no process keeps one.
func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("assign: " + err.Error()) // only wrong options can cause it
	}
	return e
}

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic("assign: " + err.Error())
	}
	return d
}

// Encode returns the bytes of the object assign/<n>. Equal assignments have equal bytes.
func (a *Assignment) Encode() []byte {
	out := make([]byte, headerSize, 64<<10)
	copy(out, magic)
	out[4] = version
	size, encoder := 0, newEncoder()
	for _, column := range a.columns() {
		// Each has statistics of its own, so each is a frame of its own: in one frame they
		// take a tenth more.
		out = encoder.EncodeAll(column, out)
		size += len(column)
	}
	binary.LittleEndian.PutUint32(out[8:], uint32(size))
	binary.LittleEndian.PutUint32(out[12:], checksum(out))
	return out
}

// checksum is that of an object but for the place of the checksum.
func checksum(body []byte) uint32 {
	return crc32.Update(crc32.Checksum(body[:12], castagnoli), castagnoli, body[headerSize:])
}

// columns returns the payload in parts. Things of one kind lie together.
func (a *Assignment) columns() (all [][]byte) {
	head := append(append([]byte(nil), a.group[:]...), a.maker[:]...)
	for _, v := range []uint64{a.number, uint64(a.base), uint64(len(a.members)), uint64(len(a.owners)), uint64(len(a.entries))} {
		head = binary.AppendUvarint(head, v)
	}
	for _, m := range a.members {
		head = append(head, m.Name[:]...)
	}
	for _, m := range a.members {
		head = binary.AppendUvarint(head, m.Weight)
	}
	for _, m := range a.members {
		flags := byte(0)
		if m.Leaving {
			flags |= flagLeaving
		}
		head = append(head, flags)
	}
	owners, tenures := make([]uint32, len(a.owners)), make([]uint64, 0, len(a.owners))
	for p, o := range a.owners {
		owners[p] = uint32(o + 1)
		if o != Nobody {
			tenures = append(tenures, a.tenures[p])
		}
	}
	all = appendPlanes([][]byte{head}, owners, len(a.members)+1)
	all = appendNumbers(all, a.number, tenures)
	if len(a.entries) == 0 {
		return all
	}
	counts := make([]byte, 0, len(a.owners))
	for p := range a.owners {
		counts = binary.AppendUvarint(counts, uint64(a.first[p+1]-a.first[p]))
	}
	members, numbers := make([]uint32, len(a.entries)), make([]uint64, len(a.entries))
	for i, e := range a.entries {
		members[i], numbers[i] = uint32(e.Member), e.Number
	}
	all = appendPlanes(append(all, counts), members, len(a.members))
	return appendNumbers(all, a.number, numbers)
}

// appendPlanes appends values below n: the low byte of each, then the next byte of each,
// and so on.
func appendPlanes(all [][]byte, values []uint32, n int) [][]byte {
	for shift := 0; (n-1)>>shift > 0; shift += 8 {
		plane := make([]byte, len(values))
		for i, v := range values {
			plane[i] = byte(v >> shift)
		}
		all = append(all, plane)
	}
	return all
}

// appendNumbers appends numbers of assignments, the newest of which is newest. Few of them
// differ. So it appends how many differ; these, from the highest down, each as its distance
// from the one before; and for each number its place among them.
func appendNumbers(all [][]byte, newest uint64, numbers []uint64) [][]byte {
	distinct := slices.Compact(slices.Clone(numbers)) // neighbours are often equal
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	list := binary.AppendUvarint(nil, uint64(len(distinct)))
	for _, n := range slices.Backward(distinct) {
		list = binary.AppendUvarint(list, newest-n)
		newest = n
	}
	places := make([]uint32, len(numbers))
	for i, n := range numbers {
		if i > 0 && n == numbers[i-1] {
			places[i] = places[i-1]
			continue
		}
		at, _ := slices.BinarySearch(distinct, n)
		places[i] = uint32(len(distinct) - 1 - at)
	}
	return appendPlanes(append(all, list), places, len(distinct))
}

// Decode reads the object under key. An error is [fence.ErrCorrupt] if the object is
// damaged, and [fence.ErrFormat] if a newer version of this project wrote it. The caller
// compares Number with the key, and Group with group.json.
func Decode(key string, body []byte) (*Assignment, error) {
	raw, err := unpack(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	d := decoding{rest: raw}
	a := d.assignment()
	if d.err == nil && len(d.rest) > 0 {
		d.fail("%d bytes follow the assignment", len(d.rest))
	}
	if d.err != nil {
		return nil, fmt.Errorf("%s: %w", key, d.err)
	}
	return a, nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", fence.ErrCorrupt, fmt.Sprintf(format, args...))
}

// unpack checks an object and returns its payload.
func unpack(body []byte) ([]byte, error) {
	switch {
	case len(body) > MaxBytes:
		return nil, corrupt("%d bytes; an assignment has at most %d", len(body), MaxBytes)
	case len(body) < headerSize || string(body[:4]) != magic:
		return nil, corrupt("it does not begin as an assignment does")
	case binary.LittleEndian.Uint32(body[12:]) != checksum(body):
		// It comes before the version: a damaged version byte is no newer version.
		return nil, corrupt("its checksum is wrong")
	case body[4] != version:
		return nil, fmt.Errorf("%w: assignment of version %d, this program knows %d; upgrade this program", fence.ErrFormat, body[4], version)
	}
	size := binary.LittleEndian.Uint32(body[8:])
	stored := body[headerSize:]
	// guard:assign-size. The unpacked size that an assignment states is at most 16 MiB, and no more than its bytes can
	// unpack to.
	if most := min(maxRaw, (len(stored)/4+1)*128<<10); int(size) > most { // 4 bytes are a block of at most 128 KiB
		return nil, corrupt("its payload has %d bytes; at most %d are possible", size, most)
	}
	raw, err := decoder.DecodeAll(stored, make([]byte, 0, size))
	switch {
	case err != nil:
		return nil, corrupt("its payload does not unpack: %v", err)
	case len(raw) != int(size):
		return nil, corrupt("its payload has %d bytes, and it says %d", len(raw), size)
	}
	return raw, nil
}

// decoding reads a payload. After the first fault, every read returns nothing.
type decoding struct {
	rest []byte
	err  error
}

func (d *decoding) fail(format string, args ...any) {
	if d.err == nil {
		d.err = corrupt(format, args...)
	}
	d.rest = nil
}

func (d *decoding) bytes(n int) []byte {
	if n > len(d.rest) {
		d.fail("it ends too early")
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// number reads a number from 0 to limit.
func (d *decoding) number(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	switch {
	case n <= 0:
		d.fail("it ends too early, or a number is too large")
	case v > limit:
		d.fail("%s %d; at most %d is possible", what, v, limit)
	case n > 1 && d.rest[n-1] == 0:
		d.fail("a number is longer than it need be")
	default:
		d.rest = d.rest[n:]
		return v
	}
	return 0
}

// values reads count values below n, which lie in planes.
func (d *decoding) values(what string, count, n int) []uint32 {
	if n > 1 && count > len(d.rest) {
		d.fail("it ends too early")
	}
	if d.err != nil {
		return nil
	}
	values := make([]uint32, count)
	for shift := 0; (n-1)>>shift > 0; shift += 8 {
		for i, c := range d.bytes(count) {
			values[i] |= uint32(c) << shift
		}
	}
	for _, v := range values {
		if int(v) >= n && d.err == nil {
			d.fail("%s %d of %d", what, v, n)
		}
	}
	return values
}

// numbers reads count numbers of assignments up to newest, none of which is 0.
func (d *decoding) numbers(newest uint64, count int) []uint64 {
	distinct := make([]uint64, d.number("numbers that differ:", uint64(count)))
	for i := range distinct {
		step := d.number("a distance of", newest)
		if newest -= step; (newest == 0 || step == 0 && i > 0) && d.err == nil {
			d.fail("the numbers of assignments do not fall, or fall to 0")
		}
		distinct[i] = newest
	}
	numbers := make([]uint64, count)
	for i, place := range d.values("number", count, len(distinct)) {
		if d.err == nil {
			numbers[i] = distinct[place]
		}
	}
	return numbers
}

func (d *decoding) assignment() *Assignment {
	a := &Assignment{}
	copy(a.group[:], d.bytes(len(a.group)))
	copy(a.maker[:], d.bytes(len(a.maker)))
	a.number = d.number("number", MaxNumber)
	a.base = fence.Epoch(d.number("base", MaxBase))
	members, partitions, entries := d.number("members:", MaxMembers), d.number("partitions:", MaxPartitions), d.number("pending entries:", MaxEntries)
	if a.number == 0 {
		d.fail("it has number 0")
	}
	if d.err != nil {
		return nil
	}
	if d.members(a, int(members)); d.err != nil {
		return nil
	}
	a.owners, a.tenures = make([]int32, partitions), make([]uint64, partitions)
	var owned []int
	for p, v := range d.values("owner", int(partitions), int(members)+1) {
		a.owners[p] = int32(v) - 1
		if v > 0 {
			owned = append(owned, p)
		}
	}
	for i, n := range d.numbers(a.number, len(owned)) {
		a.tenures[owned[i]] = n
	}
	a.first = make([]uint32, partitions+1)
	if entries > 0 {
		d.pending(a, entries)
	}
	return a
}

func (d *decoding) members(a *Assignment, n int) {
	a.members, a.index = make([]Member, n), make(map[fence.ID]int, n)
	for i := range a.members {
		m := &a.members[i]
		copy(m.Name[:], d.bytes(len(m.Name)))
		if _, twice := a.index[m.Name]; twice && d.err == nil {
			d.fail("it lists member %s twice", m.Name)
		}
		a.index[m.Name] = i
	}
	for i := range a.members {
		a.members[i].Weight = d.number("weight", MaxWeight)
	}
	for i, flags := range d.bytes(n) {
		if flags&^flagLeaving != 0 {
			d.fail("member %s has flags %08b", a.members[i].Name, flags)
		}
		a.members[i].Leaving = flags&flagLeaving != 0
	}
}

// pending reads the pending entries.
func (d *decoding) pending(a *Assignment, count uint64) {
	left := count
	for p := range a.owners {
		n := d.number("pending entries of a partition:", left)
		left -= n
		a.first[p+1] = a.first[p] + uint32(n)
	}
	if left > 0 {
		d.fail("%d pending entries belong to no partition", left)
	}
	if d.err != nil {
		return
	}
	a.entries = make([]Entry, count)
	for i, m := range d.values("member", int(count), len(a.members)) {
		a.entries[i].Member = int(m)
	}
	for i, n := range d.numbers(a.number, int(count)) {
		a.entries[i].Number = n
	}
	for p := range a.owners {
		for i, entries := 1, a.Pending(p); i < len(entries); i++ {
			if entries[i-1].Member >= entries[i].Member {
				d.fail("the pending entries of partition %d are not in order", p)
				return
			}
		}
	}
}
