package test_test

import (
	"slices"
	"testing"

	"github.com/fencepost/fencepost/internal/test"
)

// matrix returns the cells that are tried.
func matrix(sizes ...int) (tried [][]int) {
	in := test.Square(sizes...)
	at := make([]int, len(sizes))
	for {
		if in(at...) {
			tried = append(tried, slices.Clone(at))
		}
		d := len(sizes) - 1
		for ; d >= 0; d-- {
			if at[d]++; at[d] < sizes[d] {
				break
			}
			at[d] = 0
		}
		if d < 0 {
			return tried
		}
	}
}

func TestSquareMeetsEachValue(t *testing.T) {
	t.Setenv(test.Env, "")
	for _, sizes := range [][]int{{1}, {5}, {3, 2}, {2, 2}, {2, 7}, {9, 3, 2}, {3, 3, 3}, {4, 1, 6, 2}} {
		tried := matrix(sizes...)
		if len(tried) != slices.Max(sizes) {
			t.Errorf("%v: %d cells are tried, want %d", sizes, len(tried), slices.Max(sizes))
		}
		for d, n := range sizes {
			times := make([]int, n)
			for _, cell := range tried {
				times[cell[d]]++
			}
			if least, most := slices.Min(times), slices.Max(times); least == 0 || most-least > 1 {
				t.Errorf("%v: the values of dimension %d are tried %v times, want each, and equally often", sizes, d, times)
			}
		}
	}
}

// Two dimensions do not go in step, if there are enough cells.
func TestSquareSpreadsPairs(t *testing.T) {
	t.Setenv(test.Env, "")
	for _, c := range []struct {
		sizes []int
		pairs int // of the last two dimensions
	}{{[]int{9, 3, 2}, 5}, {[]int{9, 3, 3}, 9}, {[]int{4, 2, 2}, 4}} {
		seen := map[[2]int]bool{}
		for _, cell := range matrix(c.sizes...) {
			seen[[2]int(cell[1:])] = true
		}
		if len(seen) < c.pairs {
			t.Errorf("%v: %d pairs of the last two dimensions are tried, want at least %d", c.sizes, len(seen), c.pairs)
		}
	}
}

func TestWholeTriesAll(t *testing.T) {
	t.Setenv(test.Env, "1")
	if n := len(matrix(4, 3, 2)); n != 24 {
		t.Errorf("with %s %d cells are tried, want all 24", test.Env, n)
	}
	if n := test.Of(2, 100); n != 100 {
		t.Errorf("with %s Of returns %d, want 100", test.Env, n)
	}
}
