// Command bench measures Fencepost beside what it stands on, on this machine, as
// ratios within one run: absolute times of a shared machine mean little.
//
//	go run .                    all measures, some five minutes; writes results/
//	go run . -check             writes nothing; fails if a ratio has become worse by
//	                            more than a tenth of what results/ says
//	go run . -only throughput   some measures; writes nothing
//
// The store is an S3 endpoint in this process, with settable latency and counters.
// Both arms of a comparison use the same client, which has the SDK's defaults, and are
// fed one and the same row of latencies: fixed, or drawn from S3's distribution (PUT
// p50 28 ms, p99 70 ms).
//
//	go test . -run TestServers -v -servers    the same on MinIO and versitygw
//
// Package election, below, measures the election.
package main
