// Package storetest is the conformance suite for drivers: it tests what package store asks
// of a [store.Store]. A driver in another module runs it too:
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		storetest.Run(t, func(tb storetest.TB) store.Store {
//			st, err := dirstore.Open(dir, nil) // one more client of the same store
//			if err != nil {
//				tb.Fatalf("open: %v", err)
//			}
//			return st
//		}, nil)
//	}
//
// It races writers over separate clients, since a condition that only holds without
// concurrency is worth nothing (T11).
//
// A driver that passes is not proven correct: a run sees only some interleavings of a race.
// The suite itself is tested: its own tests break a correct store in dozens of ways, and it
// must fail on each. It does not test durability, nor stores that fail; for the latter see
// package faultstore.
//
// The suite does not depend on absolute times, and never sleeps. It deletes what it wrote.
package storetest
