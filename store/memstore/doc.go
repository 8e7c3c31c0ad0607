// Package memstore keeps objects in the memory of one process: for tests,
// simulations and benchmarks.
//
// It guarantees what [store.Store] asks for. Conditions hold atomically for each key, and
// reads and listings see every write that returned before they began. A listing is a
// snapshot of one instant.
//
// Nothing survives the process, and no other process sees the objects.
//
// Where the contract leaves a store free, this one uses the freedom, so that no code comes
// to rely on more. Listings come in random order, one in two ignores StartAfter, and
// versions have no order. Code that passes its tests here needs no more than S3's
// directory buckets offer.
//
// [New] makes a store that is not shared. The URL mem://name, opened by [store.Open], names
// one that is shared within the process:
//
//	a, _ := store.Open(ctx, "mem://orders")
//	b, _ := store.Open(ctx, "mem://orders") // the same objects
package memstore
