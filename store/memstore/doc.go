// Package memstore keeps objects in the memory of one process: for tests,
// simulations and benchmarks.
//
// It guarantees what [store.Store] asks for: conditions that hold atomically
// per key, and reads and listings that see every write that returned before
// they began. A listing is a snapshot of one instant.
//
// It does not keep anything when the process ends, and no other process can see
// it. Where the contract leaves a store freedom, it takes it, so that nobody
// comes to rely on what another store will not do: listings come in random
// order, every other one, by chance, ignores StartAfter, and versions have no
// order. So whatever passes its tests on this store needs no more than S3's
// directory buckets offer.
//
// [New] makes a store of one's own; the URL mem://name, opened by
// [store.Open], names one that is shared within the process:
//
//	a, _ := store.Open(ctx, "mem://orders")
//	b, _ := store.Open(ctx, "mem://orders") // the same objects
package memstore
