// Package history measures what lives for years: manifest, compactor and reader, and how
// many histories the simulation makes.
//
//	go test -count=1 -v .                  all of it in small, so that it works
//	go test -count=1 -v . -measure=print   in full, in some four minutes; prints the page
//	go test -count=1 -v . -measure=write   and writes ../results/history.md, .json and .svg
//	go test -count=1 -v . -measure=check   and compares it with what is there
//
// `make bench` and `make bench-check` run the last two, among others.
//
// Requests, objects and bytes are counted. Delays of a tail are those of a virtual
// clock, so that they are exact. Where time is measured, it is that of plain calls of
// the same store beside: they move the same bytes, with as many requests at once, and do
// nothing else. Both take turns, and the best of each counts: what else the machine does
// only adds. Then the store is an S3 endpoint in another process on this machine, and a
// process of its own does what is measured in memory, so that only its own counts.
//
// A test fails if a number that does not depend on the machine misses its goal.
package history
