package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// CheckParquet checks that github.com/parquet-go/parquet-go can read a Parquet file of size bytes, and takes at most
// about so many bytes of memory for all of its rows together. Call it before you give the library a file that somebody else may
// have written. The library allocates what a footer or a page claims, and a file of 100 bytes may claim gigabytes. Go cannot recover
// when the memory is used up.
//
// It reads the whole file, one part of a column at a time, and needs memory for the largest part. Nobody may
// change the file before the library has read it. It does not say that the rows are right: the library may still return errors for them.
//
// The error says what would take too much, or what cannot be checked: values packed with Brotli, LZ4 or LZO, and encrypted files.
func CheckParquet(file io.ReaderAt, size, memory int64) error {
	end, err := endOf(file, size)
	if err != nil {
		return fmt.Errorf("delta: it is no Parquet file: %w", err)
	}
	f := &parquetFile{
		at: file, data: size - int64(len(end)), most: memory / perValue, afford: memory, measures: true,
		tooMuch: fmt.Errorf("reading it takes more than %d bytes of memory", memory),
	}
	// guard:delta-parquet-memory. A program that lets the Parquet library read the rows of a file adds up first what
	// the pages of that file claim, and what their values take. Without this check: somebody commits a file of a few hundred bytes,
	// whose page says that it has 2 billion bytes; a rewriter of small files reads it, and the process runs out of
	// memory, which no recover catches; so does each leader after it.
	//
	//mutant:replace f.check(end, size); err != nil => f.check(end, size); err == errCut
	if err := f.check(end, size); err != nil {
		return fmt.Errorf("delta: the Parquet file is not read: %w", err)
	}
	return nil
}

// endOf reads the footer of a file, with the eight bytes after it.
func endOf(file io.ReaderAt, size int64) ([]byte, error) {
	if size < 12 {
		return nil, fmt.Errorf("it has %d bytes", size)
	}
	end := make([]byte, 8)
	if n, err := file.ReadAt(end, size-8); n < len(end) {
		return nil, err
	}
	if string(end[4:]) != "PAR1" {
		return nil, fmt.Errorf("it ends with %q", end[4:])
	}
	need := int64(binary.LittleEndian.Uint32(end)) + 8
	if need > size || need > maxFooter {
		return nil, fmt.Errorf("its footer claims %d of %d bytes", need, size)
	}
	end = make([]byte, need)
	if n, err := file.ReadAt(end, size-need); int64(n) != need {
		return nil, err
	}
	return end, nil
}

// perValue is what the library takes for each value or null of a page, besides what is in it: its levels, its offset or its
// index, and a parquet.Value.
const perValue = 48

func (f *parquetFile) check(end []byte, size int64) error {
	if err := checkFooter(end, size); err != nil {
		return err
	}
	if err := f.footer(end[:len(end)-8]); err != nil {
		return err
	}
	if f.rows > 0 && len(f.columns) == 0 {
		return fmt.Errorf("it claims %d rows of no columns", f.rows)
	}
	defer func() {
		if f.unzstd != nil {
			f.unzstd.Close()
		}
	}()
	for _, c := range f.columns {
		if err := c.check(); err != nil {
			return c.wrong(err)
		}
	}
	return nil
}

// check pays for all pages of a column.
func (c *fileColumn) check() error {
	if c.kind < kindBool || c.kind > kindFixed || c.width < 0 || c.width > maxText {
		return fmt.Errorf("it has the type %d with %d bytes", c.kind, c.width)
	}
	values := int64(0)
	for first := true; len(c.chunks) > 0; first = false {
		next := c.chunks[0]
		// The library unpacks all with the codec of the first part.
		if !first && next.codec != c.chunk.codec || next.late {
			return errors.New("its parts are packed with different codecs, or have a dictionary after their values")
		}
		for _, at := range next.index {
			if err := c.file.index(at); err != nil {
				return err
			}
		}
		values += next.values
		if next.size == 0 && next.values == 0 { // of a group without rows
			c.chunk, c.chunks = next, c.chunks[1:]
			continue
		}
		if err := c.open(); err != nil {
			return err
		}
		for len(c.rest) > 0 {
			if err := c.page(); err != nil {
				return err
			}
		}
		if c.chunk.values != 0 {
			return fmt.Errorf("it lacks %d of its values", c.chunk.values)
		}
	}
	if values < c.file.rows {
		return fmt.Errorf("it has %d values, and the file %d rows", values, c.file.rows)
	}
	return nil
}

// index pays for an index of pages.
func (f *parquetFile) index(at section) error {
	if at.size == 0 {
		return nil
	}
	if at.first < 4 || at.size < 0 || at.first > f.data || at.size > f.data-at.first {
		return fmt.Errorf("an index claims %d bytes at byte %d of %d", at.size, at.first, f.data)
	}
	if err := f.pay(2 * at.size); err != nil {
		return err
	}
	b, err := f.read(at)
	if err != nil {
		return err
	}
	t := &thrift{b: b, afford: f.afford}
	err = t.skip(thriftStruct)
	if f.afford = t.afford; f.afford < 0 {
		return f.tooMuch
	}
	return err
}

// fixed returns how many bytes a value has in memory; a text's are counted apart.
func (c *fileColumn) fixed() int64 {
	switch c.kind {
	case kindBool, kindBytes:
		return 1
	case kindFixed:
		return c.width
	case kindInt32, kindFloat:
		return 4
	case kindInt96:
		return 12
	}
	return 8
}

// measure pays for a page of which all but the values b was read.
func (c *fileColumn) measure(h pageHeader, b []byte) error {
	f := c.file
	if h.nulls < 0 || h.nulls > h.values {
		return fmt.Errorf("a page claims %d nulls of %d values", h.nulls, h.values)
	}
	if h.levels != [2]int64{rleValues, rleValues} {
		return errors.New("its levels are encoded in a way that is not read")
	}
	if err := f.pay(h.stored + 2*h.unpacked + h.values*(perValue+2*c.fixed())); err != nil {
		return err
	}
	for _, levels := range []*hybrid{c.reps, c.defs} {
		if levels != nil {
			if err := levels.total(f, 2); err != nil {
				return err
			}
		}
	}
	if len(b) == 0 {
		return nil // nothing but nulls
	}
	switch most := int(h.values); h.encoding {
	case plainValues, splitBytes:
		return nil
	case oldDictionary, dictionaryIndex:
		return c.indexed(b, most)
	case rleValues:
		if len(b) < 4 {
			return errCut
		}
		r, err := newHybrid(b[4:], 1)
		if err != nil {
			return err
		}
		return r.total(f, 2)
	case deltaIntegers:
		r, err := newDelta(b)
		if err == nil {
			err = r.measure(f, 16)
		}
		return err
	case deltaLengths:
		_, err := newLengths(b, most)
		return err
	case deltaTexts:
		r, err := c.prefixed(b, most)
		for n := uint64(0); err == nil && n < r.prefixes.total; n++ {
			_, err = r.next()
		}
		return err
	}
	return fmt.Errorf("its values are encoded as %d, which is not read", h.encoding)
}

// indexed pays for the values of a dictionary that a page has.
func (c *fileColumn) indexed(b []byte, most int) error {
	r, err := newHybrid(b[1:], int(b[0]))
	if err != nil {
		return err
	}
	all := *r
	if err := all.total(c.file, 8); err != nil || c.kind != kindBytes {
		return err
	}
	for range most {
		i, err := r.next()
		if err != nil {
			return nil //nolint:nilerr // nulls have none
		}
		if int64(i) < int64(len(c.dictionary)) {
			if err := c.file.pay(int64(len(c.dictionary[i].text))); err != nil {
				return err
			}
		}
	}
	return nil
}

// total pays for each number that is left.
func (r *hybrid) total(f *parquetFile, bytes int64) error {
	for len(r.b) > 0 {
		if err := r.run(); err != nil {
			return err
		}
		if err := f.pay(bytes * int64(r.left)); err != nil {
			return err
		}
		if !r.same {
			r.b = r.b[r.left/8*r.width:]
		}
	}
	return nil
}

// measure pays for all numbers.
func (r *deltaReader) measure(f *parquetFile, bytes int64) error {
	if r.total > uint64(f.most) {
		return f.tooMuch
	}
	return f.pay(bytes * int64(r.total))
}
