package delta

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/manifest"
)

var (
	decimalText = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	floatText   = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	timeText    = regexp.MustCompile(`^\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?|T\d\d:\d\d:\d\d(\.\d{1,6})?Z)$`)
)

// badValue returns what a partition value of a type looks like if v does not, or nothing.
func badValue(typ, v string) (want string) {
	bits := map[string]int{"byte": 8, "short": 16, "integer": 32, "long": 64}[typ]
	switch {
	case v == "":
		return "" // null
	case bits > 0:
		if _, err := strconv.ParseInt(v, 10, bits); err != nil || v[0] == '+' {
			return fmt.Sprintf("an integer of %d bits", bits)
		}
	case typ == "date":
		// Python and others have no year 0.
		if day, err := time.Parse(time.DateOnly, v); err != nil || day.Year() < 1 {
			return "2006-01-02, from year 1 on"
		}
	case typ == "timestamp":
		at, err := time.Parse(time.DateTime, strings.TrimSuffix(strings.Replace(v, "T", " ", 1), "Z"))
		if err != nil || !timeText.MatchString(v) || at.Year() < 1 {
			return "2006-01-02 15:04:05.000000, or 2006-01-02T15:04:05.000000Z, from year 1 on"
		}
	case typ == "boolean":
		if v != "true" && v != "false" {
			return "true or false"
		}
	case typ == "float" || typ == "double":
		// Engines read NaN, infinities, and numbers that the type cannot hold, in ways that differ:
		// some compare NaN as greater than all, others as unlike itself, and so they skip other
		// files. -0 is less than 0 for some, and the same for others.
		n, err := strconv.ParseFloat(v, map[string]int{"float": 32, "double": 64}[typ])
		if !floatText.MatchString(v) || err != nil || n == 0 && math.Signbit(n) {
			return "a finite number like 12.5 or 1e-3, within the range of " + typ + ", and not -0"
		}
	case strings.HasPrefix(typ, "decimal("):
		digits, scale, _ := decimalOf(typ)
		whole, part, _ := strings.Cut(strings.TrimPrefix(v, "-"), ".")
		if !decimalText.MatchString(v) || len(strings.TrimLeft(whole, "0")) > digits-scale || len(part) > scale {
			return "a " + typ
		}
	case !utf8.ValidString(v):
		return "UTF-8"
	}
	return ""
}

// partitioned checks the partition values of a file.
//
// guard:delta-partition-value. A file is published only if each of its partition values is one of the
// column's type.
//
//mutant:replace name != "" => name == "none"
func partitioned(columns map[string]string, path string, f manifest.File) error {
	if name, want := badPartition(columns, f.Meta); name != "" {
		return fmt.Errorf("%w: %s has the value %q of the partition column %s, which is %s: "+removeIt+", and add it again with a value like %s in its Meta", ErrSchema, path, f.Meta[name], name, columns[name], want)
	}
	if what := misnamed(columns, f.Meta); what != "" {
		return fmt.Errorf("%w: %s has %s: "+removeIt+", and add it again with that in its Meta", ErrSchema, path, what)
	}
	return nil
}

// misnamed returns what is wrong with the names of partition values, and what to do, or nothing. A value under a
// name that is no column's would be lost, and be null for engines.
//
// guard:delta-partition-name. A file is published only if no partition value of it may stand under
// another name.
//
//mutant:replace other != name && folded(other) == folded(name) => false
func misnamed(columns, values map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		if _, ok := values[name]; ok {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(values)) {
			if other != name && folded(other) == folded(name) {
				return fmt.Sprintf("a value of %s, and the partition column is called %s: call it so", other, name)
			}
			if _, ok := columns[other]; !ok && other != replaces {
				return fmt.Sprintf("a value of %s, which is no partition column, and none of %s, which is one: say %s too, \"\" for null", other, name, name)
			}
		}
	}
	return ""
}

// replaces is the entry of Meta that [manifest.File.SetReplaces] makes.
const replaces = "replaces"

// badPartition returns a column whose value is none of its type, and what one looks like. The name is
// empty if all are good.
func badPartition(columns, values map[string]string) (name, want string) {
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		if want := badValue(columns[name], values[name]); want != "" {
			return name, want
		}
	}
	return "", ""
}
