// Command slatedb-style shows what Fencepost is for, with real processes: three
// nodes of a small key-value store compete for a log, the leader is frozen in the
// middle of its work, another takes over, everything old is pruned, and the
// zombie is woken and refused.
//
//	go run ./examples/slatedb-style
//	go run ./examples/slatedb-style -store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000'
//
// It exits non-zero if any promise was broken. It freezes processes with SIGSTOP,
// and so needs a Unix system.
package main
