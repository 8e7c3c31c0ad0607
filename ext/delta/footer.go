package delta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

const (
	// footerGuess is how many bytes at the end of a file are read at first. Most footers fit.
	footerGuess = 64 << 10
	// maxFooter bounds a footer, in bytes.
	maxFooter = 64 << 20
)

// removeIt is what to do about a file that cannot be in the table.
const removeIt = "remove it from the log's table with an edit"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// footer is what a file's own end says of it.
type footer struct {
	schema *schema
	text   string // of schema
	stats  string
	rows   int64
}

// readFooter reads the footer of the Parquet file under key. It costs one GET, or two if the
// footer is large. It takes the whole file if that has up to 64 KiB, and compares the checksum. In
// a larger file it does not notice damage that the footer does not show.
func readFooter(ctx context.Context, st store.Store, key string, of manifest.File, settle *store.SettleOptions) (*footer, error) {
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
)

// checkFooter checks that the library can decode a footer in memory that is in proportion to it.
func checkFooter(end []byte) error {
	n := int64(len(end)) - 8
	if n < 4 {
		return errCut
	}
	long := int64(binary.LittleEndian.Uint32(end[n:]))
	if long > n {
		return fmt.Errorf("its footer claims %d bytes, and %d are there", long, n)
	}
	t := &thrift{b: end[n-long : n], afford: footerMemory + memoryPerByte*long}
	columns, groups := 0, []int(nil)
	err := t.fields(func(id int, typ byte) error {
		switch id {
		case 2:
			all, err := t.elements(typ)
			if err == nil {
				err = leaves(all, func([]element) { columns++ })
			}
			return err
		case 4:
			return t.structs(typ, 256, func() error {
				n, err := t.chunks()
				groups = append(groups, n)
				return err
			})
		}
		return t.skip(typ)
	})
	if err != nil {
		return err
	}
	for _, n := range groups {
		if n != columns {
			return fmt.Errorf("a row group has %d columns, and the schema %d", n, columns)
		}
	}
	return nil
}

// chunks reads a row group, and returns how many columns it has.
func (t *thrift) chunks() (n int, err error) {
	err = t.fields(func(id int, typ byte) error {
		if id != 1 {
			return t.skip(typ)
		}
		return t.structs(typ, 704, func() error {
			n++
			return t.skip(thriftStruct)
		})
	})
	return n, err
}

func decodeFooter(end []byte, size int64) (f *footer, err error) {
	// The library panics on some footers that are damaged.
	defer func() {
		if r := recover(); r != nil {
			f, err = nil, fmt.Errorf("%v", r)
		}
	}()
	// guard:delta-footer-lengths. Every list, text and level of a Parquet footer fits the bytes that are
	// left, and all together fit a bound, before the Parquet library sees the footer. The library
	// allocates what a length claims. Without this check: somebody commits a file of 27 bytes, whose
	// footer claims a schema of 2 billion elements; the publisher reads it, and the process runs out of
	// memory, which no recover catches; each publisher of that table ends in the same way, and none says
	// which file it was.
	//
	//mutant:replace checkFooter(end) => error(nil)
	if err := checkFooter(end); err != nil {
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
	stats, err := statsOf(file)
	if err != nil {
		return nil, err
	}
	return &footer{schema: s, text: s.String(), stats: stats, rows: file.NumRows()}, nil
}
