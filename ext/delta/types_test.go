package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/ext/delta"
)

// A log gets a Parquet file with a column of a type that Delta has not. It is left out, the error names
// the column and says what to write instead, and nothing is published.
func TestRefusedTypes(t *testing.T) {
	many := make(parquet.Group)
	many["a b"] = parquet.Int(64)
	for name, c := range map[string]struct {
		column parquet.Node
		says   string // besides the column
	}{
		"unsigned":               {parquet.Uint(32), "use a signed one with more bits"},
		"time in milliseconds":   {parquet.Timestamp(parquet.Millisecond), "write times in microseconds"},
		"time in nanoseconds":    {parquet.Timestamp(parquet.Nanosecond), "write times in microseconds"},
		"local time":             {parquet.TimestampAdjusted(parquet.Microsecond, false), "write times in UTC"},
		"time of day":            {parquet.Time(parquet.Microsecond), "use an integer, or a timestamp in microseconds"},
		"INT96":                  {parquet.Leaf(parquet.Int96Type), "write times as 64 bits of microseconds"},
		"a decimal too long":     {parquet.Decimal(2, 39, parquet.FixedLenByteArrayType(17)), "1 to 38 digits"},
		"UUID":                   {parquet.UUID(), "write it as a string or as a byte array"},
		"bytes of a length":      {parquet.Leaf(parquet.FixedLenByteArrayType(5)), "write it as a string or as a byte array"},
		"BSON":                   {parquet.BSON(), "write it as a string or as a byte array"},
		"repeated":               {parquet.Repeated(parquet.Int(64)), "the tag list"},
		"in a struct":            {parquet.Group{"inner": parquet.Uint(8)}, "x.inner"},
		"in a list":              {parquet.List(parquet.Uint(8)), "x.element"},
		"as the value of a map":  {parquet.Map(parquet.String(), parquet.Uint(8)), "x.value"},
		"a name with a space":    {many, "use neither spaces"},
		"two names but for case": {parquet.Group{"A": parquet.Int(64), "a": parquet.Int(64)}, "Delta knows no case"},
	} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				k.rows(1)
				p := k.publisher(nil, nil)
				k.publish(p)
				var b bytes.Buffer
				w := parquet.NewWriter(&b, parquet.NewSchema("rows", parquet.Group{"x": c.column}))
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				bad := k.raw(b.Bytes(), nil)
				r, err := p.Publish(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				text := fmt.Sprint(r.Err())
				for _, want := range []string{"x", c.says, "remove it from the log's table with an edit", strings.TrimPrefix(bad, "file/")} {
					if !errors.Is(r.Err(), delta.ErrSchema) || !strings.Contains(text, want) {
						t.Errorf("got %s, want %q in it", text, want)
					}
				}
				if r.Version != 1 {
					t.Errorf("it has published version %d", r.Version)
				}
				k.rows(1, bad)
				if r := k.publish(p); r.Files != 2 {
					t.Errorf("without the file: %+v", r)
				}
			})
		})
	}
}
