package test

import (
	"os"
	"slices"
)

// Env is the environment variable that asks for all cases.
const Env = "FENCEPOST_WHOLE"

// Whole reports whether tests try all of their cases.
func Whole() bool { return os.Getenv(Env) != "" }

// Of returns how many cases a test tries: few, or whole ones if Whole.
func Of[T any](few, whole T) T {
	if Whole() {
		return whole
	}
	return few
}

// Square returns which cells of a matrix a test tries. At is the index in each dimension, of
// the sizes given. Every cell is tried if Whole. Otherwise as many are tried as the greatest
// dimension has values: each value of each dimension, with other values of the others, as in a
// Latin square. The choice is always the same.
func Square(sizes ...int) func(at ...int) bool {
	if Whole() {
		return func(...int) bool { return true }
	}
	chosen := cells(sizes)
	return func(at ...int) bool {
		return slices.ContainsFunc(chosen, func(c []int) bool { return slices.Equal(c, at) })
	}
}

// cells returns as many cells as the greatest size. Each dimension goes through its values in
// turn. Each time that it begins again it is shifted, by another number in each dimension, so
// that two dimensions do not go in step.
func cells(sizes []int) [][]int {
	var all [][]int
	for i := range slices.Max(sizes) {
		cell := make([]int, len(sizes))
		for d, n := range sizes {
			cell[d] = (i + d*(i/n)) % n
		}
		all = append(all, cell)
	}
	return all
}
