// Package election compares package leader with client-go's leaderelection. It measures
// how long a failover takes, whether two nodes lead at once, and what requests it costs.
//
//	go test -count=1 -v .                          prints package leader's column
//	go test -count=1 -v -tags clientgo .           prints the table
//	go test -count=1 -v -tags clientgo . -write    and writes it to ../results/election.json
//
// Both libraries run on the same store in memory, with the same delays, crashes and
// partitions. They run in the virtual time of testing/synctest: a validity is 15 s,
// nothing is scaled down, and hours pass in seconds.
//
// client-go gets a resourcelock.Interface that keeps its record in one object and swaps
// it by version, like an API server; and once more the lock of package kubelock. Its settings
// are the recommended 15, 10 and 2 seconds. It has its own build tag because it takes minutes
// to compile.
//
// TestProcesses measures hand-overs between real processes on versitygw, and writes
// ../results/handover.md (make bench-handover). Its times depend on what else the machine
// does.
//
// The test fails if package leader misses a goal; client-go has none. The cost of
// Term.Check depends on the machine, so it is printed and not checked.
package election
