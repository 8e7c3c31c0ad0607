package result

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A ratio that is more than a tenth worse fails the check. So does a row that is missing
// or has become another kind of number. Other rows and new rows do not.
func TestWorse(t *testing.T) {
	dir := t.TempDir()
	speed := Row{Name: "speed", Value: 1, More: true, Ratio: true}
	cost := Row{Name: "cost", Value: 1, Ratio: true}
	none := Row{Name: "none", Value: 0, Ratio: true}
	absolute := Row{Name: "absolute", Value: 1e6, More: true}
	all := []Row{speed, cost, none, absolute}
	before := New("Before", "page")
	before.Add("m", all...)
	f := Figure{Title: "t", File: "f.svg", X: "x", Y: "y"}
	f.Line("a line", Distribution([]time.Duration{1, 2, 3}))
	before.Figures = append(before.Figures, f)
	if err := before.Write(dir); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir, "page")
	if err != nil {
		t.Fatal(err)
	}
	with := func(row Row, value float64) Row { row.Value = value; return row }
	for name, c := range map[string]struct {
		rows  []Row
		whole bool
		tells string // empty: it passes
	}{
		"the same":                     {all, true, ""},
		"a little slower":              {[]Row{with(speed, 0.92), cost, none, absolute}, true, ""},
		"slower":                       {[]Row{with(speed, 0.90), cost, none, absolute}, true, "worse: speed is 0.9, it was 1"},
		"faster":                       {[]Row{with(speed, 9), cost, none, absolute}, true, ""},
		"a little dearer":              {[]Row{speed, with(cost, 1.09), none, absolute}, true, ""},
		"dearer":                       {[]Row{speed, with(cost, 1.11), none, absolute}, true, "worse: cost"},
		"cheaper":                      {[]Row{speed, with(cost, 0.1), none, absolute}, true, ""},
		"more than zero":               {[]Row{speed, cost, with(none, 0.001), absolute}, true, "worse: none"},
		"not a number":                 {[]Row{with(speed, math.NaN()), cost, none, absolute}, true, "worse: speed"},
		"a cost that is not a number":  {[]Row{speed, with(cost, math.NaN()), none, absolute}, true, "worse: cost"},
		"another machine":              {[]Row{speed, cost, none, with(absolute, 1)}, true, ""},
		"a new one":                    {append([]Row{{Name: "new", Value: 1, Ratio: true}}, all...), true, ""},
		"one is gone":                  {[]Row{speed, none, absolute}, true, "gone: cost"},
		"one that is no ratio is gone": {[]Row{speed, cost, none}, true, "gone: absolute"},
		"renamed":                      {[]Row{speed, {Name: "costs", Value: 1, Ratio: true}, none, absolute}, true, "gone: cost"},
		"nothing is left":              {nil, true, "gone: speed"},
		"measured alone":               {[]Row{speed}, false, ""},
		"measured alone, and slower":   {[]Row{with(speed, 0.5)}, false, "worse: speed"},
		"no ratio any more":            {[]Row{{Name: "speed", Value: 1, More: true}, cost, none, absolute}, true, "changed: speed"},
		"the other way round":          {[]Row{{Name: "speed", Value: 1, Ratio: true}, cost, none, absolute}, true, "changed: speed"},
	} {
		now := New("Now", "page")
		now.Add("m", c.rows...)
		says, by := now.Worse(read, c.whole)
		if got := strings.Join(says, "\n"); (got != "") != (c.tells != "") || !strings.Contains(got, c.tells) {
			t.Errorf("%s: says %q", name, got)
		}
		// Only a row that is worse can be measured again.
		if c.tells != "" && slices.Contains(by, "m") != strings.HasPrefix(c.tells, "worse") {
			t.Errorf("%s: by %q", name, by)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "f.svg"))
	if err != nil || !strings.Contains(string(svg), "a line") {
		t.Errorf("the figure has %d bytes, %v", len(svg), err)
	}
	if got := strings.Join(before.Versions, " "); !strings.Contains(got, "/service/s3 v") || !strings.Contains(got, "klauspost/compress v") {
		t.Errorf("the versions are %q", got)
	}
	if _, err := Read(t.TempDir(), "page"); err == nil {
		t.Error("no error, although there is no page to read")
	}
}

// Of several runs, the best value of each row counts.
func TestBest(t *testing.T) {
	page := func(speed, cost float64) *Page {
		p := New("A page", "page")
		p.Add("m", Row{Name: "speed", Value: speed, More: true}, Row{Name: "cost", Value: cost})
		return p
	}
	p := page(1, 1)
	again := page(2, 2)
	again.Add("m", Row{Name: "new"})
	p.Best(again)
	if len(p.Rows) != 2 || p.Rows[0].Value != 2 || p.Rows[1].Value != 1 {
		t.Errorf("the best of both: %+v", p.Rows)
	}
	p.Best(page(1.5, 0.5))
	if p.Rows[0].Value != 2 || p.Rows[1].Value != 0.5 {
		t.Errorf("the best of three: %+v", p.Rows)
	}
}
