package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// Log is what a [Writer] needs of a log: a writer.Writer, or a fencepost.Session.
type Log interface {
	CreateFile(ctx context.Context, ext string, size int64) (*writer.FileWriter, error)
	CommitFiles(ctx context.Context, edit manifest.Edit, opts ...writer.AppendOption) error
	Append(ctx context.Context, records [][]byte, opts ...writer.AppendOption) (uint64, error)
}

// WriterOptions of a [Writer] of rows of type T. The zero value works, and so does nil.
type WriterOptions[T any] struct {
	// Table is the root of the Delta table. If it is given, a Writer refuses rows whose
	// schema does not fit the table before it writes any, and partition values that are none of
	// their column's type. It reads the table again for each commit until the table is there, and then for
	// each 64th: the requests of a publisher that begins.
	Table store.Store
	// Format is that of Table; default [Lake].
	Format Format
	// Partition returns the values of the columns by which the table is partitioned, by
	// name. Rows of one file have the same. Their struct does not have these columns.
	Partition func(*T) map[string]string
	// FileSize is how large a file becomes, in bytes, about; default 128 MiB.
	FileSize int64
	// Rows is how many rows a row group has at most; default 1 million. They are in memory
	// until then.
	Rows int64
	// Compression of pages; default Zstandard.
	Compression Codec
	// Settle tunes retries.
	Settle *store.SettleOptions
}

// Codec says how the pages of a file are compressed.
type Codec string

// The codecs.
const (
	Zstd   Codec = "zstd"
	Snappy Codec = "snappy"
	Plain  Codec = "none"
)

const (
	defaultFileSize = 128 << 20
	defaultRows     = 1 << 20
	// maxOpen is how many files a Writer writes at the same time, one for each partition.
	maxOpen = 128
)

// Validate returns all that is wrong with the options, as [NewWriter] does. Each fault is
// [ErrOptions].
func (o *WriterOptions[T]) Validate() error {
	v := o.withDefaults()
	var faults []error
	if v.FileSize < 1<<10 {
		faults = append(faults, fmt.Errorf("%w: FileSize %d is less than 1024", ErrOptions, v.FileSize))
	}
	if v.Rows < 1 {
		faults = append(faults, fmt.Errorf("%w: Rows %d must be positive", ErrOptions, v.Rows))
	}
	if v.Compression != Zstd && v.Compression != Snappy && v.Compression != Plain {
		faults = append(faults, fmt.Errorf("%w: there is no Compression %q; use %q, %q or %q", ErrOptions, v.Compression, Zstd, Snappy, Plain))
	}
	if err := v.Settle.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("%w: Settle: %w", ErrOptions, err))
	}
	return errors.Join(faults...)
}

func (o *WriterOptions[T]) withDefaults() WriterOptions[T] {
	v := *cmp.Or(o, &WriterOptions[T]{})
	v.FileSize = cmp.Or(v.FileSize, defaultFileSize)
	if v.Format == nil {
		v.Format = Lake()
	}
	v.Rows = cmp.Or(v.Rows, defaultRows)
	v.Compression = cmp.Or(v.Compression, Zstd)
	return v
}

// Writer writes rows to Parquet files of a log's table, and commits them with a cursor. It takes Parquet files
// that are complete too. T is a struct with tags of package parquet-go. It is for one goroutine.
type Writer[T any] struct {
	log    Log
	opts   WriterOptions[T]
	schema *Schema  // of T
	all    *Schema  // of T, and of the files that were complete
	table  *fitting // what the table has, or nil
	since  int      // commits since table was read
	config []parquet.WriterOption
	open   map[string]*openFile[T] // by partition
	done   []manifest.File         // complete and not committed
	err    error
}

// openFile is a file that is being written.
type openFile[T any] struct {
	file *writer.FileWriter
	out  *counter
	rows *parquet.GenericWriter[T]
	n    uint64
	meta map[string]string
}

// counter counts what is written.
type counter struct {
	to *writer.FileWriter
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// NewWriter checks that rows of type T have a schema that Delta has, and that it fits the table.
// Errors: [ErrOptions], [ErrSchema], those of loading the table.
func NewWriter[T any](ctx context.Context, log Log, opts *WriterOptions[T]) (*Writer[T], error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		return nil, fmt.Errorf("%w: the log is nil", ErrOptions)
	}
	o := opts.withDefaults()
	rows := parquet.SchemaOf(new(T))
	own, err := schemaOf(rows)
	if err == nil {
		err = sortable(rows)
	}
	if err != nil {
		return nil, err
	}
	w := &Writer[T]{log: log, opts: o, schema: own, all: own, open: map[string]*openFile[T]{}}
	if !store.IsNil(o.Table) {
		if w.table, err = loadFitting(ctx, o.Format, o.Table, o.Settle); err != nil {
			return nil, err
		}
		if err := w.table.fits(own); err != nil {
			return nil, err
		}
	}
	w.config = []parquet.WriterOption{parquet.MaxRowsPerRowGroup(o.Rows), parquet.CreatedBy("fencepost", "1", "")}
	switch o.Compression {
	case Zstd:
		w.config = append(w.config, parquet.Compression(&parquet.Zstd))
	case Snappy:
		w.config = append(w.config, parquet.Compression(&parquet.Snappy))
	case Plain:
	}
	return w, nil
}

// sortable refuses columns whose bounds the library writes wrong: it compares decimals that are
// kept as bytes without their sign, and engines leave out row groups by these bounds.
func sortable(s *parquet.Schema) error {
	for _, path := range s.Columns() {
		leaf, _ := s.Lookup(path...)
		k := leaf.Node.Type().Kind()
		if _, ok := logical(leaf.Node.Type()).(*format.DecimalType); ok && k != parquet.Int32 && k != parquet.Int64 {
			return fmt.Errorf("%w: the column %s is a decimal in bytes, for which parquet-go writes bounds that engines misread: write it as an int64 with the tag decimal(scale:precision), which has up to 18 digits", ErrSchema, strings.Join(path, "."))
		}
	}
	return nil
}

// fitting is what a table asks of a file. A table that has no version yet asks nothing.
type fitting struct {
	schema *Schema           // or nil
	by     []string          // the columns by which the table is partitioned
	types  map[string]string // of these columns
}

// refit is after how many commits a Writer reads the table again.
const refit = 64

func loadFitting(ctx context.Context, f Format, root store.Store, settle *store.SettleOptions) (*fitting, error) {
	t, err := f.Open(Place{Root: root, Settle: settle, Clock: clock.Or(nil), Foreign: func(string, string) {}, Failed: func(error) {}})
	if err != nil {
		return nil, err
	}
	s, err := t.Load(ctx, nil, false)
	if err != nil || s.Meta() == nil {
		return &fitting{}, err
	}
	m := s.Meta()
	return &fitting{m.Schema, m.Partition, m.types()}, nil
}

// fits checks a schema against that of the table, if there is one.
func (f *fitting) fits(own *Schema) error {
	if f.schema == nil {
		return nil
	}
	if err := own.unpartitioned(f.by); err != nil {
		return err
	}
	_, err := f.schema.merge(own)
	return err
}

// takes checks the partition values of a file.
func (f *fitting) takes(values map[string]string) error {
	if name, want := badPartition(f.types, values); name != "" {
		return fmt.Errorf("%w: the partition column %s is %s in the table, and the value is %q: let WriterOptions.Partition, or the values of WriteParquet, have one like %s", ErrSchema, name, f.types[name], values[name], want)
	}
	if what := misnamed(f.types, values); what != "" {
		return fmt.Errorf("%w: WriterOptions.Partition, or the values of WriteParquet, give %s", ErrSchema, what)
	}
	return nil
}

// fit checks what is to be committed against the table, if that was not there or was read long ago.
//
// guard:delta-fit-again. A Writer that has found no table reads it again before it commits.
//
//mutant:replace w.table.schema != nil && w.since < refit => w.since >= 0
func (w *Writer[T]) fit(ctx context.Context) error {
	w.since++
	if w.table == nil || w.table.schema != nil && w.since < refit {
		return nil
	}
	now, err := loadFitting(ctx, w.opts.Format, w.opts.Table, w.opts.Settle)
	if err != nil {
		return err
	}
	w.table, w.since = now, 0
	if err := now.fits(w.all); err != nil {
		return err
	}
	for _, f := range w.open {
		if err := now.takes(f.meta); err != nil {
			return err
		}
	}
	for _, f := range w.done {
		if err := now.takes(f.Meta); err != nil {
			return err
		}
	}
	return nil
}

// Write writes rows. They are in memory or in files that are not committed until [Writer.Commit].
// After an error the Writer is useless: begin again from the last cursor.
func (w *Writer[T]) Write(ctx context.Context, rows []T) error {
	if w.err != nil {
		return w.err
	}
	w.err = w.write(ctx, rows)
	return w.err
}

func (w *Writer[T]) write(ctx context.Context, rows []T) error {
	if w.opts.Partition == nil {
		return w.to(ctx, nil, rows)
	}
	for len(rows) > 0 {
		meta := w.opts.Partition(&rows[0])
		n := 1
		for n < len(rows) && maps.Equal(meta, w.opts.Partition(&rows[n])) {
			n++
		}
		if err := w.to(ctx, meta, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// to writes rows of one partition.
func (w *Writer[T]) to(ctx context.Context, meta map[string]string, rows []T) error {
	if len(rows) == 0 {
		return nil // not even a file without rows
	}
	f, err := w.fileOf(ctx, meta)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		// So few at a time that a file does not become much too large.
		n := min(len(rows), 4096)
		if _, err := f.rows.Write(rows[:n]); err != nil {
			return fmt.Errorf("delta: %s: %w", f.file.Key(), err)
		}
		f.n += uint64(n)
		if rows = rows[n:]; f.out.n >= w.opts.FileSize {
			if err := w.finish(f); err != nil {
				return err
			}
			if len(rows) > 0 {
				return w.to(ctx, meta, rows)
			}
		}
	}
	return nil
}

func partitionKey(meta map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		fmt.Fprintf(&b, "%q=%q,", name, meta[name])
	}
	return b.String()
}

func (w *Writer[T]) fileOf(ctx context.Context, meta map[string]string) (*openFile[T], error) {
	key := partitionKey(meta)
	if f := w.open[key]; f != nil {
		return f, nil
	}
	if w.table != nil {
		if err := w.table.takes(meta); err != nil {
			return nil, err
		}
	}
	if len(w.open) >= maxOpen {
		// The largest makes room for the others.
		var most *openFile[T]
		for _, f := range w.open {
			if most == nil || f.n > most.n {
				most = f
			}
		}
		if err := w.finish(most); err != nil {
			return nil, err
		}
	}
	file, err := w.log.CreateFile(ctx, ".parquet", w.opts.FileSize)
	if err != nil {
		return nil, err
	}
	out := &counter{to: file}
	f := &openFile[T]{file: file, out: out, rows: parquet.NewGenericWriter[T](out, w.config...), meta: maps.Clone(meta)}
	w.open[key] = f
	return f, nil
}

// finish completes a file.
func (w *Writer[T]) finish(f *openFile[T]) error {
	delete(w.open, partitionKey(f.meta))
	err := f.rows.Close()
	if err != nil {
		f.file.Abort()
		return fmt.Errorf("delta: %s: %w", f.file.Key(), err)
	}
	if err := f.file.Close(); err != nil {
		return err
	}
	file := f.file.File()
	file.Records, file.Meta = f.n, f.meta
	w.done = append(w.done, file)
	return nil
}

// Commit completes the files and commits them, with a cursor if one is given. All rows since the
// last Commit are in the table then, or none. Without rows it commits the cursor alone, which
// makes no version of the Delta table. Without rows and cursor it does nothing.
//
// Errors: those of writer.CommitFiles and writer.Append. With WriterOptions.Table [ErrSchema] too, if the
// table has come or changed meanwhile, and those of loading it. After an error the Writer is useless.
func (w *Writer[T]) Commit(ctx context.Context, opts ...writer.AppendOption) error {
	files, err := w.Finish(ctx)
	switch {
	case err != nil:
		return err
	case len(files) > 0:
		w.err = w.log.CommitFiles(ctx, manifest.Edit{Add: files}, opts...)
	case len(opts) > 0:
		// What was read may have no rows: a transaction that was aborted, messages that a
		// filter leaves out. Without this commit the next owner would read it again, and
		// would find it missing if the source has deleted it meanwhile.
		_, w.err = w.log.Append(ctx, nil, opts...)
	}
	return w.err
}

// Finish completes the files and returns them, for an edit that does more than [Writer.Commit]:
// that removes other files too, for example. The caller commits them in the same epoch. Errors: those
// of [Writer.Commit] but for the commit itself. After an error the Writer is useless.
func (w *Writer[T]) Finish(ctx context.Context) ([]manifest.File, error) {
	if w.err == nil && len(w.open)+len(w.done) > 0 {
		w.err = w.fit(ctx)
	}
	for _, key := range slices.Sorted(maps.Keys(w.open)) {
		if w.err != nil {
			break
		}
		w.err = w.finish(w.open[key])
	}
	if w.err != nil {
		return nil, w.err
	}
	files := w.done
	w.done = nil
	return files, nil
}

// Pending is how many rows are not committed.
func (w *Writer[T]) Pending() uint64 {
	var n uint64
	for _, f := range w.open {
		n += f.n
	}
	for _, f := range w.done {
		n += f.Records
	}
	return n
}

// Close aborts the files that are not committed. It may be called twice.
func (w *Writer[T]) Close() {
	for _, f := range w.open {
		f.file.Abort()
	}
	clear(w.open)
	w.err = cmp.Or(w.err, errors.New("delta: the Writer is closed"))
}
