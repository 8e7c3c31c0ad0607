package delta

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
)

// The columns of a checkpoint are read here, and not by the Parquet library: that unpacks a page without
// a bound, and copies the value of a dictionary for each row that has it.

// What a checkpoint may take, in bytes: some memory, some for each of its bytes, and at most so much. A file
// takes about 1,000, and 50 for each column by which the table is partitioned, of which nearly nothing is in
// the checkpoint if all files are alike.
const (
	checkpointMemory    = 512 << 20
	checkpointFactor    = 64
	maxCheckpointMemory = 2 << 30
	// textFactor is for how many bytes of text values may be read for each byte of memory that a checkpoint
	// may take: many values may be the same text.
	textFactor = 2
	// maxText bounds each text. The longest is the schema of the table.
	maxText = 4 << 20
)

// chunk is a part of a column, in the row group with the same number.
type chunk struct {
	codec, values, first, size int64
	elsewhere                  bool // in another file
	late                       bool // its dictionary comes after its values
	index                      [2]section
}

// section is a part of a file.
type section struct{ first, size int64 }

// parquetFile is a Parquet file in memory.
type parquetFile struct {
	body    []byte      // what is before the footer, if it is in memory
	at      io.ReaderAt // otherwise
	data    int64       // how many bytes that is
	most    int64       // rows
	rows    int64
	columns []*fileColumn
	afford  int64         // bytes of memory
	texts   int64         // bytes of text that may be read
	unzstd  *zstd.Decoder // made when it is needed
	tooMuch error
	// measures says that a page is paid for as the Parquet library reads it, and that its values are not read.
	measures bool
}

// fileColumn reads one after another all values of a column, also nulls.
type fileColumn struct {
	file           *parquetFile
	path           []string
	kind, width    int64 // width: of a value of a fixed length, in bytes
	maxDef, maxRep int
	elementDef     int // from this definition level on a repeated column has a value, or a null
	chunks         []chunk
	rest           []byte // of the chunk
	chunk          chunk
	left           int // in the page
	reps, defs     *hybrid
	vals           values
	dictionary     []value
	peeked         bool
	rep, def       int
}

func (f *parquetFile) pay(bytes int64) error {
	if f.afford -= bytes; f.afford < 0 {
		return f.tooMuch
	}
	return nil
}

// openParquet reads the footer of a file. It has no columns with lists in lists.
func openParquet(body []byte) (*parquetFile, error) {
	n := int64(len(body)) - 8
	if n < 4 || string(body[n+4:]) != "PAR1" {
		return nil, errors.New("it does not end as a Parquet file")
	}
	long := int64(binary.LittleEndian.Uint32(body[n:]))
	if long > n-4 {
		return nil, fmt.Errorf("its footer claims %d of %d bytes", long, n)
	}
	f := &parquetFile{
		body: body[:n-long], data: n - long, most: int64(len(body)), afford: min(checkpointMemory+checkpointFactor*int64(len(body)), maxCheckpointMemory),
		tooMuch: errors.New("it unpacks to far more than a checkpoint of its size does"),
	}
	f.texts = textFactor * f.afford
	return f, f.footer(body[n-long : n])
}

// footer reads the footer of a file.
func (f *parquetFile) footer(b []byte) error {
	t := &thrift{b: b, afford: min(footerMemory+memoryPerByte*int64(len(b)), maxFooterMemory)}
	err := t.fields(func(id int, typ byte) (err error) {
		switch id {
		case 2:
			all, err := t.elements(typ)
			if err != nil {
				return err
			}
			return leaves(all, f.leaf)
		case 4:
			return t.structs(typ, 0, func() error { return f.group(t) })
		}
		return t.skip(typ)
	})
	if err == nil && f.rows > f.most {
		err = fmt.Errorf("it claims to have %d rows; at most %d are possible", f.rows, f.most)
	}
	return err
}

func (f *parquetFile) leaf(path []element) {
	c := &fileColumn{file: f, kind: path[len(path)-1].kind, width: path[len(path)-1].width}
	for _, e := range path {
		c.path = append(c.path, e.name)
		if e.repetition != 0 {
			c.maxDef++
		}
		if e.repetition == 2 {
			c.maxRep++
			c.elementDef = c.maxDef
		}
	}
	f.columns = append(f.columns, c)
}

// group reads a row group.
func (f *parquetFile) group(t *thrift) error {
	n, rows := 0, int64(0)
	err := t.fields(func(id int, typ byte) (err error) {
		switch id {
		case 1:
			return t.structs(typ, 64, func() error {
				c, err := t.chunk()
				if err == nil && n >= len(f.columns) {
					err = fmt.Errorf("a row group has more than %d columns", len(f.columns))
				}
				if err == nil {
					f.columns[n].chunks = append(f.columns[n].chunks, c)
					n++
				}
				return err
			})
		case 3:
			rows, err = t.integer(typ, thriftI64)
			return err
		}
		return t.skip(typ)
	})
	if err != nil {
		return err
	}
	if rows > f.most {
		return fmt.Errorf("%w: a row group has %d rows", f.tooMuch, rows)
	}
	if n != len(f.columns) || rows < 0 {
		return fmt.Errorf("a row group has %d rows of %d columns", rows, n)
	}
	f.rows += rows
	return nil
}

// chunk reads what a footer says of a part of a column.
func (t *thrift) chunk() (c chunk, err error) {
	dictionary := int64(0)
	err = t.fields(func(id int, typ byte) error {
		if id == 1 {
			name, err := t.text(typ)
			c.elsewhere = len(name) > 0
			return err
		}
		if id >= 4 && id <= 7 && typ != thriftStruct {
			return t.indexField(&c, id, typ)
		}
		if id != 3 || typ != thriftStruct {
			return t.skip(typ)
		}
		if err := t.pay(aStruct); err != nil {
			return err
		}
		return t.fields(func(id int, typ byte) (err error) {
			switch id {
			case 4:
				c.codec, err = t.integer(typ, thriftI32)
			case 5:
				c.values, err = t.integer(typ, thriftI64)
			case 7:
				c.size, err = t.integer(typ, thriftI64)
			case 9:
				c.first, err = t.integer(typ, thriftI64)
			case 11:
				dictionary, err = t.integer(typ, thriftI64)
			default:
				err = t.skip(typ)
			}
			return err
		})
	})
	if c.late = dictionary < 0 || dictionary > c.first; dictionary > 0 && dictionary < c.first {
		c.first = dictionary
	}
	return c, err
}

// indexField reads where an index of a column's pages is.
func (t *thrift) indexField(c *chunk, id int, typ byte) (err error) {
	at := &c.index[(id-4)/2]
	if id%2 == 0 {
		at.first, err = t.integer(typ, thriftI64)
	} else {
		at.size, err = t.integer(typ, thriftI32)
	}
	return err
}

// find returns the columns below a name, in order.
func (f *parquetFile) find(name string) (found []*fileColumn) {
	want := strings.Split(name, ".")
	for _, c := range f.columns {
		if len(c.path) >= len(want) && slices.Equal(c.path[:len(want)], want) {
			found = append(found, c)
		}
	}
	return found
}

// peek finds the next value or null. False says that there is none.
func (c *fileColumn) peek() (bool, error) {
	for !c.peeked {
		switch {
		case c.left > 0:
			c.left--
			c.peeked = true
			if err := c.level(); err != nil {
				return false, c.wrong(err)
			}
		case c.chunk.values > 0:
			if err := c.page(); err != nil {
				return false, c.wrong(err)
			}
		case len(c.chunks) > 0:
			if err := c.open(); err != nil {
				return false, c.wrong(err)
			}
		default:
			return false, nil
		}
	}
	return true, nil
}

// open makes the next chunk ready.
func (c *fileColumn) open() (err error) {
	c.chunk, c.chunks, c.dictionary = c.chunks[0], c.chunks[1:], nil
	f, h := c.file, c.chunk
	if err := h.within(f.data); err != nil {
		return err
	}
	// Chunks that overlap are paid for each time.
	if err := f.pay(h.size); err != nil {
		return err
	}
	c.rest, err = f.read(section{h.first, h.size})
	return err
}

// read returns a section that is before the footer.
func (f *parquetFile) read(s section) ([]byte, error) {
	if f.at == nil {
		return f.body[s.first : s.first+s.size], nil
	}
	b := make([]byte, s.size)
	n, err := f.at.ReadAt(b, s.first)
	if n == len(b) {
		err = nil
	}
	return b, err
}

func (c *fileColumn) wrong(err error) error {
	return fmt.Errorf("column %s: %w", strings.Join(c.path, "."), err)
}

func (c *fileColumn) level() error {
	c.rep, c.def = 0, c.maxDef
	if c.reps != nil {
		n, err := c.reps.next()
		if err != nil || int64(n) > int64(c.maxRep) {
			return errors.Join(errCut, err)
		}
		c.rep = int(n)
	}
	if c.defs != nil {
		n, err := c.defs.next()
		if err != nil || int64(n) > int64(c.maxDef) {
			return errors.Join(errCut, err)
		}
		c.def = int(n)
	}
	return nil
}

// next returns the value that peek has found; false if it is a null.
func (c *fileColumn) next() (v value, ok bool, err error) {
	c.peeked = false
	if c.def < c.maxDef {
		return value{}, false, nil
	}
	if v, err = c.vals.next(); err != nil {
		return value{}, false, c.wrong(err)
	}
	if len(v.text) > maxText {
		return value{}, false, c.wrong(fmt.Errorf("it has a value of %d bytes; at most %d are possible", len(v.text), maxText))
	}
	// Its memory is paid for with the page or the dictionary that has it, but who reads it takes time.
	if c.file.texts -= int64(len(v.text)); c.file.texts < 0 {
		return value{}, false, c.wrong(errors.New("it repeats far more text than a checkpoint of its size does"))
	}
	return v, true, nil
}

// page makes the next page with values ready.
func (c *fileColumn) page() error {
	t := &thrift{b: c.rest, afford: 1 << 20}
	h, err := t.pageHeader()
	if err != nil {
		return err
	}
	body, err := t.cut(int(h.stored))
	if err != nil {
		return err
	}
	c.rest = t.b
	// More values than that cannot be paid for.
	most := min(c.chunk.values, c.file.rows+c.file.afford/elementMemory)
	if h.unpacked < 0 || h.values < 0 || h.values > most {
		return fmt.Errorf("a page claims %d bytes with %d values", h.unpacked, h.values)
	}
	levels := int64(0)
	if h.typ == dataPage2 {
		if levels = h.repBytes + h.defBytes; h.repBytes < 0 || h.defBytes < 0 || levels > int64(len(body)) || levels > h.unpacked {
			return errCut
		}
	}
	values := body[levels:]
	if h.packed {
		if values, err = c.file.unpack(c.chunk.codec, values, h.unpacked-levels); err != nil {
			return err
		}
	}
	switch h.typ {
	case dictionaryPage:
		return c.readDictionary(values, h.values)
	case dataPage:
		if values, err = c.levels(values); err != nil {
			return err
		}
	case dataPage2:
		if err := c.split(body[:h.repBytes], body[h.repBytes:levels]); err != nil {
			return err
		}
	default:
		return nil // an index
	}
	c.chunk.values -= h.values
	if c.file.measures {
		return c.measure(h, values)
	}
	c.left = int(h.values)
	c.vals, err = c.newValues(values, h.encoding, c.left)
	return err
}

// readDictionary reads a dictionary of so many values.
func (c *fileColumn) readDictionary(b []byte, n int64) error {
	if n > int64(len(b))*8 {
		return fmt.Errorf("a dictionary claims %d values in %d bytes", n, len(b))
	}
	if err := c.file.pay(n * (24 + c.fixed())); err != nil {
		return err
	}
	if c.file.measures && c.kind != kindBytes {
		return nil
	}
	r, err := c.newValues(b, plainValues, 0)
	if err != nil {
		return err
	}
	c.dictionary = make([]value, n)
	for i := range c.dictionary {
		if c.dictionary[i], err = r.next(); err != nil {
			return err
		}
	}
	return nil
}

// width is how many bits a level has.
func width(most int) (n int) {
	for ; most > 0; most >>= 1 {
		n++
	}
	return n
}

// levels takes the levels off the begin of a page.
func (c *fileColumn) levels(b []byte) (rest []byte, err error) {
	var parts [2][]byte
	for i, most := range []int{c.maxRep, c.maxDef} {
		if most == 0 {
			continue
		}
		if len(b) < 4 {
			return nil, errCut
		}
		n := int64(binary.LittleEndian.Uint32(b))
		if n > int64(len(b)-4) {
			return nil, errCut
		}
		parts[i], b = b[4:4+n], b[4+n:]
	}
	return b, c.split(parts[0], parts[1])
}

func (c *fileColumn) split(reps, defs []byte) (err error) {
	c.reps, c.defs = nil, nil
	if c.maxRep > 0 {
		c.reps, err = newHybrid(reps, width(c.maxRep))
	}
	if c.maxDef > 0 && err == nil {
		c.defs, err = newHybrid(defs, width(c.maxDef))
	}
	return err
}

// The types of pages.
const (
	dataPage       = 0
	dictionaryPage = 2
	dataPage2      = 3
)

type pageHeader struct {
	typ, unpacked, stored, values, encoding, defBytes, repBytes, nulls int64
	// levels is how the first data pages have their levels encoded: definition and repetition.
	levels [2]int64
	packed bool
}

func (t *thrift) pageHeader() (h pageHeader, err error) {
	h.typ, h.packed, h.levels = -1, true, [2]int64{rleValues, rleValues}
	err = t.fields(func(id int, typ byte) (err error) {
		switch id {
		case 1:
			h.typ, err = t.integer(typ, thriftI32)
		case 2:
			h.unpacked, err = t.integer(typ, thriftI32)
		case 3:
			h.stored, err = t.integer(typ, thriftI32)
		case 5, 7, 8:
			if typ != thriftStruct || id != map[int64]int{dataPage: 5, dictionaryPage: 7, dataPage2: 8}[h.typ] {
				return fmt.Errorf("a page of type %d has the header of another type", h.typ)
			}
			return t.fields(func(id int, typ byte) error { return t.pageField(&h, id, typ) })
		default:
			err = t.skip(typ)
		}
		return err
	})
	return h, err
}

// pageField reads a field of the header of one type of page.
func (t *thrift) pageField(h *pageHeader, id int, typ byte) (err error) {
	second := h.typ == dataPage2
	switch {
	case id == 1:
		h.values, err = t.integer(typ, thriftI32)
	case id == 2 && !second || id == 4 && second:
		h.encoding, err = t.integer(typ, thriftI32)
	case id == 2 && second:
		h.nulls, err = t.integer(typ, thriftI32)
	case (id == 3 || id == 4) && h.typ == dataPage:
		h.levels[id-3], err = t.integer(typ, thriftI32)
	case id == 5 && second:
		h.defBytes, err = t.integer(typ, thriftI32)
	case id == 6 && second:
		h.repBytes, err = t.integer(typ, thriftI32)
	case id == 7 && second:
		h.packed = typ != thriftFalse
		return t.skip(typ)
	default:
		err = t.skip(typ)
	}
	return err
}

// unpack unpacks a page.
//
// guard:delta-unpacked. A publisher reads a checkpoint only if its pages claim to unpack to less than a
// bound, which is at most 2 GiB.
//
//mutant:replace err := f.pay(2 * size); err != nil => false
func (f *parquetFile) unpack(codec int64, b []byte, size int64) (out []byte, err error) {
	if err := f.pay(2 * size); err != nil { // texts are copied once
		return nil, err
	}
	switch {
	case size == 0 && len(b) == 0:
		return nil, nil // nothing but nulls
	case codec == 0:
		out = b
	case codec == 1:
		if n, err := snappy.DecodedLen(b); err != nil || int64(n) != size {
			return nil, fmt.Errorf("it unpacks to %d bytes instead of %d: %w", n, size, errors.Join(err, errCut))
		}
		return snappy.Decode(nil, b)
	case codec == 2:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			out = make([]byte, size)
			_, err = io.ReadFull(z, out)
			if n, _ := io.CopyN(io.Discard, z, 1); err == nil && n > 0 {
				err = errors.New("it unpacks to more than it claims")
			}
		}
	case codec == 6:
		if f.unzstd == nil {
			f.unzstd, err = zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		}
		if err == nil {
			out, err = f.unzstd.DecodeAll(b, make([]byte, 0, size))
		}
	default:
		return nil, fmt.Errorf("it is packed with %s, which is not read: let the program that has written it use Snappy, Zstandard, gzip or none, or delete it", format.CompressionCodec(codec))
	}
	if err == nil && int64(len(out)) != size {
		err = errCut
	}
	return out, err
}
