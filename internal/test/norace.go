//go:build !race

package test

// Race reports whether this program was built with the race detector, which takes memory and time.
const Race = false
