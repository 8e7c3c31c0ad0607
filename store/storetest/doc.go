// Package storetest is the conformance suite of drivers: what package store
// asks of a [store.Store], as tests. A driver outside this module runs it too:
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
// It races writers over separate clients, since a store that keeps its
// conditions only for one writer after the other keeps nothing (T11).
//
// That a driver passes is evidence, not proof: of a race only some
// interleavings come to pass in a run. What the suite does find is tested as
// well: its own tests break a correct store in dozens of ways, and the suite
// must fail on each. Durability is not its subject; nor are stores that fail,
// for which there is package faultstore.
//
// The suite asserts nothing about absolute times and sleeps nowhere. It leaves
// nothing behind in the store.
package storetest
