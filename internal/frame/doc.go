// Package frame encodes and decodes the objects of the log, and holds the chain
// rule, which says which of them are the history. It is pure: no I/O and no clock.
//
// # The chain
//
// Every leader writes serially numbered objects of its own, data/<epoch>/<seq>.
// Each is created only if it is absent, and is never overwritten. A slot holds data
// or a seal. Only the leader of the epoch creates data; only a successor creates a
// seal, which names the epoch that goes on.
//
// The chain starts at slot 1 of epoch 0. Data leads to the next slot. A seal leads
// to slot 1 of the epoch that it names. An empty slot is the tail. The chain is the
// history: an object that is not on it does not count.
//
// A deposed leader finds its successor's seal in its next slot. The store refuses
// its create with 412, however long it slept.
package frame
