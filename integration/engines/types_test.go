//go:build integration && unix

package engines

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// typed is a row with a column of each type that a Go program can write.
type typed struct {
	ID    int64            `parquet:"id"`
	B     bool             `parquet:"b"`
	I8    int8             `parquet:"i8"`
	I16   int16            `parquet:"i16"`
	I32   int32            `parquet:"i32"`
	I64   int64            `parquet:"i64"`
	F32   float32          `parquet:"f32"`
	F64   float64          `parquet:"f64"`
	S     string           `parquet:"s"`
	Bin   []byte           `parquet:"bin"`
	D9    int32            `parquet:"d9,decimal(2:9)"`
	D18   int64            `parquet:"d18,decimal(4:18)"`
	Day   int32            `parquet:"day,date"`
	At    time.Time        `parquet:"ts,timestamp(microsecond)"`
	Maybe *string          `parquet:"maybe,optional"`
	L     []int64          `parquet:"l,list"`
	M     map[string]int64 `parquet:"m"`
	G     group            `parquet:"g"`
}

type group struct {
	X int32  `parquet:"x"`
	Y string `parquet:"y"`
}

// later has a column that was added.
type later struct {
	ID    int64            `parquet:"id"`
	B     bool             `parquet:"b"`
	I8    int8             `parquet:"i8"`
	I16   int16            `parquet:"i16"`
	I32   int32            `parquet:"i32"`
	I64   int64            `parquet:"i64"`
	F32   float32          `parquet:"f32"`
	F64   float64          `parquet:"f64"`
	S     string           `parquet:"s"`
	Bin   []byte           `parquet:"bin"`
	D9    int32            `parquet:"d9,decimal(2:9)"`
	D18   int64            `parquet:"d18,decimal(4:18)"`
	Day   int32            `parquet:"day,date"`
	At    time.Time        `parquet:"ts,timestamp(microsecond)"`
	Maybe *string          `parquet:"maybe,optional"`
	L     []int64          `parquet:"l,list"`
	M     map[string]int64 `parquet:"m"`
	G     group            `parquet:"g"`
	Added string           `parquet:"added"`
}

// typedRows is how many rows there are. Those from addedFrom on have the added column.
const (
	typedRows = 24
	addedFrom = 16
)

// prefix is longer than what statistics keep of a text.
var prefix = strings.Repeat("long ", 10)

// typedRow makes the row of a number. The first has the least values, and the last the greatest.
func typedRow(id int64) typed {
	n := id - typedRows/2
	r := typed{
		ID: id, B: id%3 == 0, I8: int8(n * 10), I16: int16(n * 2000), I32: int32(n * 100_000_000), I64: n << 50, F32: float32(n) / 3, F64: float64(n) * 1e300,
		S: fmt.Sprintf("%s%02d", prefix, id), Bin: []byte{byte(id), 0xff, 0}, D9: int32(n) * 12345, D18: n * 1_234_567_890_123, Day: int32(n * 400),
		At: time.UnixMicro(n*1e15/7 + 1).UTC(), L: []int64{}, M: map[string]int64{fmt.Sprint("k", id): n}, G: group{int32(n), fmt.Sprint("y", id)},
	}
	for i := range id % 4 {
		r.L = append(r.L, n-i)
	}
	if id%2 == 1 {
		r.Maybe = &r.G.Y
	}
	switch id {
	case 0:
		r.I8, r.I16, r.I32, r.I64, r.D9, r.D18 = math.MinInt8, math.MinInt16, math.MinInt32, math.MinInt64, -999_999_999, -999_999_999_999_999_999
		r.S, r.F64, r.At = "", math.Inf(-1), time.UnixMicro(-1).UTC()
	case typedRows - 1:
		r.I8, r.I16, r.I32, r.I64, r.D9, r.D18 = math.MaxInt8, math.MaxInt16, math.MaxInt32, math.MaxInt64, 999_999_999, 999_999_999_999_999_999
		r.S, r.F64 = prefix+"\U0010ffff ü", math.Inf(1)
	case typedRows / 3:
		r.F64 = math.NaN()
	}
	return r
}

// values are the partition of a row.
func values(id int64) map[string]string {
	v := map[string]string{"p_day": fmt.Sprintf("2026-01-%02d", 1+id%3), "p_region": []string{"eu west", "", "a/b=ü"}[id%3], "p_n": fmt.Sprint(-id % 3)}
	return v
}

// added is the added column.
func added(id int64) string { return fmt.Sprint("added ", id) }

// seen is what an engine must find of a row.
func (r *typed) seen(partitions bool) map[string]any {
	scaled := func(n int64, digits int) string {
		sign := ""
		if n < 0 {
			sign, n = "-", -n
		}
		text := fmt.Sprintf("%0*d", digits+1, n)
		return sign + text[:len(text)-digits] + "." + text[len(text)-digits:]
	}
	float := func(f float64) string { return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%.17e", f), "+")) }
	list := []any{}
	for _, n := range r.L {
		list = append(list, fmt.Sprint(n))
	}
	m := map[string]any{}
	for k, n := range r.M {
		m[k] = fmt.Sprint(n)
	}
	row := map[string]any{
		"id": fmt.Sprint(r.ID), "b": r.B, "i8": fmt.Sprint(r.I8), "i16": fmt.Sprint(r.I16), "i32": fmt.Sprint(r.I32), "i64": fmt.Sprint(r.I64),
		"f32": float(float64(r.F32)), "f64": float(r.F64), "s": r.S, "bin": hex.EncodeToString(r.Bin), "d9": scaled(int64(r.D9), 2), "d18": scaled(r.D18, 4),
		"day": time.Unix(int64(r.Day)*86400, 0).UTC().Format(time.DateOnly), "ts": r.At.Format("2006-01-02T15:04:05.000000"),
		"l": list, "m": m, "g": map[string]any{"x": fmt.Sprint(r.G.X), "y": r.G.Y}, "maybe": nil, "added": nil,
	}
	if r.Maybe != nil {
		row["maybe"] = *r.Maybe
	}
	if r.ID >= addedFrom {
		row["added"] = added(r.ID)
	}
	if partitions {
		for name, v := range values(r.ID) {
			if row[name] = v; v == "" {
				row[name] = nil
			}
		}
	}
	return row
}

// filter is a condition, for engines that take SQL and for Polars, and what it means.
type filter struct {
	SQL, Polars string
	fits        func(*typed) bool
}

// filters look for values at the bounds of files, so a bound that is wrong hides a row.
func filters() (all []filter) {
	add := func(sql, polars string, fits func(*typed) bool) { all = append(all, filter{sql, polars, fits}) }
	for name, of := range map[string]func(*typed) int64{
		"i8": func(r *typed) int64 { return int64(r.I8) }, "i16": func(r *typed) int64 { return int64(r.I16) },
		"i32": func(r *typed) int64 { return int64(r.I32) }, "i64": func(r *typed) int64 { return r.I64 },
	} {
		for _, id := range []int64{0, 1, 5, typedRows - 1} {
			row := typedRow(id)
			n := of(&row)
			text := strconv.FormatInt(n, 10)
			if n == math.MinInt64 { // SQL reads the digits first, which are too many
				add("i64 < -9223372036854775807", "c('i64') < -9223372036854775807", func(r *typed) bool { return r.I64 == math.MinInt64 })
				continue
			}
			add(name+" = "+text, "c('"+name+"') == "+text, func(r *typed) bool { return of(r) == n })
			add(name+" >= "+text, "c('"+name+"') >= "+text, func(r *typed) bool { return of(r) >= n })
		}
	}
	for _, id := range []int64{0, 3, typedRows - 1} {
		row := typedRow(id)
		seen := row.seen(false)
		add(fmt.Sprintf("d9 = cast('%s' as decimal(9,2))", seen["d9"]), fmt.Sprintf("c('d9') == D('%s')", seen["d9"]), func(r *typed) bool { return r.D9 == row.D9 })
		add(fmt.Sprintf("d18 <= cast('%s' as decimal(18,4))", seen["d18"]), fmt.Sprintf("c('d18') <= D('%s')", seen["d18"]), func(r *typed) bool { return r.D18 <= row.D18 })
		add(fmt.Sprintf("day = date '%s'", seen["day"]), fmt.Sprintf("c('day').cast(str) == '%s'", seen["day"]), func(r *typed) bool { return r.Day == row.Day })
		add(fmt.Sprintf("ts = cast('%s+00:00' as TIME)", strings.Replace(seen["ts"].(string), "T", " ", 1)), fmt.Sprintf("c('ts') == at(%d)", row.At.UnixMicro()), func(r *typed) bool { return r.At.Equal(row.At) })
		add(fmt.Sprintf("s = '%s'", row.S), fmt.Sprintf("c('s') == '%s'", row.S), func(r *typed) bool { return r.S == row.S })
		add(fmt.Sprintf("s > '%s'", row.S), fmt.Sprintf("c('s') > '%s'", row.S), func(r *typed) bool { return r.S > row.S })
		add(fmt.Sprintf("FIELD = %d", row.G.X), fmt.Sprintf("c('g').struct.field('x') == %d", row.G.X), func(r *typed) bool { return r.G.X == row.G.X })
	}
	add("day < date '1970-01-01'", "c('day') < date(1970, 1, 1)", func(r *typed) bool { return r.Day < 0 })
	add("b", "c('b')", func(r *typed) bool { return r.B })
	add("f32 < -3.5", "c('f32') < -3.5", func(r *typed) bool { return r.F32 < -3.5 })
	add("f64 < -9e300", "c('f64') < -9e300", func(r *typed) bool { return r.F64 < -9e300 })
	add("maybe is null", "c('maybe').is_null()", func(r *typed) bool { return r.Maybe == nil })
	add("maybe = 'y3'", "c('maybe') == 'y3'", func(r *typed) bool { return r.ID == 3 })
	add("added is null", "c('added').is_null()", func(r *typed) bool { return r.ID < addedFrom })
	add("added = 'added 20'", "c('added') == 'added 20'", func(r *typed) bool { return r.ID == 20 })
	// Polars does not know the values of partitions: see docs/delta.md.
	add("p_day = date '2026-01-02'", "", func(r *typed) bool { return r.ID%3 == 1 })
	add("p_region is null", "", func(r *typed) bool { return r.ID%3 == 1 })
	add("p_region = 'a/b=ü'", "", func(r *typed) bool { return r.ID%3 == 2 })
	add("p_n < -1", "", func(r *typed) bool { return r.ID%3 == 2 })
	return all
}

// oddName is a folder that an engine could take for a value of the column p_n, and for a pattern. Polars 2.1.0 opens nothing below one with a ?.
const oddName = "p_n=7/[ab]*"

// TestTypes: each type, partitions and an added column are read by each engine as they were written. Filters
// find the same rows, so the statistics of files are right.
func TestTypes(t *testing.T) {
	pythons := installed(t)
	p := newPlace(t, "dir")
	st, root := p.open(t, oddName)
	if _, err := manifest.Init(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), st, token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(t.Context())
	first, err := delta.NewWriter(t.Context(), w, &delta.WriterOptions[typed]{Partition: func(r *typed) map[string]string { return values(r.ID) }})
	if err != nil {
		t.Fatal(err)
	}
	second, err := delta.NewWriter(t.Context(), w, &delta.WriterOptions[later]{Partition: func(r *later) map[string]string { return values(r.ID) }})
	if err != nil {
		t.Fatal(err)
	}
	src := delta.Source{Log: st}
	pub, err := delta.Open(t.Context(), root, []delta.Source{src}, &delta.Options{Partition: []delta.Column{{Name: "p_day", Type: "date"}, {Name: "p_region"}, {Name: "p_n", Type: "integer"}}})
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(typedRows) {
		r := typedRow(id)
		if id < addedFrom {
			err = first.Write(t.Context(), []typed{r})
		} else {
			err = second.Write(t.Context(), []later{{r.ID, r.B, r.I8, r.I16, r.I32, r.I64, r.F32, r.F64, r.S, r.Bin, r.D9, r.D18, r.Day, r.At, r.Maybe, r.L, r.M, r.G, added(id)}})
		}
		if err == nil && id%4 == 3 { // three partitions have rows of these four
			if err = first.Commit(t.Context()); err == nil {
				err = second.Commit(t.Context())
			}
		}
		if err == nil && id%8 == 7 {
			var report delta.Report
			if report, err = pub.Publish(t.Context()); err == nil {
				err = report.Err()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pythons)) {
		t.Run(name, func(t *testing.T) {
			e := start(t, name, pythons[name], p.env)
			polars := name == "polars"
			var got []map[string]any
			if err := e.ask(map[string]any{"do": "rows", "table": p.table(oddName)}, &got); err != nil {
				t.Fatal(err)
			}
			if len(got) != typedRows {
				t.Fatalf("%d rows, want %d", len(got), typedRows)
			}
			for id, row := range got {
				r := typedRow(int64(id))
				want := r.seen(!polars)
				for column, v := range want {
					a, _ := json.Marshal(row[column])
					b, _ := json.Marshal(v)
					if string(a) != string(b) {
						t.Errorf("row %d has %s in the column %s, want %s", id, a, column, b)
					}
				}
				if len(row) != len(r.seen(true)) {
					t.Errorf("row %d has %d columns", id, len(row))
				}
			}
			all := slices.DeleteFunc(filters(), func(f filter) bool { return polars && f.Polars == "" })
			var found [][]int64
			if err := e.ask(map[string]any{"do": "ids", "table": p.table(oddName), "filters": all}, &found); err != nil {
				t.Fatal(err)
			}
			for i, f := range all {
				want := []int64{}
				for id := range int64(typedRows) {
					if r := typedRow(id); f.fits(&r) {
						want = append(want, id)
					}
				}
				if !slices.Equal(found[i], want) {
					t.Errorf("where %s: rows %v, want %v", f.SQL, found[i], want)
				}
			}
			t.Logf("%s reads %d rows of %d columns, and %d filters find what they must", e.version, len(got), len(got[0]), len(all))
		})
	}
}
