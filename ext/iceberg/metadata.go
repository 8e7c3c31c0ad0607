package iceberg

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
)

// metadata is the document of a version.
type metadata struct {
	// Proof is the checksum of the document, in which it stands as zeros. It comes first: it makes the begin of each document unlike
	// all others.
	Proof         string            `json:"fencepost-proof"`
	Nonce         string            `json:"fencepost-nonce"`
	FormatVersion int               `json:"format-version"`
	UUID          string            `json:"table-uuid"`
	Location      string            `json:"location"`
	LastSequence  int64             `json:"last-sequence-number"`
	LastUpdated   int64             `json:"last-updated-ms"`
	LastColumn    int               `json:"last-column-id"`
	CurrentSchema int               `json:"current-schema-id"`
	Schemas       []icebergSchema   `json:"schemas"`
	DefaultSpec   int               `json:"default-spec-id"`
	Specs         []spec            `json:"partition-specs"`
	LastPartition int               `json:"last-partition-id"`
	DefaultOrder  int               `json:"default-sort-order-id"`
	Orders        []order           `json:"sort-orders"`
	Properties    map[string]string `json:"properties"`
	Current       int64             `json:"current-snapshot-id"`
	Refs          map[string]ref    `json:"refs"`
	Snapshots     []snapshot        `json:"snapshots"`
	SnapshotLog   []logged          `json:"snapshot-log"`
	MetadataLog   []earlier         `json:"metadata-log"`
	Statistics    []struct{}        `json:"statistics"`
}

type spec struct {
	ID     int         `json:"spec-id"`
	Fields []specField `json:"fields"`
}

type order struct {
	ID     int        `json:"order-id"`
	Fields []struct{} `json:"fields"`
}

type ref struct {
	Snapshot int64  `json:"snapshot-id"`
	Type     string `json:"type"`
}

type snapshot struct {
	ID       int64             `json:"snapshot-id"`
	Parent   int64             `json:"parent-snapshot-id,omitempty"`
	Sequence int64             `json:"sequence-number"`
	At       int64             `json:"timestamp-ms"`
	List     string            `json:"manifest-list"`
	Summary  map[string]string `json:"summary"`
	Schema   int               `json:"schema-id"`
}

type logged struct {
	At       int64 `json:"timestamp-ms"`
	Snapshot int64 `json:"snapshot-id"`
}

type earlier struct {
	At   int64  `json:"timestamp-ms"`
	File string `json:"metadata-file"`
}

const (
	// maxSnapshots is how many snapshots a version lists at most, and maxEarlier how many versions before it.
	maxSnapshots = 1000
	maxEarlier   = 100
	// maxMetadata bounds a document, in bytes.
	maxMetadata = 64 << 20
	// maxSchemas is how many schemas a version lists at most.
	maxSchemas = 100
)

// The properties of the table.
const (
	nameProperty      = "fencepost.name"
	schemaProperty    = "fencepost.schema"
	retentionProperty = "fencepost.retention-seconds"
	logProperty       = "fencepost.log."
	mappingProperty   = "schema.name-mapping.default"
	// gcProperty tells engines to delete no files: they belong to logs.
	gcProperty = "gc.enabled"
)

// held is what the table says of a log.
type held struct {
	Edits uint64 `json:"edits"`
	delta.Hold
}

var noProof = strings.Repeat("0", 2*sha256.Size)

// encode returns the document with its proof.
func (m *metadata) encode() ([]byte, error) {
	m.Proof, m.Nonce = noProof, uuid.NewString()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("iceberg: %w", err)
	}
	body := b.Bytes()
	if len(body) > maxMetadata {
		return nil, fmt.Errorf("iceberg: the metadata of a version would have %d bytes; at most %d are possible: write fewer columns, or publish fewer logs in one table", len(body), maxMetadata)
	}
	sum := sha256.Sum256(body)
	m.Proof = hex.EncodeToString(sum[:])
	copy(body[len(proofBegin):], m.Proof)
	return body, nil
}

const proofBegin = `{"fencepost-proof":"`

// decodeMetadata reads a document.
func decodeMetadata(key string, body []byte) (*metadata, error) {
	// guard:iceberg-metadata-ours. A publisher uses the metadata of a version only if it has the checksum that its
	// writer has put there: a program that reads and writes it anew keeps the old one, or none.
	//
	//mutant:replace !ours(body) => !ours(body) && len(body) == 0
	if !ours(body) {
		var document map[string]json.RawMessage
		if err := json.Unmarshal(body, &document); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", delta.ErrDamaged, key, err)
		}
		return nil, fmt.Errorf("%w: %s was written, or written anew, by another program; let engines only read this table: delete that object if an older version is there, or publish to a new place", delta.ErrForeign, key)
	}
	m := &metadata{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", delta.ErrDamaged, key, err)
	}
	return m, nil
}

// ours reports whether a document has its own checksum.
func ours(body []byte) bool {
	end := len(proofBegin) + len(noProof)
	if len(body) < end || !bytes.HasPrefix(body, []byte(proofBegin)) {
		return false
	}
	h := sha256.New()
	h.Write(body[:len(proofBegin)])
	h.Write([]byte(noProof))
	h.Write(body[end:])
	return hex.EncodeToString(h.Sum(nil)) == string(body[len(proofBegin):end])
}

// schema returns the newest schema.
func (m *metadata) schema() *icebergSchema {
	i := slices.IndexFunc(m.Schemas, func(s icebergSchema) bool { return s.ID == m.CurrentSchema })
	if i < 0 {
		return nil
	}
	return &m.Schemas[i]
}

// snapshot returns that of an id, or nil.
func (m *metadata) snapshot(id int64) *snapshot {
	i := slices.IndexFunc(m.Snapshots, func(s snapshot) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &m.Snapshots[i]
}

// meta returns what the document says for a publisher, and what it holds.
func (m *metadata) meta() (*delta.Meta, map[fence.ID]held, error) {
	s, err := delta.ParseSchema(m.Properties[schemaProperty])
	if err != nil {
		return nil, nil, err
	}
	seconds, err := strconv.ParseInt(m.Properties[retentionProperty], 10, 64)
	if err != nil || m.schema() == nil || len(m.Specs) != 1 {
		return nil, nil, fmt.Errorf("%w: it lacks its schema, its partition spec, or the property %s", delta.ErrDamaged, retentionProperty)
	}
	t := &delta.Meta{ID: m.UUID, Name: m.Properties[nameProperty], Schema: s, Retention: time.Duration(seconds) * time.Second}
	for _, f := range m.Specs[0].Fields {
		t.Partition = append(t.Partition, f.Name)
	}
	holds := map[fence.ID]held{}
	for name, value := range m.Properties {
		text, ok := strings.CutPrefix(name, logProperty)
		if !ok {
			continue
		}
		var log fence.ID
		var h held
		if log.UnmarshalText([]byte(text)) != nil || json.Unmarshal([]byte(value), &h) != nil {
			return nil, nil, fmt.Errorf("%w: the property %s cannot be read", delta.ErrDamaged, name)
		}
		holds[log] = h
	}
	return t, holds, nil
}

// setMeta writes what a publisher says into the document.
func (m *metadata) setMeta(t *delta.Meta) error {
	var old []field
	id := 0
	if s := m.schema(); s != nil {
		old, id = s.Fields, s.ID+1
	}
	n := numbering{m.LastColumn}
	s := icebergSchema{Type: "struct", ID: id, Fields: n.fields(t.Schema, old)}
	m.LastColumn, m.CurrentSchema = n.last, id
	m.Schemas = append(slices.Clone(m.Schemas), s)
	if len(m.Schemas) > maxSchemas {
		// The schemas of the snapshots that are listed stay.
		used := map[int]bool{id: true}
		for _, s := range m.Snapshots {
			used[s.Schema] = true
		}
		m.Schemas = slices.DeleteFunc(m.Schemas, func(s icebergSchema) bool { return !used[s.ID] })
	}
	names, err := json.Marshal(mapping(s.Fields))
	if err != nil {
		return fmt.Errorf("iceberg: %w", err)
	}
	m.Properties[schemaProperty], m.Properties[mappingProperty] = t.Schema.String(), string(names)
	if m.FormatVersion != 0 {
		return nil
	}
	m.FormatVersion, m.UUID, m.Current = 2, t.ID, -1
	m.Specs, m.LastPartition = []spec{{Fields: []specField{}}}, 999
	for i, name := range t.Partition {
		f := find(s.Fields, []string{name})
		if f == nil {
			return fmt.Errorf("%w: there is no column %s, by which the table is partitioned", delta.ErrSchema, name)
		}
		m.LastPartition = 1000 + i
		m.Specs[0].Fields = append(m.Specs[0].Fields, specField{Source: f.ID, ID: m.LastPartition, Name: name, Transform: "identity"})
	}
	m.Orders = []order{{Fields: []struct{}{}}}
	m.Refs, m.Snapshots, m.SnapshotLog, m.MetadataLog, m.Statistics = map[string]ref{}, []snapshot{}, []logged{}, []earlier{}, []struct{}{}
	m.Properties[nameProperty], m.Properties[gcProperty] = t.Name, "false"
	m.Properties[retentionProperty] = strconv.FormatInt(int64(t.Retention/time.Second), 10)
	return nil
}

// codec makes that of the newest schema.
func (m *metadata) codec() (*codec, error) {
	s := m.schema()
	all := slices.Clone(m.Specs[0].Fields)
	for i := range all {
		f := find(s.Fields, []string{all[i].Name})
		if f == nil || f.ID != all[i].Source {
			return nil, fmt.Errorf("%w: there is no column %s, by which the table is partitioned", delta.ErrDamaged, all[i].Name)
		}
		all[i].of = f.Type.name
	}
	return newCodec(s, all)
}
