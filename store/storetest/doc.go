// Package storetest is the conformance suite for drivers: it tests what package store asks
// of a [store.Store]. A driver in another module runs it too, as the example does.
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
