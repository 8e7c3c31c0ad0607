package delta

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The schema of a table as JSON. It is written and read in one pass, however deep it is.

// String returns the schema as JSON, which is that of Delta's logs.
func (s *Schema) String() string { return string(s.append(nil)) }

func (s *Schema) append(b []byte) []byte {
	b = append(b, `{"type":"struct","fields":[`...)
	for i, f := range s.fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"name":`...), f.Name)
		b = f.Type.append(append(b, `,"type":`...))
		b = append(b, `,"nullable":true,"metadata":{}}`...)
	}
	return append(b, "]}"...)
}

// String returns the type as Delta's logs have it. A primitive one is only its name. It is for errors, so
// a long one is cut.
func (d DataType) String() string {
	s := strings.Trim(string(d.append(nil)), `"`)
	if len(s) > 1<<10 {
		s = s[:1<<10] + "…"
	}
	return s
}

func (d DataType) append(b []byte) []byte {
	switch {
	case d.Group != nil:
		return d.Group.append(b)
	case d.Array != nil:
		b = d.Array.append(append(b, `{"type":"array","elementType":`...))
		return append(b, `,"containsNull":true}`...)
	case d.Map != nil:
		b = d.Map.Key.append(append(b, `{"type":"map","keyType":`...))
		b = d.Map.Value.append(append(b, `,"valueType":`...))
		return append(b, `,"valueContainsNull":true}`...)
	}
	return appendText(b, d.Name)
}

func appendText(b []byte, s string) []byte {
	text, _ := json.Marshal(s) //nolint:errchkjson // a text always has JSON
	return append(b, text...)
}

// ParseSchema reads what [Schema.String] returns.
func ParseSchema(text string) (*Schema, error) {
	r := &schemaReader{json.NewDecoder(strings.NewReader(text)), 0}
	all, err := r.of()
	if err == nil && all.Group == nil {
		err = errors.New("it is no struct")
	}
	if err == nil && r.dec.InputOffset() != int64(len(text)) {
		err = errors.New("something follows it")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the schema of the table cannot be read: %w; restore the table from a backup, or publish to a new place", ErrDamaged, err)
	}
	return all.Group, nil
}

type schemaReader struct {
	dec   *json.Decoder
	depth int
}

// of reads a type.
func (r *schemaReader) of() (DataType, error) {
	at, err := r.dec.Token()
	if name, ok := at.(string); ok && name != "" && err == nil {
		return DataType{Name: name}, nil
	}
	if err != nil || at != json.Delim('{') {
		return DataType{}, errors.Join(fmt.Errorf("%v is no type", at), err)
	}
	if r.depth++; r.depth > 2*maxLevels {
		return DataType{}, fmt.Errorf("it has more than %d levels", 2*maxLevels)
	}
	defer func() { r.depth-- }()
	var name string
	var s *Schema
	var element, key, value DataType
	err = r.members(func(member string) (err error) {
		switch member {
		case "type":
			err = r.dec.Decode(&name)
		case "fields":
			s, err = r.group()
		case "elementType":
			element, err = r.of()
		case "keyType":
			key, err = r.of()
		case "valueType":
			value, err = r.of()
		default:
			err = r.dec.Decode(&json.RawMessage{})
		}
		return err
	})
	var none DataType
	switch {
	case err != nil:
		return none, err
	case name == "struct" && s != nil:
		return DataType{Group: s}, nil
	case name == "array" && element != none:
		return DataType{Array: &element}, nil
	case name == "map" && key != none && value != none:
		return DataType{Map: &Mapping{key, value}}, nil
	}
	return none, fmt.Errorf("there is no type %.100q, or it lacks something", name)
}

// members reads the rest of an object. Member reads the value of each member.
func (r *schemaReader) members(member func(string) error) error {
	for r.dec.More() {
		at, err := r.dec.Token()
		name, _ := at.(string)
		if err == nil {
			err = member(name)
		}
		if err != nil {
			return err
		}
	}
	_, err := r.dec.Token() // the end
	return err
}

func (r *schemaReader) group() (*Schema, error) {
	s := newSchema()
	at, err := r.dec.Token()
	if err != nil || at != json.Delim('[') {
		return nil, errors.Join(fmt.Errorf("%v is no list of fields", at), err)
	}
	for r.dec.More() {
		if at, err := r.dec.Token(); err != nil || at != json.Delim('{') {
			return nil, errors.Join(fmt.Errorf("%v is no field", at), err)
		}
		var f Field
		err := r.members(func(member string) (err error) {
			switch member {
			case "name":
				err = r.dec.Decode(&f.Name)
			case "type":
				f.Type, err = r.of()
			default:
				err = r.dec.Decode(&json.RawMessage{})
			}
			return err
		})
		if err == nil && (f.Name == "" || f.Type == DataType{}) {
			err = errors.New("a field lacks its name or its type")
		}
		if err != nil {
			return nil, err
		}
		s.add(f)
	}
	_, err = r.dec.Token() // the end
	return s, err
}
