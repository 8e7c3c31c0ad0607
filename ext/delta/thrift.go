package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A Parquet file describes itself in Thrift's compact protocol. Whoever wrote the file chose its
// lengths, so nothing here allocates what a length claims.

// The types of Thrift's compact protocol. A boolean field has one of the first two, and no bytes.
const (
	thriftTrue = iota + 1
	thriftFalse
	thriftI8
	thriftI16
	thriftI32
	thriftI64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStruct
)

const (
	// maxNesting bounds how deep structs and lists lie in each other. Parquet needs 7 levels.
	maxNesting = 24
	// maxElements and maxLevels bound the schema of a Parquet file: how many elements it has, and how deep
	// they lie in each other.
	maxElements = 10_000
	maxLevels   = 32
	// maxColumnName bounds the name of a column, in bytes.
	maxColumnName = 1 << 10
)

var errCut = errors.New("it ends too early")

// thrift is what is left to read.
type thrift struct {
	b     []byte
	depth int
	// afford is how many bytes a decoder may still allocate for what is read.
	afford int64
}

func (t *thrift) pay(bytes int64) error {
	if t.afford -= bytes; t.afford < 0 {
		return errors.New("it takes too much memory for its size")
	}
	return nil
}

func (t *thrift) cut(n int) ([]byte, error) {
	if n < 0 || n > len(t.b) {
		return nil, errCut
	}
	b := t.b[:n]
	t.b = t.b[n:]
	return b, nil
}

func (t *thrift) uvarint() (uint64, error) {
	v, n := binary.Uvarint(t.b)
	if n <= 0 {
		return 0, errCut
	}
	t.b = t.b[n:]
	return v, nil
}

// length reads how many elements or bytes follow. Each takes at least one byte.
func (t *thrift) length() (int, error) {
	v, err := t.uvarint()
	if err == nil && v > uint64(len(t.b)) {
		err = fmt.Errorf("it claims %d elements or bytes in %d bytes", v, len(t.b))
	}
	return int(v), err
}

// integer reads a field of the type that the format prescribes.
func (t *thrift) integer(typ, want byte) (int64, error) {
	if typ != want {
		return 0, fmt.Errorf("a field has the type %d instead of %d", typ, want)
	}
	v, n := binary.Varint(t.b)
	if n <= 0 {
		return 0, errCut
	}
	t.b = t.b[n:]
	if want == thriftI32 && (v < math.MinInt32 || v > math.MaxInt32) || want == thriftI16 && (v < math.MinInt16 || v > math.MaxInt16) {
		return 0, fmt.Errorf("the number %d is out of range", v)
	}
	return v, nil
}

// text reads a field of bytes, which stay where they are.
func (t *thrift) text(typ byte) ([]byte, error) {
	if typ != thriftBinary {
		return nil, fmt.Errorf("a field has the type %d instead of %d", typ, thriftBinary)
	}
	n, err := t.length()
	if err != nil {
		return nil, err
	}
	return t.cut(n)
}

// fields reads a struct. Field reads the value of each field, or skips it.
func (t *thrift) fields(field func(id int, typ byte) error) error {
	if t.depth++; t.depth > maxNesting {
		return fmt.Errorf("it has more than %d levels", maxNesting)
	}
	defer func() { t.depth-- }()
	for last := 0; ; {
		head, err := t.cut(1)
		if err != nil {
			return err
		}
		typ, id := head[0]&15, last+int(head[0]>>4)
		if head[0] == 0 {
			return nil
		}
		if id == last {
			long, err := t.integer(thriftI16, thriftI16)
			if err != nil {
				return err
			}
			id = int(long)
		}
		// Every writer has the fields in order. A field that comes twice would count once here, and twice
		// in the library's memory.
		if id <= last || id > math.MaxInt16 {
			return fmt.Errorf("field %d follows field %d", id, last)
		}
		last = id
		if err := field(id, typ); err != nil {
			return err
		}
	}
}

// each reads a list. One reads each element, for which a decoder allocates some bytes.
func (t *thrift) each(typ byte, bytes int64, one func(of byte) error) error {
	if typ != thriftList && typ != thriftSet {
		return fmt.Errorf("a field has the type %d instead of %d", typ, thriftList)
	}
	if t.depth++; t.depth > maxNesting {
		return fmt.Errorf("it has more than %d levels", maxNesting)
	}
	defer func() { t.depth-- }()
	head, err := t.cut(1)
	if err != nil {
		return err
	}
	n := int(head[0] >> 4)
	if n == 15 {
		if n, err = t.length(); err != nil {
			return err
		}
	}
	if err := t.pay(int64(n) * bytes); err != nil {
		return err
	}
	for range n {
		if err := one(head[0] & 15); err != nil {
			return err
		}
	}
	return nil
}

// structs reads a list of structs.
func (t *thrift) structs(typ byte, bytes int64, one func() error) error {
	return t.each(typ, bytes, func(of byte) error {
		if of != thriftStruct {
			return fmt.Errorf("a list has elements of the type %d instead of %d", of, thriftStruct)
		}
		return one()
	})
}

// What the library allocates at most for an element of a list that the format does not say to be large,
// and for a struct that is a field, in bytes.
const (
	anElement = 64
	aStruct   = 64
)

func (t *thrift) skip(typ byte) error {
	switch typ {
	case thriftTrue, thriftFalse:
		return nil
	case thriftI8:
		_, err := t.cut(1)
		return err
	case thriftI16, thriftI32, thriftI64:
		_, err := t.integer(typ, typ)
		return err
	case thriftDouble:
		_, err := t.cut(8)
		return err
	case thriftBinary:
		_, err := t.text(typ)
		return err
	case thriftList, thriftSet:
		return t.each(typ, anElement, t.skipElement)
	case thriftMap:
		return t.skipMap()
	case thriftStruct:
		if err := t.pay(aStruct); err != nil {
			return err
		}
		return t.fields(func(_ int, typ byte) error { return t.skip(typ) })
	}
	return fmt.Errorf("there is no type %d", typ)
}

// skipElement skips an element, of which a boolean takes a byte.
func (t *thrift) skipElement(typ byte) error {
	if typ == thriftTrue || typ == thriftFalse {
		typ = thriftI8
	}
	return t.skip(typ)
}

func (t *thrift) skipMap() error {
	if t.depth++; t.depth > maxNesting {
		return fmt.Errorf("it has more than %d levels", maxNesting)
	}
	defer func() { t.depth-- }()
	n, err := t.length()
	if err != nil || n == 0 {
		return err
	}
	types, err := t.cut(1)
	if err == nil {
		err = t.pay(int64(n) * 2 * anElement)
	}
	for i := 0; i < n && err == nil; i++ {
		if err = t.skipElement(types[0] >> 4); err == nil {
			err = t.skipElement(types[0] & 15)
		}
	}
	return err
}

// element is one of a Parquet schema, in which the parent of some elements is just before them.
type element struct {
	name       string
	leaf       bool
	kind       int64 // of a leaf: how its values are stored
	width      int64 // of a leaf of fixed length: how many bytes a value has
	repetition int64 // 0: required, 1: optional, 2: repeated
	children   int64
}

// elements reads a schema.
func (t *thrift) elements(typ byte) (all []element, err error) {
	err = t.structs(typ, 1<<10, func() error {
		if len(all) == maxElements {
			return fmt.Errorf("its schema has more than %d elements", maxElements)
		}
		var e element
		err := t.fields(func(id int, typ byte) (err error) {
			switch id {
			case 1:
				e.leaf = true
				e.kind, err = t.integer(typ, thriftI32)
			case 2:
				e.width, err = t.integer(typ, thriftI32)
			case 3:
				e.repetition, err = t.integer(typ, thriftI32)
			case 4:
				var name []byte
				if name, err = t.text(typ); len(name) > maxColumnName {
					err = fmt.Errorf("a column has a name of %d bytes; at most %d are possible", len(name), maxColumnName)
				}
				e.name = string(name[:min(len(name), maxColumnName)])
			case 5:
				e.children, err = t.integer(typ, thriftI32)
			default:
				err = t.skip(typ)
			}
			return err
		})
		all = append(all, e)
		return err
	})
	return all, err
}

// leaves calls visit for each leaf, with the elements from below the root to it. It refuses a schema
// that is not one tree.
func leaves(all []element, visit func([]element)) error {
	type group struct{ left int64 }
	var open []group
	var path []element
	for i, e := range all {
		switch {
		case e.leaf && e.children != 0 || e.children < 0 || e.children > int64(len(all)):
			return fmt.Errorf("the element %q of its schema claims %d children", e.name, e.children)
		case i > 0 && len(open) == 0:
			return errors.New("its schema is not one tree")
		case len(open) >= maxLevels:
			return fmt.Errorf("its schema has more than %d levels", maxLevels)
		}
		if i > 0 {
			open[len(open)-1].left--
			path = append(path[:len(open)-1], e)
		}
		if e.leaf && i > 0 {
			visit(path)
		}
		if e.children > 0 {
			open = append(open, group{e.children})
		}
		for len(open) > 0 && open[len(open)-1].left == 0 {
			open = open[:len(open)-1]
		}
	}
	if len(all) == 0 || len(open) > 0 {
		return errors.New("its schema lacks elements")
	}
	return nil
}
