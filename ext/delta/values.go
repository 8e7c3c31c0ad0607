package delta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go/format"
)

// The encodings of Parquet's values and levels, one value at a time: a page that claims a billion values
// takes no memory for them.

// Parquet's physical types. Type 5 has 8 bytes too, as kindInt64. Delta's checkpoints have the first three, and kindBytes.
const (
	kindBool  = 0
	kindInt32 = 1
	kindInt64 = 2
	kindInt96 = 3
	kindFloat = 4
	kindBytes = 6
	kindFixed = 7
)

// Parquet's encodings.
const (
	plainValues     = 0
	oldDictionary   = 2
	rleValues       = 3
	deltaIntegers   = 5
	deltaLengths    = 6
	deltaTexts      = 7
	dictionaryIndex = 8
	splitBytes      = 9
)

// value is a text, or a number, or a boolean as a number.
type value struct {
	text string
	n    int64
}

// values reads those of a page, but for its nulls.
type values interface {
	next() (value, error)
}

// hybrid reads the numbers that the hybrid of run lengths and packed bits has.
type hybrid struct {
	b     []byte
	width int
	left  int // in this run
	same  bool
	n     uint32
	at    int // the next bit of a packed run
}

func newHybrid(b []byte, width int) (*hybrid, error) {
	if width > 32 {
		return nil, fmt.Errorf("a number has %d bits", width)
	}
	return &hybrid{b: b, width: width}, nil
}

func (r *hybrid) next() (uint32, error) {
	for r.left == 0 {
		if err := r.run(); err != nil {
			return 0, err
		}
	}
	r.left--
	if r.same {
		return r.n, nil
	}
	v := uint32(unpack(r.b, r.at, r.width))
	if r.at += r.width; r.left == 0 {
		r.b = r.b[r.at/8:]
	}
	return v, nil
}

func (r *hybrid) run() error {
	head, n := binary.Uvarint(r.b)
	if n <= 0 {
		return errCut
	}
	r.b, r.at, r.same = r.b[n:], 0, head&1 == 0
	if head >>= 1; head > 1<<31 {
		return fmt.Errorf("a run has %d values", head)
	}
	if r.same {
		bytes := (r.width + 7) / 8
		if bytes > len(r.b) {
			return errCut
		}
		var n [4]byte
		copy(n[:], r.b[:bytes])
		r.left, r.n, r.b = int(head), binary.LittleEndian.Uint32(n[:]), r.b[bytes:]
		return nil
	}
	if head*uint64(r.width) > uint64(len(r.b)) {
		return errCut
	}
	r.left = int(head) * 8
	return nil
}

// unpack returns a number of some bits, at a bit.
func unpack(b []byte, at, width int) (v uint64) {
	for have := 0; have < width; {
		low := at & 7
		n := min(8-low, width-have)
		v |= uint64(b[at/8]>>low) & (1<<n - 1) << have
		at, have = at+n, have+n
	}
	return v
}

// plainReader reads values as they are.
type plainReader struct {
	b    string
	kind int64
	at   int // of booleans: the next bit
}

func (r *plainReader) next() (value, error) {
	size := 4
	switch r.kind {
	case kindBool:
		size = 1
	case kindInt64:
		size = 8
	}
	if len(r.b) < size {
		return value{}, errCut
	}
	if r.kind == kindBool {
		v := value{n: int64(r.b[0] >> r.at & 1)}
		if r.at++; r.at == 8 {
			r.b, r.at = r.b[1:], 0
		}
		return v, nil
	}
	var word [8]byte
	copy(word[:], r.b[:size])
	r.b = r.b[size:]
	n := binary.LittleEndian.Uint64(word[:])
	switch r.kind {
	case kindInt32:
		return value{n: int64(int32(n))}, nil
	case kindInt64:
		return value{n: int64(n)}, nil
	}
	if n > uint64(len(r.b)) {
		return value{}, errCut
	}
	v := value{text: r.b[:n]}
	r.b = r.b[n:]
	return v, nil
}

// indexReader reads values of a dictionary.
type indexReader struct {
	index *hybrid
	of    []value
}

func (r *indexReader) next() (value, error) {
	i, err := r.index.next()
	if err == nil && uint64(i) >= uint64(len(r.of)) {
		err = fmt.Errorf("a value is the %dth of a dictionary of %d", i, len(r.of))
	}
	if err != nil {
		return value{}, err
	}
	return r.of[i], nil
}

// boolReader reads booleans in runs.
type boolReader struct{ index *hybrid }

func (r *boolReader) next() (value, error) {
	n, err := r.index.next()
	return value{n: int64(n)}, err
}

// deltaReader reads numbers of which each is told by its difference from the one before.
type deltaReader struct {
	b                   []byte
	block, minis, width int // values in a block, parts of a block, hybrid of a number in this part
	total               uint64
	read                uint64 // numbers
	last, low           int64
	widths              []byte
	at                  int // the next bit of this part
	inPart              int // numbers left in this part
}

func newDelta(b []byte) (*deltaReader, error) {
	var head [4]uint64
	for i := range head {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errCut
		}
		head[i], b = v, b[n:]
	}
	block, minis := head[0], head[1]
	if block == 0 || block > 1<<16 || minis == 0 || minis > block || block%minis != 0 || block/minis%8 != 0 {
		return nil, fmt.Errorf("a block has %d numbers in %d parts", block, minis)
	}
	return &deltaReader{b: b, block: int(block), minis: int(minis), total: head[2], last: unzigzag(head[3])}, nil
}

func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

func (r *deltaReader) next() (value, error) {
	if r.read == r.total {
		return value{}, errCut
	}
	if r.read++; r.read == 1 {
		return value{n: r.last}, nil
	}
	for r.inPart == 0 {
		if err := r.part(); err != nil {
			return value{}, err
		}
	}
	r.last += r.low + int64(unpack(r.b, r.at, r.width))
	r.at += r.width
	if r.inPart--; r.inPart == 0 {
		r.b = r.b[r.at/8:]
	}
	return value{n: r.last}, nil
}

func (r *deltaReader) part() error {
	if len(r.widths) == 0 {
		low, n := binary.Varint(r.b)
		if n <= 0 || len(r.b) < n+r.minis {
			return errCut
		}
		r.low, r.widths, r.b = low, r.b[n:n+r.minis], r.b[n+r.minis:]
	}
	r.width, r.widths = int(r.widths[0]), r.widths[1:]
	r.at, r.inPart = 0, r.block/r.minis
	if r.width > 64 || r.width*r.inPart > len(r.b)*8 {
		return errCut
	}
	return nil
}

// end returns what follows the numbers, whatever was read.
func (r deltaReader) end() ([]byte, error) {
	for r.read < r.total {
		if _, err := r.next(); err != nil {
			return nil, err
		}
	}
	if r.inPart == 0 {
		return r.b, nil
	}
	return r.b[r.block/r.minis*r.width/8:], nil // a part is padded
}

// lengthsReader reads texts, of which all lengths come first.
type lengthsReader struct {
	lengths *deltaReader
	texts   string
}

func (r *lengthsReader) next() (value, error) {
	n, err := r.lengths.next()
	if err != nil {
		return value{}, err
	}
	if n.n < 0 || n.n > int64(len(r.texts)) {
		return value{}, errCut
	}
	v := value{text: r.texts[:n.n]}
	r.texts = r.texts[n.n:]
	return v, nil
}

func newLengths(b []byte, most int) (*lengthsReader, error) {
	lengths, err := newDelta(b)
	if err != nil {
		return nil, err
	}
	if lengths.total > uint64(most) {
		return nil, fmt.Errorf("%d lengths are given of %d values", lengths.total, most)
	}
	texts, err := lengths.end()
	return &lengthsReader{lengths, string(texts)}, err
}

// prefixReader reads texts that begin as the one before, for so many bytes, and go on with a suffix.
type prefixReader struct {
	prefixes *deltaReader
	suffixes *lengthsReader
	last     string
	pay      func(bytes int64) error
}

func (r *prefixReader) next() (value, error) {
	n, err := r.prefixes.next()
	if err == nil && (n.n < 0 || n.n > int64(len(r.last))) {
		err = errCut
	}
	if err != nil {
		return value{}, err
	}
	v, err := r.suffixes.next()
	if err == nil && n.n > 0 {
		if err = r.pay(n.n + int64(len(v.text))); err == nil {
			v.text = r.last[:n.n] + v.text
		}
	}
	r.last = v.text
	return v, err
}

// newValues reads the values of a page. The page has at most so many.
func (c *fileColumn) newValues(b []byte, encoding int64, most int) (values, error) {
	kind := c.kind
	switch {
	case encoding == plainValues:
		return &plainReader{b: string(b), kind: kind}, nil
	case encoding == oldDictionary || encoding == dictionaryIndex:
		if len(b) == 0 {
			return &plainReader{}, nil // nothing but nulls
		}
		r, err := newHybrid(b[1:], int(b[0]))
		return &indexReader{r, c.dictionary}, err
	case encoding == rleValues && kind == kindBool:
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, errCut
		}
		r, err := newHybrid(b[4:], 1)
		return &boolReader{r}, err
	case encoding == deltaIntegers && (kind == kindInt32 || kind == kindInt64):
		return newDelta(b)
	case encoding == deltaLengths && kind == kindBytes:
		return newLengths(b, most)
	case encoding == deltaTexts && kind == kindBytes:
		return c.prefixed(b, most)
	}
	return nil, fmt.Errorf("its values are encoded as %s, which is not read of this type: let the program that has written it use plain values, dictionaries or deltas, or delete it", format.Encoding(encoding))
}

// prefixed reads texts by their prefixes. The page has at most so many.
func (c *fileColumn) prefixed(b []byte, most int) (*prefixReader, error) {
	prefixes, err := newDelta(b)
	if err != nil || prefixes.total > uint64(most) {
		return nil, errors.Join(fmt.Errorf("prefixes are given of more than %d values", most), err)
	}
	rest, err := prefixes.end()
	if err != nil {
		return nil, err
	}
	suffixes, err := newLengths(rest, most)
	return &prefixReader{prefixes: prefixes, suffixes: suffixes, pay: c.file.pay}, err
}
