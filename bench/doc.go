// Command bench measures Fencepost beside what it stands on, on this machine, as
// ratios within one run: absolute times of a shared machine mean little.
//
//	go run .                    all measures; writes results/
//	go run . -check             writes nothing; fails if a ratio has become worse by
//	                            more than a tenth of what results/ says, or if a row
//	                            that is there is not measured any more
//	go run . -only history      a page
//	go run . -only throughput   some measures of the writer's page, by their names in
//	                            main.go; prints them
//
// What has become worse is measured again, up to three times in all, and the best counts:
// a regression is there each time, a bad moment of a shared machine is not.
//
// There are four pages: writer, which the command makes itself; opening, against a leader
// that never stops, made by TestOpening in virtual time; history, with manifest,
// compactor, reader and simulation, made by the tests of package history; and servers,
// appends on MinIO and versitygw, made by TestServers.
//
// The writer's store is an S3 endpoint in this process, with settable latency and
// counters. Both arms of a comparison use the same client, which has the SDK's defaults,
// and are fed one and the same row of latencies: fixed, or drawn from S3's distribution
// (PUT p50 28 ms, p99 70 ms).
//
// Package election, below, measures the election.
package main
