package delta

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

const (
	// maxStatColumns is of how many columns Delta keeps statistics.
	maxStatColumns = 32
	// maxStats is how many bytes the statistics of a file take. Those that take more are left out.
	maxStats = 64 << 10
)

// stats is the document of a file's statistics.
type stats struct {
	Records int64          `json:"numRecords"`
	Min     map[string]any `json:"minValues,omitempty"`
	Max     map[string]any `json:"maxValues,omitempty"`
	Nulls   map[string]any `json:"nullCount,omitempty"`
}

// statsText returns the statistics of a file as Delta has them.
func statsText(f *Footer) string {
	all := stats{Records: f.Rows, Min: map[string]any{}, Max: map[string]any{}, Nulls: map[string]any{}}
	for _, c := range f.Columns[:min(len(f.Columns), maxStatColumns)] {
		if c.CountsNulls {
			put(all.Nulls, c.Path, c.Nulls)
		}
		if c.Low != nil {
			put(all.Min, c.Path, statValue(c.Type, c.Low, false))
			put(all.Max, c.Path, statValue(c.Type, c.High, true))
		}
	}
	b, err := json.Marshal(all)
	if err != nil || len(b) > maxStats {
		return `{"numRecords":` + strconv.FormatInt(all.Records, 10) + `}`
	}
	return string(b)
}

// put sets a value in the maps of a nested column.
func put(m map[string]any, path []string, v any) {
	for _, name := range path[:len(path)-1] {
		inner, ok := m[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			m[name] = inner
		}
		m = inner
	}
	m[path[len(path)-1]] = v
}

// statValue returns a bound as Delta writes it.
func statValue(typ string, v any, upper bool) any {
	n, number := v.(int64)
	_, scale, decimals := decimalOf(typ)
	switch {
	case !number:
		return v
	case decimals:
		return decimal(n, scale)
	case typ == "date":
		return time.Unix(n*86400, 0).UTC().Format(time.DateOnly)
	case typ == "timestamp":
		return moment(n, upper)
	}
	return n
}

// moment returns a time. Some engines read milliseconds only, so bounds are widened to these.
func moment(micros int64, upper bool) string {
	t := time.UnixMicro(micros).UTC()
	cut := t.Truncate(time.Millisecond)
	if upper && cut.Before(t) {
		cut = cut.Add(time.Millisecond)
	}
	return cut.Format("2006-01-02T15:04:05.000Z")
}

// decimal returns a number with some digits after the point.
func decimal(n int64, scale int) json.Number {
	sign, digits := "", strconv.FormatInt(n, 10)
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	return json.Number(sign + digits)
}
