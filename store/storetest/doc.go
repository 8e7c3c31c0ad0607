// Package storetest is the conformance suite for drivers: it tests what package store asks
// of a [store.Store]. A driver in another module runs it too, as the example does.
//
// It races writers over separate clients, since a condition that only holds without
// concurrency is worth nothing (T11).
//
// # What it misses
//
// A driver that passes is not proven correct: a run sees only some interleavings of a race. If a
// store answers within 50 µs, the writes of a race hardly overlap. Then all clients also write as
// fast as they can, for a second (with Options.Quick for a quarter of one): CreateRace creates key
// after key, and SwapRace swaps one key. SwapChain goes on until a swap is refused.
//
// That finds a store in memory that locks its mutex, checks, unlocks, locks again and writes.
// We ran both checks 10 times against such stores, on two processors that were also busy with
// other tests:
//
//	between check and write      2 processors   GOMAXPROCS=1   before, with 2 and 1
//	nothing                      40 of 40       30 of 40       11 of 40, 0 of 40
//	the body is copied           40 of 40       35 of 40       13 of 40, 0 of 40
//	20 µs of sleep               40 of 40       40 of 40       40 of 40, 40 of 40
//
// (TestOdds, half with the race detector.) If no two writes have overlapped, the suite says so in
// its log, which go test -v shows: the race has tested nothing then. Run it again on a machine
// with two free processors.
//
// The suite itself is tested: its own tests break a correct store in dozens of ways, and it
// must fail on each. It does not test durability, nor a delete that meets a swap, nor stores that
// fail; for the latter see package faultstore. ListAndDeleteMany lists 2,100 keys, T37_ListNewest
// 1,100, and with Options.Quick 1,100 and 300: on a store with larger pages they test single pages.
//
// No result depends on how long something takes, and the suite never sleeps. It deletes what it
// wrote.
package storetest
