// Package election measures package leader beside client-go's leaderelection:
// how long a failover takes, whether two lead at once, and what it all costs.
//
//	go test -count=1 -v .                          prints package leader's column
//	go test -count=1 -v -tags clientgo .           prints the table
//	go test -count=1 -v -tags clientgo . -write    and writes it to ../results/election.json
//
// Both elections run on one and the same store in memory, with the same delays,
// the same crashes and the same partitions, in the virtual time of
// testing/synctest: a validity is 15 s, nothing is scaled down, and hours pass in
// seconds. client-go gets a resourcelock.Interface that keeps its record in one
// object and swaps it by version, as an API server does. Its settings are those
// that it recommends, 15, 10 and 2 seconds. It has a tag of its own since compiling
// it takes minutes, of which those who test package leader need none.
//
// The test fails if package leader misses a goal; nothing is asked of others. What
// depends on the machine, the price of Term.Check, is told and not judged.
package election
