// Package test says how much a test tries, and what a decoder takes. A test whose cases are the product of several
// dimensions, or one for each request, tries a fixed part of them in go test, and all with
// FENCEPOST_WHOLE=1 in the environment.
package test
