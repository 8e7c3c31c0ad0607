// Package compaction measures package compactor: how many objects are left of a
// million commits and how often their bytes were written, how fast segments are
// merged and objects folded beside plain calls of the same store, and in how much
// memory.
//
//	go test -count=1 -v .          prints the table
//	go test -count=1 -v . -write   and writes it to ../results/compaction.json
//
// The million commits are in memory. For the others the store is an S3 endpoint in
// another process on this machine, so that what it holds is not counted. Plain calls
// move the same bytes, with as many requests at once: they read and upload them and
// do nothing else. Both take turns, and the best of each counts: what else the machine
// does only adds.
//
// The test fails if a number that does not depend on the machine misses its goal.
package compaction
