package main

import (
	"slices"
	"testing"
)

func runs(t *testing.T, profile string) features {
	t.Helper()
	f, err := parse("mode: count\n" + profile)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestParse(t *testing.T) {
	f := runs(t, "p/a.go:1.2,3.4 2 1\np/a.go:5.2,6.4 1 0\np/b.go:1.1,2.2 1 7\n")
	if len(f) != 2 || !f[feature{"p/a.go:1.2,3.4", 0}] || !f[feature{"p/b.go:1.1,2.2", 3}] {
		t.Errorf("%v", f)
	}
	if again := runs(t, "p/b.go:1.1,2.2 1 8\n"); f.without(again) != 1 || again.without(f) != 0 {
		t.Error("7 and 8 runs must count as about the same")
	}
	if _, err := parse("p/a.go:1.2,3.4 2 many\n"); err == nil {
		t.Error("no error for a count that is not a number")
	}
}

// The entry that adds most comes first; of two, the shorter. An entry that adds nothing
// is left out.
func TestPick(t *testing.T) {
	some := []entry{
		{"seed's", 1, runs(t, "a 1 1\n")},
		{"long", 9, runs(t, "b 1 1\nc 1 1\n")},
		{"short", 3, runs(t, "b 1 1\nc 1 1\n")},
		{"part", 1, runs(t, "b 1 1\n")},
		{"often", 5, runs(t, "a 1 100\n")},
	}
	names := func(n int) (names []string) {
		have := runs(t, "a 1 1\n")
		for _, e := range pick(have, some, n) {
			names = append(names, e.name)
		}
		return names
	}
	if got := names(30); !slices.Equal(got, []string{"short", "often"}) {
		t.Errorf("%q", got)
	}
	if got := names(1); !slices.Equal(got, []string{"short"}) {
		t.Errorf("%q", got)
	}
	if got := names(-1); got != nil {
		t.Errorf("%q", got)
	}
}

// A statement that only one of two runs reaches does not count.
func TestAnd(t *testing.T) {
	var both features
	both = both.and(runs(t, "a 1 1\nb 1 1\n")).and(runs(t, "a 1 1\nb 1 2\n"))
	if len(both) != 1 || !both[feature{"a", 0}] {
		t.Errorf("%v", both)
	}
}
