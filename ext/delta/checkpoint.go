package delta

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"
)

// A checkpoint is a Parquet file with one action in each row.

type row struct {
	Txn      *rowTxn    `parquet:"txn,optional"`
	Add      *rowAdd    `parquet:"add,optional"`
	Remove   *rowRemove `parquet:"remove,optional"`
	Meta     *rowMeta   `parquet:"metaData,optional"`
	Protocol *rowProto  `parquet:"protocol,optional"`
	Domain   *rowDomain `parquet:"domainMetadata,optional"`
}

type rowTxn struct {
	App     string `parquet:"appId"`
	Version int64  `parquet:"version"`
	Updated *int64 `parquet:"lastUpdated,optional"`
}

type rowAdd struct {
	Path       string             `parquet:"path"`
	Partition  map[string]*string `parquet:"partitionValues" parquet-value:",optional"`
	Size       int64              `parquet:"size"`
	Modified   int64              `parquet:"modificationTime"`
	DataChange bool               `parquet:"dataChange"`
	Stats      *string            `parquet:"stats,optional"`
	Tags       map[string]*string `parquet:"tags,optional" parquet-value:",optional"`
}

type rowRemove struct {
	Path       string             `parquet:"path"`
	Deleted    *int64             `parquet:"deletionTimestamp,optional"`
	DataChange bool               `parquet:"dataChange"`
	Extended   *bool              `parquet:"extendedFileMetadata,optional"`
	Partition  map[string]*string `parquet:"partitionValues,optional" parquet-value:",optional"`
	Size       *int64             `parquet:"size,optional"`
}

type rowMeta struct {
	ID          string            `parquet:"id"`
	Name        *string           `parquet:"name,optional"`
	Description *string           `parquet:"description,optional"`
	Format      rowFormat         `parquet:"format"`
	Schema      string            `parquet:"schemaString"`
	Partition   []string          `parquet:"partitionColumns,list"`
	Config      map[string]string `parquet:"configuration"`
	CreatedTime *int64            `parquet:"createdTime,optional"`
}

type rowFormat struct {
	Provider string            `parquet:"provider"`
	Options  map[string]string `parquet:"options"`
}

type rowProto struct {
	MinReader      int32    `parquet:"minReaderVersion"`
	MinWriter      int32    `parquet:"minWriterVersion"`
	WriterFeatures []string `parquet:"writerFeatures,list,optional"`
}

type rowDomain struct {
	Domain  string `parquet:"domain"`
	Config  string `parquet:"configuration"`
	Removed bool   `parquet:"removed"`
}

// encodeCheckpoint returns the checkpoint of a state. Removed files are in it if they were
// removed after a moment, in milliseconds of Unix time.
func encodeCheckpoint(s *state, since int64) ([]byte, error) {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.Compression(&parquet.Snappy), parquet.CreatedBy("fencepost", "1", ""),
		parquet.KeyValueMetadata("fencepost.nonce", uuid.NewString()))
	rows := make([]row, 0, 1024)
	var failed error
	put := func(r row) {
		if rows = append(rows, r); len(rows) == cap(rows) && failed == nil {
			_, failed = w.Write(rows)
			rows = rows[:0]
		}
	}
	put(row{Protocol: &rowProto{MinReader: int32(s.protocol.MinReader), MinWriter: int32(s.protocol.MinWriter), WriterFeatures: s.protocol.WriterFeatures}})
	put(row{Meta: &rowMeta{
		ID: s.meta.ID, Name: optional(s.meta.Name), Format: rowFormat(s.meta.Format), Schema: s.meta.Schema, Partition: s.meta.Partition,
		Config: s.meta.Config, CreatedTime: optional(s.meta.CreatedTime),
	}})
	for _, app := range slices.Sorted(maps.Keys(s.txns)) {
		put(row{Txn: &rowTxn{App: app, Version: int64(s.txns[app])}})
	}
	for _, name := range slices.Sorted(maps.Keys(s.domains)) {
		put(row{Domain: &rowDomain{Domain: name, Config: s.domains[name]}})
	}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[path]
		put(row{Add: &rowAdd{Path: path, Partition: cloneValues(f.partition), Size: f.size, Modified: f.modified, Stats: optional(f.stats), Tags: map[string]*string{logTag: &f.log}}})
	}
	for _, path := range slices.Sorted(maps.Keys(s.gone)) {
		if r := s.gone[path]; r.Deleted > since {
			put(row{Remove: &rowRemove{Path: path, Deleted: &r.Deleted, DataChange: r.DataChange, Extended: optional(r.Extended), Partition: cloneValues(r.Partition), Size: &r.Size}})
		}
	}
	if failed == nil {
		_, failed = w.Write(rows)
	}
	if err := errors.Join(failed, w.Close()); err != nil {
		return nil, fmt.Errorf("delta: the checkpoint of version %d: %w", s.version, err)
	}
	// guard:delta-checkpoint-read. A publisher reads a checkpoint before it writes it: one that takes
	// more than a checkpoint may take is not written, and log cleanup keeps what is before it.
	//
	//mutant:replace readable(b.Bytes()) => error(nil)
	if err := readable(b.Bytes()); err != nil {
		return nil, fmt.Errorf("delta: the checkpoint of version %d could not be read again: %w; compact the table's files, or publish it with fewer partition columns to a new place", s.version, err)
	}
	return b.Bytes(), nil
}

// readable reads a checkpoint, and keeps nothing.
func readable(body []byte) error { return eachRow(body, func(*row) error { return nil }) }

func optional[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

func given[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// decodeCheckpoint reads the checkpoint of a version, also one of another program if it has
// the same columns. It does not check that the state is right. It takes memory in proportion to body,
// whatever that claims.
func decodeCheckpoint(version int64, body []byte) (*state, error) {
	s := newState()
	s.version = version
	if err := s.readRows(body); err != nil {
		return nil, fmt.Errorf("%w: %s cannot be read: %w", ErrDamaged, checkpointKey(version), err)
	}
	s.sum = s.total()
	return s, nil
}

func (s *state) readRows(body []byte) error {
	if err := eachRow(body, s.row); err != nil {
		return err
	}
	if s.meta == nil || s.protocol == nil {
		return errors.New("it has no metaData or no protocol")
	}
	return nil
}

// eachRow calls f for each row of a checkpoint.
func eachRow(body []byte, f func(*row) error) error {
	file, err := openParquet(body)
	if err != nil {
		return err
	}
	rows := &rowReader{file: file, found: map[string][]*fileColumn{}}
	for range file.rows {
		r := rows.next()
		if rows.err != nil {
			return rows.err
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	for _, columns := range rows.found {
		for _, c := range columns {
			if more, err := c.peek(); more || err != nil {
				return c.wrong(errors.Join(errors.New("it has more values than rows"), err))
			}
		}
	}
	return nil
}

func (s *state) row(r *row) error {
	switch {
	case r.Add != nil:
		a := &add{Path: r.Add.Path, Partition: r.Add.Partition, Size: r.Add.Size, Modified: r.Add.Modified, Stats: given(r.Add.Stats), Tags: map[string]string{}}
		for k, v := range r.Add.Tags {
			a.Tags[k] = given(v)
		}
		f, err := a.file()
		if err != nil {
			return err
		}
		if s.files[f.path] != nil {
			return fmt.Errorf("file %s is there twice", f.path)
		}
		s.files[f.path] = f
	case r.Remove != nil:
		s.gone[r.Remove.Path] = &remove{
			Path: r.Remove.Path, Deleted: given(r.Remove.Deleted), DataChange: r.Remove.DataChange, Extended: given(r.Remove.Extended),
			Partition: r.Remove.Partition, Size: given(r.Remove.Size),
		}
	case r.Txn != nil:
		s.txns[r.Txn.App] = uint64(r.Txn.Version)
	case r.Domain != nil && !r.Domain.Removed:
		s.domains[r.Domain.Domain] = r.Domain.Config
	case r.Meta != nil:
		m := r.Meta
		s.meta = &metaData{
			ID: m.ID, Name: given(m.Name), Format: provider(m.Format), Schema: m.Schema, Partition: m.Partition, Config: m.Config,
			CreatedTime: given(m.CreatedTime),
		}
	case r.Protocol != nil:
		p := r.Protocol
		s.protocol = &protocol{MinReader: int(p.MinReader), MinWriter: int(p.MinWriter), WriterFeatures: p.WriterFeatures}
	}
	return nil
}
