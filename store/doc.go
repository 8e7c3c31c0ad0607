// Package store is the contract between Fencepost and an object store.
//
// # What a store must keep
//
// Per key, atomically and with strong consistency: create-if-absent,
// compare-and-swap on a version, read after write, list after write. Nothing
// else is relied on: no order of listings, no MD5 ETags, no conditional delete,
// no user metadata. Package probe asks a live bucket whether it keeps this.
//
// # Three outcomes
//
// A conditional write is applied, refused or of unknown outcome, and unknown is
// not a kind of refused: the request may have been applied although its reply
// was lost, and it may yet land, long after its sender has given up. [Create]
// and [Swap] settle it; they are the only code that sends a write a second
// time, and they send identical bytes to the same key, always.
//
// # Drivers
//
// A driver implements [Store] and registers a URL scheme; see s3store, dirstore
// and memstore. Package storetest holds the suite that every driver must pass,
// and faultstore wraps one with faults.
package store
