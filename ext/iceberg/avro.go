package iceberg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

// Manifests and manifest lists are Avro files. Their schemas have the ids of Iceberg's format. Values are written and read
// by the same schemas without logical types: as the numbers and bytes that they are.

const (
	// maxBlock bounds a block of an Avro file, unpacked, in bytes.
	maxBlock = 16 << 20
	// maxAvro bounds a manifest or a list, in bytes.
	maxAvro = 256 << 20
)

// The states of an entry of a manifest.
const (
	existing int32 = iota
	added
	deleted
)

// entry is a file in a manifest.
type entry struct {
	Status   int32    `avro:"status"`
	Snapshot *int64   `avro:"snapshot_id"`
	Sequence *int64   `avro:"sequence_number"`
	FileSeq  *int64   `avro:"file_sequence_number"`
	File     dataFile `avro:"data_file"`
}

type dataFile struct {
	Content   int32          `avro:"content"`
	Path      string         `avro:"file_path"`
	Format    string         `avro:"file_format"`
	Partition map[string]any `avro:"partition"`
	Records   int64          `avro:"record_count"`
	Size      int64          `avro:"file_size_in_bytes"`
	Values    *[]count       `avro:"value_counts"`
	Nulls     *[]count       `avro:"null_value_counts"`
	Lower     *[]limit       `avro:"lower_bounds"`
	Upper     *[]limit       `avro:"upper_bounds"`
}

type count struct {
	Key   int32 `avro:"key"`
	Value int64 `avro:"value"`
}

type limit struct {
	Key   int32  `avro:"key"`
	Value []byte `avro:"value"`
}

// listed is a manifest in a manifest list.
type listed struct {
	Path         string `avro:"manifest_path"`
	Length       int64  `avro:"manifest_length"`
	Spec         int32  `avro:"partition_spec_id"`
	Content      int32  `avro:"content"`
	Sequence     int64  `avro:"sequence_number"`
	MinSequence  int64  `avro:"min_sequence_number"`
	Snapshot     int64  `avro:"added_snapshot_id"`
	Added        int32  `avro:"added_files_count"`
	Existing     int32  `avro:"existing_files_count"`
	Deleted      int32  `avro:"deleted_files_count"`
	AddedRows    int64  `avro:"added_rows_count"`
	ExistingRows int64  `avro:"existing_rows_count"`
	DeletedRows  int64  `avro:"deleted_rows_count"`
}

// listSchema is that of a manifest list.
const listSchema = `{"type":"record","name":"manifest_file","fields":[
{"name":"manifest_path","type":"string","field-id":500},
{"name":"manifest_length","type":"long","field-id":501},
{"name":"partition_spec_id","type":"int","field-id":502},
{"name":"content","type":"int","field-id":517},
{"name":"sequence_number","type":"long","field-id":515},
{"name":"min_sequence_number","type":"long","field-id":516},
{"name":"added_snapshot_id","type":"long","field-id":503},
{"name":"added_files_count","type":"int","field-id":504},
{"name":"existing_files_count","type":"int","field-id":505},
{"name":"deleted_files_count","type":"int","field-id":506},
{"name":"added_rows_count","type":"long","field-id":512},
{"name":"existing_rows_count","type":"long","field-id":513},
{"name":"deleted_rows_count","type":"long","field-id":514}]}`

// counts and limits are maps of Avro with keys that are numbers: lists of pairs.
func pairs(name, value string, id, key, val int) string {
	return fmt.Sprintf(`{"name":%q,"type":["null",{"type":"array","logicalType":"map","items":{"type":"record","name":"k%d_v%d","fields":[`+
		`{"name":"key","type":"int","field-id":%d},{"name":"value","type":%q,"field-id":%d}]}}],"default":null,"field-id":%d}`, name, key, val, key, value, val, id)
}

// codec writes and reads the manifests of a table.
type codec struct {
	header string // the schema as files have it
	plain  *avro.Schema
	spec   []specField
	meta   map[string][]byte
}

// specField is a column by which files are partitioned.
type specField struct {
	Source    int    `json:"source-id"`
	ID        int    `json:"field-id"`
	Name      string `json:"name"`
	Transform string `json:"transform"`
	of        string // the type
}

var logicalTypes = regexp.MustCompile(`,"logicalType":"[a-z-]+"(,"adjust-to-utc":true|,"precision":\d+,"scale":\d+)?`)

var plainList = avro.MustParse(listSchema)

// newCodec makes the codec of a table with a schema.
func newCodec(s *icebergSchema, spec []specField) (*codec, error) {
	var parts []string
	for i, f := range spec {
		var of string
		switch {
		case f.of == "date":
			of = `{"type":"int","logicalType":"date"}`
		case f.of == "timestamptz":
			of = `{"type":"long","logicalType":"timestamp-micros","adjust-to-utc":true}`
		case strings.HasPrefix(f.of, "decimal("):
			digits, scale := decimalOf(f.of)
			of = fmt.Sprintf(`{"type":"fixed","name":"decimal_%d","size":%d,"logicalType":"decimal","precision":%d,"scale":%d}`, i, fixedSize(digits), digits, scale)
		default:
			of = fmt.Sprintf("%q", f.of)
		}
		parts = append(parts, fmt.Sprintf(`{"name":%q,"type":["null",%s],"default":null,"field-id":%d}`, avroField(f.Name), of, f.ID))
	}
	header := `{"type":"record","name":"manifest_entry","fields":[
{"name":"status","type":"int","field-id":0},
{"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},
{"name":"sequence_number","type":["null","long"],"default":null,"field-id":3},
{"name":"file_sequence_number","type":["null","long"],"default":null,"field-id":4},
{"name":"data_file","type":{"type":"record","name":"r2","fields":[
{"name":"content","type":"int","field-id":134},
{"name":"file_path","type":"string","field-id":100},
{"name":"file_format","type":"string","field-id":101},
{"name":"partition","type":{"type":"record","name":"r102","fields":[` + strings.Join(parts, ",") + `]},"field-id":102},
{"name":"record_count","type":"long","field-id":103},
{"name":"file_size_in_bytes","type":"long","field-id":104},
` + strings.Join([]string{
		pairs("value_counts", "long", 109, 119, 120), pairs("null_value_counts", "long", 110, 121, 122),
		pairs("lower_bounds", "bytes", 125, 126, 127), pairs("upper_bounds", "bytes", 128, 129, 130),
	}, ",\n") + `]},"field-id":2}]}`
	plain, err := avro.Parse(logicalTypes.ReplaceAllString(header, ""))
	if err != nil {
		return nil, fmt.Errorf("iceberg: the Avro of manifests: %w", err)
	}
	schema, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("iceberg: %w", err)
	}
	fields, err := json.Marshal(append([]specField{}, spec...))
	if err != nil {
		return nil, fmt.Errorf("iceberg: %w", err)
	}
	return &codec{header: header, plain: plain, spec: spec, meta: map[string][]byte{
		"schema": schema, "schema-id": fmt.Append(nil, s.ID), "partition-spec": fields, "partition-spec-id": []byte("0"), "format-version": []byte("2"), "content": []byte("data"),
	}}, nil
}

// avroField is a name as Avro takes it.
func avroField(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || i > 0 && r >= '0' && r <= '9':
			b.WriteRune(r)
		case r >= '0' && r <= '9':
			b.WriteString("_" + string(r))
		default:
			fmt.Fprintf(&b, "_x%X", r)
		}
	}
	return b.String()
}

func (c *codec) manifest(all []entry) ([]byte, error) {
	return write(c.plain, c.header, c.meta, all)
}

func (c *codec) entries(body []byte) ([]entry, error) { return read[entry](c.plain, body) }

// encodeList returns the manifest list of a version.
func encodeList(all []listed, version, parent int64) ([]byte, error) {
	before := "null"
	if parent > 0 {
		before = fmt.Sprint(parent)
	}
	return write(plainList, listSchema, map[string][]byte{
		"snapshot-id": fmt.Append(nil, version), "parent-snapshot-id": []byte(before), "sequence-number": fmt.Append(nil, version), "format-version": []byte("2"),
	}, all)
}

func decodeList(body []byte) ([]listed, error) { return read[listed](plainList, body) }

func write[T any](plain *avro.Schema, header string, meta map[string][]byte, all []T) ([]byte, error) {
	var b bytes.Buffer
	w, err := ocf.NewWriter(&b, plain, ocf.WithSchema(header), ocf.WithMetadata(meta), ocf.WithCodec(ocf.DeflateCodec(1)), ocf.WithBlockBytes(1<<20))
	for i := range all {
		if err == nil {
			err = w.Encode(&all[i])
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil && b.Len() > maxAvro {
		err = fmt.Errorf("it has %d bytes, and at most %d are possible: compact the table's files first", b.Len(), maxAvro)
	}
	if err != nil {
		return nil, fmt.Errorf("iceberg: writing Avro: %w", err)
	}
	return b.Bytes(), nil
}

func read[T any](plain *avro.Schema, body []byte) (all []T, err error) {
	r, err := ocf.NewReader(bytes.NewReader(body), ocf.WithReaderSchema(plain), ocf.WithMaxBlockBytes(maxBlock), ocf.WithMaxDecompressedBlockBytes(maxBlock))
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	for {
		var v T
		if err := r.Decode(&v); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}
