package delta

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/internal/test"
)

// deep is a schema of n columns, below some groups that lie in each other.
func deep(groups, n int, name string) *Schema {
	s := newSchema()
	for i := range n {
		s.add(column(fmt.Sprint(name, i), DataType{Name: "long"}))
	}
	for range groups {
		s = newSchema(column("g", DataType{Group: s}))
	}
	return s
}

// A schema is read as it was written.
func TestSchemaText(t *testing.T) {
	for _, text := range []string{
		`{"type":"struct","fields":[]}`,
		`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},{"name":"\u003cb\"","type":{"type":"struct","fields":[{"name":"c","type":"decimal(3,1)","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}`,
		`{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[]},"valueContainsNull":true},"containsNull":true},"nullable":true,"metadata":{}}]}`,
		deep(20, 3, "x").String(),
	} {
		if s, err := ParseSchema(text); err != nil || s.String() != text {
			t.Errorf("got %v, %v\nwant %s", s, err, text)
		}
	}
	for _, text := range []string{
		"", "1", `"long"`, `{}`, `{"type":"array","elementType":"long"}`, `{"type":"struct"}`, `{"type":"struct","fields":{}}`, `{"type":"struct","fields":[1]}`,
		`{"type":"struct","fields":[{"name":"a"}]}`, `{"type":"struct","fields":[{"type":"long"}]}`, `{"type":"struct","fields":[]}x`, `{"type":"struct","fields":[]`,
		`{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"string"}}]}`, `{"type":{"type":"struct"},"fields":[]}`,
		strings.Repeat(`{"type":"array","elementType":`, 1000), deep(100, 1, "x").String(),
	} {
		if _, err := ParseSchema(text); !errors.Is(err, ErrDamaged) {
			t.Errorf("%.100s: %v", text, err)
		}
	}
}

// The first of two columns of one name counts, as for who reads the schema from its begin.
func TestNamesFold(t *testing.T) {
	s := newSchema(column("Straße", DataType{Name: "long"}), column("STRAßE", DataType{Name: "string"}), column("K", DataType{Name: "date"}))
	for name, want := range map[string]string{"straßE": "long", "k": "date", "\u212a": "date", "STRASSE": "", "": ""} {
		got := ""
		if f := s.field(name); f != nil {
			got = f.Type.Name
		}
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// A merge that changes nothing allocates next to nothing, whatever the types are, and returns the same.
func TestMergeOfTheSame(t *testing.T) {
	s, o := deep(30, 9000, "a column with a name "), deep(30, 9000, "a column with a name ")
	var all *Schema
	var err error
	n := test.Allocated(func() { all, err = s.merge(o) })
	if err != nil || all != s || n > 4<<20 {
		t.Errorf("%d bytes, the same: %v, %v", n, all == s, err)
	}
	more, err := s.merge(deep(30, 9001, "a column with a name "))
	if err != nil || more == s || len(more.String()) <= len(s.String()) {
		t.Errorf("a column more: %v", err)
	}
	if len(s.String()) != len(o.String()) {
		t.Error("the merge has changed what it got")
	}
}

// A footer with sixteen times as many columns takes about sixteen times as long.
func TestManyColumnsTakeLinearTime(t *testing.T) {
	took := func(columns int) (least time.Duration) {
		end := parquetEnd(marshal(t, flat(columns, 0, func(f *format.FileMetaData) {
			for i := range f.Schema {
				f.Schema[i].Name = strings.Repeat("x", 300) + f.Schema[i].Name
			}
		})))
		for i := range 3 {
			before := processor(t)
			for range 4000 / columns {
				f, err := decodeFooter(end, int64(len(end)))
				if err == nil {
					_, err = newSchema().merge(f.Schema)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if n := processor(t) - before; i == 0 || n < least {
				least = n
			}
		}
		return least
	}
	// Of both as many columns are read.
	if few, many := took(250), took(4000); many > 4*few+50*time.Millisecond {
		t.Errorf("4,000 columns took %v, and sixteen times 250 took %v", many, few)
	}
}

// No footer can make the schema of a table longer than a checkpoint can have.
//
// guard:delta-schema-fits. Without this check: somebody commits files with ever more columns; the
// schema gets longer than 4 MiB; the publisher writes it into a checkpoint, and deletes the commits
// before that; nobody can read the checkpoint, or the table.
func TestSchemaThatIsTooLong(t *testing.T) {
	half := strings.Repeat("x", 500)
	one, two := deep(0, 2500, "a"+half), deep(0, 2500, "b"+half)
	all, err := newSchema().merge(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = all.merge(two); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "write fewer columns") {
		t.Errorf("got %v", err)
	}
	if _, err = newSchema().merge(deep(0, 9999, half)); !errors.Is(err, ErrSchema) {
		t.Errorf("got %v", err)
	}
}
