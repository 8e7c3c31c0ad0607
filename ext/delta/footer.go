package delta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

const (
	// footerGuess is how many bytes at the end of a file are read at first. Most footers fit.
	footerGuess = 64 << 10
	// maxFooter bounds a footer, in bytes, and maxNames the names in it: for each column those from the
	// root to it. The library keeps all of them.
	maxFooter = 16 << 20
	maxNames  = 8 << 20
)

// removeIt is what to do about a file that cannot be in the table.
const removeIt = "remove it from the log's table with an edit"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Footer is what a file's own end says of it.
type Footer struct {
	Schema  *Schema
	Rows    int64
	Columns []ColumnStats
	// Numbered is a column that has a field id, or empty. Iceberg tells columns by these, and no other format does.
	Numbered string
	text     string // of Schema, with Numbered
}

// readFooter reads the footer of the Parquet file under key. It costs one GET, or two if the
// footer is large. It takes the whole file if that has up to 64 KiB, and compares the checksum. In
// a larger file it does not notice damage that the footer does not show.
func readFooter(ctx context.Context, st store.Store, key string, of manifest.File, settle *store.SettleOptions) (*Footer, error) {
	size := of.Size
	notParquet := func(err error) error {
		return fmt.Errorf("%w: %s is no Parquet file: %w; "+removeIt, ErrSource, key, err)
	}
	if size < 12 {
		return nil, notParquet(fmt.Errorf("it has %d bytes", size))
	}
	end, err := readEnd(ctx, st, key, size, min(size, footerGuess), settle)
	if err != nil {
		return nil, err
	}
	// A small file is published only if it has the checksum that its writer computed. Without
	// this check: a disk flips a bit of the smallest value that a footer tells; the table says
	// that the file has no such rows; engines skip the file, and miss them.
	if sum := crc32.Checksum(end, castagnoli); int64(len(end)) == size && sum != of.CRC32C {
		return nil, fmt.Errorf("%w: the checksum of %s is %08x, and the log says %08x: it was replaced or damaged: restore it, or "+removeIt, ErrSource, key, sum, of.CRC32C)
	}
	if magic := string(end[len(end)-4:]); magic != "PAR1" {
		return nil, notParquet(fmt.Errorf("it ends with %q", magic))
	}
	need := int64(binary.LittleEndian.Uint32(end[len(end)-8:])) + 8
	switch {
	case need > size || need > maxFooter:
		return nil, notParquet(fmt.Errorf("its footer claims %d of %d bytes", need, size))
	case need > int64(len(end)):
		if end, err = readEnd(ctx, st, key, size, need, settle); err != nil {
			return nil, err
		}
	}
	f, err := decodeFooter(end, size)
	if err != nil && !errors.Is(err, ErrSchema) {
		return nil, notParquet(err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; "+removeIt, key, err)
	}
	if of.Records != 0 && of.Records != uint64(f.Rows) {
		return nil, fmt.Errorf("%w: %s has %d rows, and the log says %d: it was replaced or damaged: restore it, or "+removeIt, ErrSource, key, f.Rows, of.Records)
	}
	return f, nil
}

func readEnd(ctx context.Context, st store.Store, key string, size, n int64, settle *store.SettleOptions) ([]byte, error) {
	end, info, err := store.Read(ctx, st, key, &store.ReadOptions{Offset: size - n, Length: n, Settle: settle})
	if err != nil {
		return nil, fmt.Errorf("delta: the footer of a live file: %w", err)
	}
	if info.Size != size || int64(len(end)) != n {
		return nil, fmt.Errorf("%w: %s has %d bytes, and the log says %d: it was replaced or damaged: restore it, or "+removeIt, ErrSource, key, info.Size, size)
	}
	return end, nil
}

// tail is the end of a file of which the rest is not there.
type tail struct {
	end  []byte
	size int64
}

func (t tail) ReadAt(p []byte, at int64) (int, error) {
	from := at - (t.size - int64(len(t.end)))
	if from < 0 || from > int64(len(t.end)) {
		return 0, fmt.Errorf("delta: byte %d is not in the footer", at)
	}
	n := copy(p, t.end[from:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// largeFooter is held while a large footer is decoded, so that sixteen at once do not take the memory of
// sixteen.
var largeFooter sync.Mutex

// What a footer may make the library allocate: some memory, and some for each of its bytes. The footer of
// a file with many columns takes about a third of that.
const (
	footerMemory  = 16 << 20
	memoryPerByte = 48
	// maxFooterMemory bounds both together.
	maxFooterMemory = 256 << 20
)

// parts is what a footer says of where its rows are.
type parts struct {
	columns int
	names   int64 // bytes
	rows    int64 // of the file
	sum     int64 // of the row groups
	data    int64 // what is before the footer, in bytes
}

// checkFooter checks that the library can decode a footer in memory that is in proportion to it, and that
// what it says of rows agrees: of a file of size bytes.
func checkFooter(end []byte, size int64) error {
	n := int64(len(end)) - 8
	if n < 4 {
		return errCut
	}
	long := int64(binary.LittleEndian.Uint32(end[n:]))
	if long > n || long > maxFooter {
		return fmt.Errorf("its footer claims %d bytes, %d are there, and at most %d are possible", long, n, maxFooter)
	}
	t := &thrift{b: end[n-long : n], afford: min(footerMemory+memoryPerByte*long, maxFooterMemory)}
	p := &parts{data: size - 8 - long}
	err := t.fields(func(id int, typ byte) (err error) {
		switch id {
		case 2:
			all, err := t.elements(typ)
			if err != nil {
				return err
			}
			return leaves(all, p.column)
		case 3:
			p.rows, err = t.integer(typ, thriftI64)
			return err
		case 4:
			return t.structs(typ, 256, func() error { return p.group(t) })
		}
		return t.skip(typ)
	})
	// guard:delta-footer-rows. A Parquet file is taken only if its footer tells as many rows as its row
	// groups have together, and if all of these lie before the footer.
	//
	//mutant:replace p.sum != p.rows => false
	switch {
	case err != nil:
		return err
	case p.names > maxNames:
		return fmt.Errorf("the names of its columns take %d bytes, with those of the groups that they are in; at most %d are possible", p.names, maxNames)
	case p.sum != p.rows:
		return fmt.Errorf("its footer says %d rows, and its row groups have %d", p.rows, p.sum)
	}
	return nil
}

func (p *parts) column(path []element) {
	p.columns++
	for _, e := range path {
		p.names += int64(len(e.name)) + 16
	}
}

// group reads a row group.
func (p *parts) group(t *thrift) error {
	n, rows, outside := 0, int64(0), error(nil)
	err := t.fields(func(id int, typ byte) (err error) {
		switch id {
		case 1:
			return t.structs(typ, 704, func() error {
				n++
				c, err := t.chunk()
				if wrong := c.within(p.data); wrong != nil && outside == nil {
					outside = wrong
				}
				return err
			})
		case 3:
			rows, err = t.integer(typ, thriftI64)
			return err
		}
		return t.skip(typ)
	})
	switch {
	case err != nil:
		return err
	case n != p.columns:
		return fmt.Errorf("a row group has %d columns, and the schema %d", n, p.columns)
	case rows < 0 || p.sum+rows < p.sum:
		return fmt.Errorf("a row group claims %d rows", rows)
	case rows > 0 && outside != nil: // one without rows may have no place
		return outside
	}
	p.sum += rows
	return nil
}

// within checks that a chunk lies in a file whose footer begins at a byte.
func (c *chunk) within(footer int64) error {
	switch {
	case c.elsewhere:
		return errors.New("a part of a column is in another file")
	case c.first < 4 || c.size < 0 || c.values < 0 || c.first > footer || c.size > footer-c.first:
		return fmt.Errorf("a part of a column claims %d values, in %d bytes at byte %d of %d", c.values, c.size, c.first, footer)
	}
	return nil
}

func decodeFooter(end []byte, size int64) (f *Footer, err error) {
	// The library panics on some footers that are damaged.
	defer func() {
		if r := recover(); r != nil {
			f, err = nil, fmt.Errorf("%v", r)
		}
	}()
	// guard:delta-footer-lengths. Every list, text and level of a Parquet footer fits the bytes that
	// are left, and all together fit a bound, before the Parquet library sees the footer.
	//
	//mutant:replace checkFooter(end, size) => error(nil)
	if err := checkFooter(end, size); err != nil {
		return nil, err
	}
	if len(end) > footerGuess {
		largeFooter.Lock()
		defer largeFooter.Unlock()
	}
	file, err := parquet.OpenFile(tail{end, size}, size, parquet.SkipMagicBytes(true), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, err
	}
	s, err := schemaOf(file.Root())
	if err != nil {
		return nil, err
	}
	f = &Footer{Schema: s, Columns: columnsOf(file), Rows: file.NumRows(), Numbered: numbered(file.Root())}
	f.text = s.String() + f.Numbered
	return f, nil
}

// numbered returns the name of a column with a field id.
func numbered(c *parquet.Column) string {
	for _, below := range c.Columns() {
		if below.ID() != 0 {
			return strings.Join(below.Path(), ".")
		}
		if name := numbered(below); name != "" {
			return name
		}
	}
	return ""
}
