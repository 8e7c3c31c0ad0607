// Command bench measures Fencepost against plain calls of the same libraries, on this
// machine. It compares ratios within one run, because absolute times on a shared machine
// mean little.
//
//	go run .                    makes all pages and writes results/
//	go run . -check             writes nothing; fails if a ratio is more than a tenth
//	                            worse than in results/, or if a row is missing
//	go run . -only history      makes one page
//	go run . -only throughput   makes some measures of the writer's page, by their
//	                            names in main.go, and prints them
//
// With -check, a measure that has become worse is repeated, up to three times in all, and
// the best counts. A real regression shows each time; a bad moment of a shared machine
// does not.
//
// There are six pages. The command itself makes writer. TestOpening makes opening: a
// takeover from a leader that never stops, in virtual time. TestPacing makes pacing: when
// the writer sends, beside a serial group commit, in virtual time. The tests of package history
// make history, about manifest, compactor, reader and simulation. TestServers makes
// servers: appends on MinIO and versitygw. The tests of package groups make groups: groups beside
// leases for each partition, in virtual time.
//
// The writer's store is an S3 endpoint in this process, with settable latency and
// counters. Both arms of a comparison use the same client, with the SDK's defaults. Both
// get the same sequence of latencies: fixed, or drawn from S3's distribution (PUT p50 28
// ms, p99 70 ms).
//
// Package election, below, measures the election.
package main
