package delta

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// schema is Delta's schema of a table, or of a part of one. All columns may be null.
type schema struct {
	Type   string  `json:"type"` // "struct"
	Fields []field `json:"fields"`
}

type field struct {
	Name     string            `json:"name"`
	Type     dataType          `json:"type"`
	Nullable bool              `json:"nullable"`
	Metadata map[string]string `json:"metadata"`
}

// dataType is the name of a primitive type, or one of the others.
type dataType struct {
	Name  string
	Group *schema
	Array *array
	Map   *mapping
}

type array struct {
	Type         string   `json:"type"` // "array"
	Element      dataType `json:"elementType"`
	ContainsNull bool     `json:"containsNull"`
}

type mapping struct {
	Type         string   `json:"type"` // "map"
	Key          dataType `json:"keyType"`
	Value        dataType `json:"valueType"`
	ContainsNull bool     `json:"valueContainsNull"`
}

// MarshalJSON writes the type as Delta's schemas have it.
func (d dataType) MarshalJSON() ([]byte, error) {
	switch {
	case d.Group != nil:
		return json.Marshal(d.Group)
	case d.Array != nil:
		return json.Marshal(d.Array)
	case d.Map != nil:
		return json.Marshal(d.Map)
	}
	return json.Marshal(d.Name)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (d *dataType) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &d.Name) == nil {
		return nil
	}
	var of struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &of); err != nil {
		return err
	}
	switch of.Type {
	case "struct":
		d.Group = &schema{}
		return json.Unmarshal(b, d.Group)
	case "array":
		d.Array = &array{}
		return json.Unmarshal(b, d.Array)
	case "map":
		d.Map = &mapping{}
		return json.Unmarshal(b, d.Map)
	}
	return fmt.Errorf("there is no type %q", of.Type)
}

func (d dataType) String() string {
	b, err := json.Marshal(d)
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(b), `"`)
}

func newSchema(fields ...field) *schema { return &schema{Type: "struct", Fields: fields} }

func column(name string, of dataType) field {
	return field{Name: name, Type: of, Nullable: true, Metadata: map[string]string{}}
}

func decodeSchema(text string) (*schema, error) {
	s := &schema{}
	err := shallow(text)
	if err == nil {
		err = json.Unmarshal([]byte(text), s)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the schema of the table cannot be read: %w; restore the table from a backup, or publish to a new place", ErrDamaged, err)
	}
	return s, nil
}

// shallow refuses JSON with more levels than the schema of a file can have. Each level is read again for
// each one above it.
func shallow(text string) error {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > 4*maxLevels {
				return fmt.Errorf("it has more than %d levels", 4*maxLevels)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func (s *schema) String() string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// field returns a field by its name. Delta's names differ not only in case.
func (s *schema) field(name string) *field {
	for i := range s.Fields {
		if strings.EqualFold(s.Fields[i].Name, name) {
			return &s.Fields[i]
		}
	}
	return nil
}

// merge returns a schema that has the columns of both. It returns s itself if that has all.
func (s *schema) merge(o *schema) (*schema, error) { return s.mergeAt("", o) }

func (s *schema) mergeAt(path string, o *schema) (*schema, error) {
	merged := s
	edit := func() *schema {
		if merged == s {
			merged = newSchema(slices.Clone(s.Fields)...)
		}
		return merged
	}
	for _, f := range o.Fields {
		have := s.field(f.Name)
		switch {
		case have == nil:
			edit().Fields = append(edit().Fields, f)
			continue
		case have.Name != f.Name:
			return nil, fmt.Errorf("%w: the column %s%s is called %s%s in the table, and Delta knows no case: call it %s%s", ErrSchema, path, f.Name, path, have.Name, path, have.Name)
		}
		both, err := have.Type.merge(path+f.Name, f.Type)
		if err != nil {
			return nil, err
		}
		if both.String() != have.Type.String() {
			edit().field(f.Name).Type = both
		}
	}
	return merged, nil
}

func (d dataType) merge(path string, o dataType) (dataType, error) {
	var err error
	switch {
	case d.Group != nil && o.Group != nil:
		var g *schema
		g, err = d.Group.mergeAt(path+".", o.Group)
		return dataType{Group: g}, err
	case d.Array != nil && o.Array != nil:
		a := *d.Array
		a.Element, err = d.Array.Element.merge(path+".element", o.Array.Element)
		return dataType{Array: &a}, err
	case d.Map != nil && o.Map != nil:
		m := *d.Map
		if m.Key, err = d.Map.Key.merge(path+".key", o.Map.Key); err == nil {
			m.Value, err = d.Map.Value.merge(path+".value", o.Map.Value)
		}
		return dataType{Map: &m}, err
	case d.String() == o.String():
		return d, nil
	}
	return d, fmt.Errorf("%w: the column %s is %s, and %s in the table; a column keeps its type: write another column", ErrSchema, path, o, d)
}

// badNames are characters that Parquet readers do not take in the name of a column.
var badNames = regexp.MustCompile(`[ ,;{}()\n\t=]`)

// schemaOf returns Delta's schema of a Parquet file.
func schemaOf(root parquet.Node) (*schema, error) { return groupOf("", root) }

func groupOf(path string, n parquet.Node) (*schema, error) {
	s := newSchema()
	for _, f := range n.Fields() {
		if badNames.MatchString(f.Name()) || f.Name() == "" {
			return nil, fmt.Errorf("%w: the column %q has a name that Delta's readers do not take: use neither spaces nor any of ,;{}()=", ErrSchema, path+f.Name())
		}
		if s.field(f.Name()) != nil {
			return nil, fmt.Errorf("%w: two columns are called %s%s, and Delta knows no case", ErrSchema, path, f.Name())
		}
		t, err := typeOf(path+f.Name(), f)
		if err != nil {
			return nil, err
		}
		s.Fields = append(s.Fields, column(f.Name(), t))
	}
	if len(s.Fields) == 0 {
		return nil, fmt.Errorf("%w: %q has no columns", ErrSchema, path)
	}
	return s, nil
}

// typeOf returns Delta's type of a column.
func typeOf(path string, n parquet.Node) (dataType, error) {
	has := logical(n.Type())
	if n.Repeated() {
		return dataType{}, fmt.Errorf("%w: the column %s is repeated without being a LIST; in parquet-go give its field the tag list", ErrSchema, path)
	}
	if !n.Leaf() {
		switch has.(type) {
		case *format.ListType:
			return listOf(path, n)
		case *format.MapType:
			return mapOf(path, n)
		}
		g, err := groupOf(path+".", n)
		return dataType{Group: g}, err
	}
	name, why := primitive(n.Type().Kind(), has)
	if name == "" {
		return dataType{}, fmt.Errorf("%w: Delta has no type for the column %s, which is %s: %s", ErrSchema, path, n.Type(), why)
	}
	return dataType{Name: name}, nil
}

func listOf(path string, n parquet.Node) (dataType, error) {
	if f := n.Fields(); len(f) == 1 && f[0].Repeated() && !f[0].Leaf() && len(f[0].Fields()) == 1 {
		element, err := typeOf(path+".element", f[0].Fields()[0])
		return dataType{Array: &array{Type: "array", Element: element, ContainsNull: true}}, err
	}
	return dataType{}, fmt.Errorf("%w: the LIST %s has not the three levels that Parquet's format prescribes", ErrSchema, path)
}

func mapOf(path string, n parquet.Node) (dataType, error) {
	if f := n.Fields(); len(f) == 1 && f[0].Repeated() && !f[0].Leaf() && len(f[0].Fields()) == 2 {
		key, err := typeOf(path+".key", f[0].Fields()[0])
		if err != nil {
			return dataType{}, err
		}
		value, err := typeOf(path+".value", f[0].Fields()[1])
		return dataType{Map: &mapping{Type: "map", Key: key, Value: value, ContainsNull: true}}, err
	}
	return dataType{}, fmt.Errorf("%w: the MAP %s has not the levels that Parquet's format prescribes", ErrSchema, path)
}

// logical returns what a column's values mean, or nil.
func logical(t parquet.Type) format.LogicalTypeValue {
	if l := t.LogicalType(); l != nil {
		return l.Value
	}
	return nil
}

// primitive returns the name of Delta's type, or what to do if there is none.
func primitive(k parquet.Kind, meaning format.LogicalTypeValue) (name, why string) {
	if d, ok := meaning.(*format.DecimalType); ok {
		if d.Precision > 38 || d.Scale < 0 || d.Scale > d.Precision {
			return "", "a decimal has at most 38 digits, and no more after the point than in all"
		}
		return fmt.Sprintf("decimal(%d,%d)", d.Precision, d.Scale), ""
	}
	switch k {
	case parquet.Boolean:
		return "boolean", ""
	case parquet.Float:
		return "float", ""
	case parquet.Double:
		return "double", ""
	case parquet.Int32, parquet.Int64:
		return integer(k, meaning)
	case parquet.Int96:
		return "", "write times as 64 bits of microseconds"
	case parquet.ByteArray:
		switch meaning.(type) {
		case nil:
			return "binary", ""
		case *format.StringType, *format.EnumType, *format.JsonType:
			return "string", ""
		}
	}
	return "", "write it as a string or as a byte array"
}

func integer(k parquet.Kind, meaning format.LogicalTypeValue) (name, why string) {
	switch m := meaning.(type) {
	case nil:
		if k == parquet.Int32 {
			return "integer", ""
		}
		return "long", ""
	case *format.DateType:
		return "date", ""
	case *format.TimestampType:
		if _, micros := m.Unit.Value.(*format.MicroSeconds); !micros {
			return "", "write times in microseconds; in parquet-go with the tag timestamp(microsecond)"
		}
		if !m.IsAdjustedToUTC {
			return "", "write times in UTC, with isAdjustedToUTC"
		}
		return "timestamp", ""
	case *format.IntType:
		if !m.IsSigned {
			return "", "unsigned integers are not read right by all engines: use a signed one with more bits"
		}
		return map[int8]string{8: "byte", 16: "short", 32: "integer", 64: "long"}[m.BitWidth], ""
	}
	return "", "use an integer, or a timestamp in microseconds"
}

// Column is a column by which the files of a table are partitioned.
type Column struct {
	// Name is the column's, and that of the entry of manifest.File.Meta with its value.
	// A file without that entry has null.
	Name string
	// Type is one of Delta's primitive types; string if it is empty.
	Type string
}

var primitives = regexp.MustCompile(`^(string|long|integer|short|byte|float|double|boolean|date|timestamp|decimal\(\d+,\d+\))$`)

func (c Column) validate() error {
	if c.Name == "" || badNames.MatchString(c.Name) {
		return fmt.Errorf("%w: a column cannot be called %q", ErrOptions, c.Name)
	}
	if c.Type != "" && !primitives.MatchString(c.Type) {
		return fmt.Errorf("%w: column %s: a partition cannot be of the type %q; use string, long, integer, date or timestamp", ErrOptions, c.Name, c.Type)
	}
	return nil
}

// unpartitioned returns an error if a file has a column by which the table is partitioned.
func (s *schema) unpartitioned(by []string) error {
	for _, name := range by {
		if s.field(name) != nil {
			return fmt.Errorf("%w: the file has the column %s, by which the table is partitioned: leave it out, its value is in the file's Meta", ErrSchema, name)
		}
	}
	return nil
}
