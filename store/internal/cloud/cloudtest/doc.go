// Package cloudtest holds what the tests of the drivers for clouds have in common:
// what is the same for each of them whatever its requests look like.
package cloudtest
