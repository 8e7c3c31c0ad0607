package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/delta"
)

// Partition values come from the Meta of files.
func TestPartitions(t *testing.T) {
	inLake(t, func(t *testing.T, k *lake) {
		p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "date"}, {Name: "region"}}})
		k.raw(k.Body(k.rows(1)), map[string]string{"day": "2026-11-23"})
		r := k.publish(p)
		m := k.actions(0, "metaData")[0]
		if fmt.Sprint(m["partitionColumns"]) != "[day region]" || !strings.Contains(m["schemaString"].(string), `"name":"day","type":"date"`) {
			t.Errorf("%v", m)
		}
		var values []string
		for _, a := range k.actions(r.Version, "add") {
			values = append(values, fmt.Sprint(a["partitionValues"]))
		}
		slices.Sort(values)
		if want := []string{"map[day:2026-11-23 region:<nil>]", "map[day:<nil> region:<nil>]"}; !slices.Equal(values, want) {
			t.Errorf("%v", values)
		}
		commitRows(k, []struct {
			ID  int64  `parquet:"id"`
			Day string `parquet:"day"`
		}{{1, "x"}})
		r, err := p.Publish(context.Background())
		if err = errors.Join(err, r.Err()); !errors.Is(err, delta.ErrSchema) {
			t.Errorf("a file with the partition's column: %v", err)
		}
	})
}

// A partition value under a name that is no column's would be null for engines.
//
// guard:delta-partition-name. Without this check: the table is partitioned by day; a program that was
// changed writes Day; the version that adds its files is created with null in day; each query for a
// day leaves these rows out, and nobody is told.
func TestMisnamedPartition(t *testing.T) {
	for _, c := range []struct {
		meta map[string]string
		want string // of the error
	}{
		{map[string]string{"day": "2026-11-23", "least": "a"}, ""},
		{map[string]string{"day": "", "least": "a"}, ""},
		{nil, ""},
		{map[string]string{"Day": "2026-11-23"}, "the partition column is called day"},
		{map[string]string{"Day": "2026-11-23", "day": ""}, ""},
		{map[string]string{"date": "2026-11-23"}, "a value of date, which is no partition column"},
	} {
		inLake(t, func(t *testing.T, k *lake) {
			p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "date"}}})
			k.raw(k.Body(k.rows(1)), c.meta)
			r, err := p.Publish(t.Context())
			switch {
			case err != nil:
				t.Errorf("%v: %v", c.meta, err)
			case c.want == "" && r.Err() != nil, c.want != "" && (!errors.Is(r.Err(), delta.ErrSchema) || !strings.Contains(r.Err().Error(), c.want)):
				t.Errorf("%v: %v, want %q", c.meta, r.Err(), c.want)
			}
		})
	}
}

// guard:delta-decimal-type. Without this check: the first publisher is given decimal(40,2) or decimal(0,0);
// version 0 has a column of that type; no engine opens the table again, and its schema is for ever.
func TestDecimalTypes(t *testing.T) {
	for typ, good := range map[string]bool{"decimal(38,38)": true, "decimal(1,0)": true, "decimal(40,2)": false, "decimal(39,0)": false, "decimal(0,0)": false, "decimal(2,5)": false} {
		o := delta.Options{Partition: []delta.Column{{Name: "a", Type: typ}}}
		if err := o.Validate(); errors.Is(err, delta.ErrOptions) == good {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// Partition values are checked by their column's type, and an empty one is null.
//
// guard:delta-partition-value. Without this check: a file has the day "tomorrow", and the column is a
// date; the Delta version that adds the file is created; engines cannot parse the value, and fail when
// they read the table.
func TestPartitionValues(t *testing.T) {
	for typ, c := range map[string]struct{ good, bad []string }{
		"date":         {[]string{"2026-11-23", "", "0001-01-01"}, []string{"tomorrow", "2026-02-30", "0000-12-31"}},
		"byte":         {[]string{"-128"}, []string{"128", "+1", "x"}},
		"timestamp":    {[]string{"2026-11-23 10:00:00.5", "2026-11-23T10:00:00Z"}, []string{"2026-11-23", "2026-11-23 25:00:00", "0000-01-01 10:00:00"}},
		"decimal(4,2)": {[]string{"-12.34"}, []string{"123.4", "1.234", "1e1"}},
		"boolean":      {[]string{"true"}, []string{"1"}},
		"double":       {[]string{"12.5", "-0.001", "0", "1E308", "1e+2", "-1.7976931348623157e308"}, []string{"NaN", "nan", "Infinity", "-Infinity", "inf", "1e999", "-1e999", "-0", "-0.0", "-1e-999", "1e", ".5", "5.", "+1", "0x1p4", "1_0", "1d", " 1"}},
		"float":        {[]string{"12.5", "3.4e38"}, []string{"3.5e38", "-1e39", "NaN", "-0"}},
	} {
		for i, v := range append(slices.Clone(c.good), c.bad...) {
			inLake(t, func(t *testing.T, k *lake) {
				p := k.publisher(nil, &delta.Options{Partition: []delta.Column{{Name: "c", Type: typ}}})
				k.rows(1)
				k.publish(p)
				key := strings.TrimPrefix(k.raw(k.Body("file/"+k.live()[0]), map[string]string{"c": v}), "file/")
				r, err := p.Publish(t.Context())
				if bad := i >= len(c.good); err != nil || errors.Is(r.Err(), delta.ErrSchema) != bad || bad == (r.Files == 2) {
					t.Errorf("%s %q: %+v, %v", typ, v, r, err)
				}
				if want := fmt.Sprintf("%s has the value %q of the partition column c, which is %s", key, v, typ); i >= len(c.good) && !strings.Contains(fmt.Sprint(r.Err()), want) {
					t.Errorf("the error is %v, and does not say that %s", r.Err(), want)
				}
				if v == "" && !strings.Contains(string(k.Body(commitName(r.Version))), `"partitionValues":{"c":null}`) {
					t.Errorf("%s", k.Body(commitName(r.Version)))
				}
			})
		}
	}
}
