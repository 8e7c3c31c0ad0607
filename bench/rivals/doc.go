// Package rivals measures appends beside another system's, in real time. make bench-slatedb
// runs it.
//
// The rival is SlateDB, an LSM tree on object storage: folder slatedb has a small program that
// loads it. Fencepost's arm is a process too. Both arms do the same job on an S3 endpoint that
// the test serves from memory, with latencies of its choice. The arms run in turns, each with
// an endpoint of its own that draws the same latencies.
package rivals
