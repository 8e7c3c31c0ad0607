// Package history measures manifest, compactor and reader with long histories, and how
// many histories the simulation makes.
//
//	go test -count=1 -v .                  measures little, only to see that it works
//	go test -count=1 -v . -results=DIR     measures all in some four minutes, and
//	                                       writes history.md, .json and .svg to DIR
//
// `make bench` and `make bench-check` run the second form, among others.
//
// Requests, objects and bytes are counted. Delays of a tail are exact, because their
// clock is virtual.
//
// Measured times are compared with plain calls of the same store. Those move the same
// bytes, with as many requests at once, and do nothing else. Both arms take turns. Where
// a note gives a best time, it is because other load on the machine only adds time. The
// store is then an S3 endpoint in another process on this machine. Memory is measured in
// a process of its own, so that only the compactor's memory counts.
//
// A test fails if a number that does not depend on the machine misses its goal.
package history
