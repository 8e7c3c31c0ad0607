package delta

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// Schema is the schema of a table, or of a part of one. All columns may be null.
type Schema struct {
	fields []Field
	byName map[string]int // of each folded name
}

// Field is a column, or a part of one.
type Field struct {
	Name string
	Type DataType
}

// Fields returns the columns in order. Nobody changes them.
func (s *Schema) Fields() []Field { return s.fields }

// DataType is the name of a primitive type as Delta calls it, or one of the others.
type DataType struct {
	Name  string
	Group *Schema
	Array *DataType // of its elements
	Map   *Mapping
}

// Mapping is the type of a map.
type Mapping struct{ Key, Value DataType }

func newSchema(fields ...Field) *Schema {
	s := &Schema{byName: make(map[string]int, len(fields))}
	for _, f := range fields {
		s.add(f)
	}
	return s
}

// add adds a field after the others. The first one of a name counts.
func (s *Schema) add(f Field) {
	key := folded(f.Name)
	if _, ok := s.byName[key]; !ok {
		s.byName[key] = len(s.fields)
	}
	s.fields = append(s.fields, f)
}

func column(name string, of DataType) Field { return Field{name, of} }

// folded returns the same for names that differ only in case.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
			least = min(least, o)
		}
		return least
	}, name)
}

// Field returns the column of a name, or nil.
func (s *Schema) Field(name string) *Field { return s.field(name) }

// field returns a field by its name. Delta's names differ not only in case.
func (s *Schema) field(name string) *Field {
	if i, ok := s.byName[folded(name)]; ok {
		return &s.fields[i]
	}
	return nil
}

// maxSchema bounds the schema that the files of a table need, as JSON, in bytes. The columns by which a
// table is partitioned come to that.
const maxSchema = 2 << 20

// merge returns a schema that has the columns of both. It returns s itself if that has all.
//
// guard:delta-schema-fits. A file whose columns would make the schema of the table longer than a text
// of a checkpoint may be is not taken.
//
//mutant:replace n > maxSchema => n < 0
func (s *Schema) merge(o *Schema) (*Schema, error) {
	all, err := s.mergeAt("", o)
	if err != nil || all == s {
		return all, err
	}
	if n := len(all.String()); n > maxSchema {
		return nil, fmt.Errorf("%w: all columns together take %d bytes in the schema of the table, and at most %d are possible: write fewer columns, or shorter names", ErrSchema, n, maxSchema)
	}
	return all, nil
}

func (s *Schema) mergeAt(path string, o *Schema) (*Schema, error) {
	merged := s
	edit := func() *Schema {
		if merged == s {
			merged = &Schema{slices.Clone(s.fields), maps.Clone(s.byName)}
		}
		return merged
	}
	for _, f := range o.fields {
		have := s.field(f.Name)
		switch {
		case have == nil:
			edit().add(f)
			continue
		case have.Name != f.Name:
			return nil, fmt.Errorf("%w: the column %s%s is called %s%s in the table, and Delta knows no case: call it %s%s", ErrSchema, path, f.Name, path, have.Name, path, have.Name)
		}
		both, changed, err := have.Type.merge(path+f.Name, f.Type)
		if err != nil {
			return nil, err
		}
		if changed {
			edit().field(f.Name).Type = both
		}
	}
	return merged, nil
}

// merge returns a type that has the columns of both, and whether that is another type than d.
func (d DataType) merge(path string, o DataType) (all DataType, changed bool, err error) {
	switch {
	case d.Group != nil && o.Group != nil:
		g, err := d.Group.mergeAt(path+".", o.Group)
		return DataType{Group: g}, g != d.Group, err
	case d.Array != nil && o.Array != nil:
		e, changed, err := d.Array.merge(path+".element", *o.Array)
		return DataType{Array: &e}, changed, err
	case d.Map != nil && o.Map != nil:
		key, one, err := d.Map.Key.merge(path+".key", o.Map.Key)
		if err != nil {
			return d, false, err
		}
		value, two, err := d.Map.Value.merge(path+".value", o.Map.Value)
		return DataType{Map: &Mapping{key, value}}, one || two, err
	case d.Name != "" && d.Name == o.Name:
		return d, false, nil
	}
	return d, false, fmt.Errorf("%w: the column %s is %s, and %s in the table; a column keeps its type: write another column", ErrSchema, path, o, d)
}

// badNames are characters that Parquet readers do not take in the name of a column.
var badNames = regexp.MustCompile(`[ ,;{}()\n\t=]`)

// schemaOf returns Delta's schema of a Parquet file.
func schemaOf(root parquet.Node) (*Schema, error) { return groupOf("", root) }

func groupOf(path string, n parquet.Node) (*Schema, error) {
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
		s.add(column(f.Name(), t))
	}
	if len(s.fields) == 0 {
		return nil, fmt.Errorf("%w: %q has no columns", ErrSchema, path)
	}
	return s, nil
}

// typeOf returns Delta's type of a column.
func typeOf(path string, n parquet.Node) (DataType, error) {
	has := logical(n.Type())
	if n.Repeated() {
		return DataType{}, fmt.Errorf("%w: the column %s is repeated without being a LIST; in parquet-go give its field the tag list", ErrSchema, path)
	}
	if !n.Leaf() {
		switch has.(type) {
		case *format.ListType:
			return listOf(path, n)
		case *format.MapType:
			return mapOf(path, n)
		}
		g, err := groupOf(path+".", n)
		return DataType{Group: g}, err
	}
	name, why := primitive(n.Type().Kind(), has)
	if name == "" {
		return DataType{}, fmt.Errorf("%w: Delta has no type for the column %s, which is %s: %s", ErrSchema, path, n.Type(), why)
	}
	return DataType{Name: name}, nil
}

func listOf(path string, n parquet.Node) (DataType, error) {
	if f := n.Fields(); len(f) == 1 && f[0].Repeated() && !f[0].Leaf() && len(f[0].Fields()) == 1 {
		element, err := typeOf(path+".element", f[0].Fields()[0])
		return DataType{Array: &element}, err
	}
	return DataType{}, fmt.Errorf("%w: the LIST %s has not the three levels that Parquet's format prescribes", ErrSchema, path)
}

func mapOf(path string, n parquet.Node) (DataType, error) {
	if f := n.Fields(); len(f) == 1 && f[0].Repeated() && !f[0].Leaf() && len(f[0].Fields()) == 2 {
		key, err := typeOf(path+".key", f[0].Fields()[0])
		if err != nil {
			return DataType{}, err
		}
		value, err := typeOf(path+".value", f[0].Fields()[1])
		return DataType{Map: &Mapping{key, value}}, err
	}
	return DataType{}, fmt.Errorf("%w: the MAP %s has not the levels that Parquet's format prescribes", ErrSchema, path)
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
		if !isDecimal(int(d.Precision), int(d.Scale)) {
			return "", decimalWants
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
	if digits, scale, ok := decimalOf(c.Type); ok && !isDecimal(digits, scale) {
		return fmt.Errorf("%w: column %s: %s; %s", ErrOptions, c.Name, c.Type, decimalWants)
	}
	return nil
}

const decimalWants = "a decimal has 1 to 38 digits, and no more after the point than in all"

// isDecimal reports whether engines take a decimal of so many digits, with scale of them after the point.
//
// guard:delta-decimal-type. A table has no decimal column of a precision or scale that no engine takes.
//
//mutant:replace digits >= 1 && digits <= 38 => digits >= 0
func isDecimal(digits, scale int) bool {
	return digits >= 1 && digits <= 38 && scale >= 0 && scale <= digits
}

// decimalOf returns the digits of a type of Delta, and how many are after the point. It reports false for another type.
func decimalOf(typ string) (digits, scale int, ok bool) {
	n, _ := fmt.Sscanf(typ, "decimal(%d,%d)", &digits, &scale)
	return digits, scale, n == 2
}

// unpartitioned returns an error if a file has a column by which the table is partitioned.
func (s *Schema) unpartitioned(by []string) error {
	for _, name := range by {
		if s.field(name) != nil {
			return fmt.Errorf("%w: the file has the column %s, by which the table is partitioned: leave it out, its value is in the file's Meta", ErrSchema, name)
		}
	}
	return nil
}
