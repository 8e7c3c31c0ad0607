package iceberg

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
)

// field is a field of a schema.
type field struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	Required bool   `json:"required"`
	Type     typ    `json:"type"`
}

// typ is the name of a primitive type, or a struct, a list or a map.
type typ struct {
	name string
	of   *complexType
}

type complexType struct {
	Type string `json:"type"`
	// of a struct
	Fields *[]field `json:"fields,omitempty"`
	// of a list
	ElementID       int   `json:"element-id,omitempty"`
	ElementRequired *bool `json:"element-required,omitempty"`
	Element         *typ  `json:"element,omitempty"`
	// of a map
	KeyID         int   `json:"key-id,omitempty"`
	Key           *typ  `json:"key,omitempty"`
	ValueID       int   `json:"value-id,omitempty"`
	ValueRequired *bool `json:"value-required,omitempty"`
	Value         *typ  `json:"value,omitempty"`
}

// MarshalJSON writes the name, or the object.
func (t typ) MarshalJSON() ([]byte, error) {
	if t.of != nil {
		return json.Marshal(t.of)
	}
	return json.Marshal(t.name)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (t *typ) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &t.name)
	}
	t.of = &complexType{}
	return json.Unmarshal(b, t.of)
}

// icebergSchema is a schema of the table.
type icebergSchema struct {
	Type   string  `json:"type"`
	ID     int     `json:"schema-id"`
	Fields []field `json:"fields"`
}

// primitives are the names of types that differ.
var primitives = map[string]string{"integer": "int", "short": "int", "byte": "int", "timestamp": "timestamptz"}

func primitive(name string) string {
	if to := primitives[name]; to != "" {
		return to
	}
	return strings.ReplaceAll(name, ",", ", ") // decimal(9, 2)
}

// numbering gives ids to fields, the same to those that had one.
type numbering struct{ last int }

func (n *numbering) next() int { n.last++; return n.last }

// fields returns the fields of a schema. Old are those of the schema before.
func (n *numbering) fields(s *delta.Schema, old []field) []field {
	had := map[string]*field{}
	for i := range old {
		had[old[i].Name] = &old[i]
	}
	all := make([]field, 0, len(s.Fields()))
	for _, f := range s.Fields() {
		before, to := had[f.Name], field{Name: f.Name}
		var was *complexType
		if before != nil {
			to.ID, was = before.ID, before.Type.of
		} else {
			to.ID = n.next()
		}
		to.Type = n.typ(f.Type, was)
		all = append(all, to)
	}
	return all
}

func (n *numbering) typ(d delta.DataType, was *complexType) typ {
	if was == nil {
		was = &complexType{}
	}
	id := func(old int) int {
		if old != 0 {
			return old
		}
		return n.next()
	}
	inner := func(t *typ) *complexType {
		if t == nil {
			return nil
		}
		return t.of
	}
	optional := false
	switch {
	case d.Group != nil:
		var old []field
		if was.Fields != nil {
			old = *was.Fields
		}
		fields := n.fields(d.Group, old)
		return typ{of: &complexType{Type: "struct", Fields: &fields}}
	case d.Array != nil:
		c := &complexType{Type: "list", ElementID: id(was.ElementID), ElementRequired: &optional}
		e := n.typ(*d.Array, inner(was.Element))
		c.Element = &e
		return typ{of: c}
	case d.Map != nil:
		c := &complexType{Type: "map", KeyID: id(was.KeyID), ValueID: id(was.ValueID), ValueRequired: &optional}
		k, v := n.typ(d.Map.Key, inner(was.Key)), n.typ(d.Map.Value, inner(was.Value))
		c.Key, c.Value = &k, &v
		return typ{of: c}
	}
	return typ{name: primitive(d.Name)}
}

// mapped is a field of a name mapping: files without ids are read by these names.
type mapped struct {
	ID     int      `json:"field-id"`
	Names  []string `json:"names"`
	Fields []mapped `json:"fields,omitempty"`
}

func mapping(fields []field) []mapped {
	all := make([]mapped, 0, len(fields))
	for _, f := range fields {
		all = append(all, mapped{f.ID, []string{f.Name}, below(f.Type)})
	}
	return all
}

// What writers call the parts of lists and maps. Spark takes the name that the file has.
var (
	elementNames = []string{"element", "item", "array_element", "array"}
	keyNames     = []string{"key", "keys"}
	valueNames   = []string{"value", "values"}
)

func below(t typ) []mapped {
	switch c := t.of; {
	case c == nil:
		return nil
	case c.Fields != nil:
		return mapping(*c.Fields)
	case c.Element != nil:
		return []mapped{{c.ElementID, elementNames, below(*c.Element)}}
	default:
		return []mapped{{c.KeyID, keyNames, below(*c.Key)}, {c.ValueID, valueNames, below(*c.Value)}}
	}
}

// find returns the field at a path of structs, or nil.
func find(fields []field, path []string) *field {
	for i := range fields {
		f := &fields[i]
		if f.Name != path[0] {
			continue
		}
		if len(path) == 1 {
			return f
		}
		if f.Type.of != nil && f.Type.of.Fields != nil {
			return find(*f.Type.of.Fields, path[1:])
		}
	}
	return nil
}

// single is a bound as manifests have it.
func single(of string, bound any) []byte {
	switch v := bound.(type) {
	case string:
		return []byte(v)
	case int64:
		switch {
		case of == "int" || of == "date":
			return binary.LittleEndian.AppendUint32(nil, uint32(v))
		case strings.HasPrefix(of, "decimal("):
			return twos(big.NewInt(v))
		}
		return binary.LittleEndian.AppendUint64(nil, uint64(v))
	}
	return nil
}

// twos returns a number as its two's complement, in as few bytes as it takes, the highest first.
func twos(n *big.Int) []byte {
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	size := len(new(big.Int).Not(n).Bytes()) // one bit more is needed for the sign
	for {
		m := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), uint(8*max(size, 1))), n)
		if b := m.FillBytes(make([]byte, max(size, 1))); b[0]&0x80 != 0 {
			return b
		}
		size++
	}
}

// partitionValue returns a partition value as a manifest's Avro has it. The publisher has checked the text.
func partitionValue(of string, text *string) (any, error) {
	if text == nil {
		return nil, nil //nolint:nilnil // null is a value
	}
	v := *text
	switch {
	case of == "int":
		n, err := strconv.ParseInt(v, 10, 32)
		return int32(n), err
	case of == "long":
		return strconv.ParseInt(v, 10, 64)
	case of == "boolean":
		return v == "true", nil
	case of == "float":
		n, err := strconv.ParseFloat(v, 32)
		return float32(n), err
	case of == "double":
		return strconv.ParseFloat(v, 64)
	case of == "date":
		t, err := time.Parse(time.DateOnly, v)
		return int32(math.Floor(float64(t.Unix()) / 86400)), err
	case of == "timestamptz":
		layout := time.DateTime
		if len(v) == len(time.DateOnly) {
			layout = time.DateOnly
		}
		t, err := time.Parse(layout, strings.TrimSuffix(strings.Replace(v, "T", " ", 1), "Z"))
		return t.UnixMicro(), err
	case strings.HasPrefix(of, "decimal("):
		n, scale := decimalOf(of)
		whole, part, _ := strings.Cut(v, ".")
		part += strings.Repeat("0", scale-len(part))
		u, ok := new(big.Int).SetString(whole+part, 10)
		if !ok {
			return nil, fmt.Errorf("%q is no %s", v, of)
		}
		return pad(twos(u), fixedSize(n)), nil
	}
	return v, nil
}

// decimalOf returns the digits of a decimal type, and those after the point.
func decimalOf(of string) (digits, scale int) {
	_, _ = fmt.Sscanf(of, "decimal(%d, %d)", &digits, &scale)
	return digits, scale
}

// fixedSize is how many bytes a decimal of so many digits takes in Avro.
func fixedSize(digits int) int {
	return len(twos(new(big.Int).Sub(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil), big.NewInt(1))))
}

// pad extends a two's complement to some bytes.
func pad(b []byte, size int) []byte {
	fill := byte(0)
	if len(b) > 0 && b[0]&0x80 != 0 {
		fill = 0xff
	}
	for len(b) < size {
		b = append([]byte{fill}, b...)
	}
	return b
}
