// Command slatedb-style shows with real processes how a zombie is refused. Three nodes
// of a small key-value store compete for a log. The leader is frozen in the middle of
// its work, and another node takes over. A compactor prunes all that is not needed any
// more. Then the old leader wakes up, writes on, and is refused.
//
//	go run ./examples/slatedb-style
//	go run ./examples/slatedb-style -store 's3://bucket/prefix?endpoint=http://127.0.0.1:9000'
//
// It exits with a status other than 0 if any promise is broken. It needs a Unix system,
// because it freezes processes with SIGSTOP.
package main
