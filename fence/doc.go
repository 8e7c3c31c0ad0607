// Package fence holds the rules that make a zombie writer harmless: epochs and
// tokens, positions in the log, the frame of a log object, and the chain rule
// that says which objects are the history. It is pure: no I/O, no clock, and it
// imports nothing of the project.
//
// # The chain
//
// Every leader writes serially numbered objects of its own, data/<epoch>/<seq>,
// each created only if absent and never overwritten. A slot holds data, which
// only the leader of its epoch creates, or a seal, which only a successor
// creates and which names the epoch that goes on. The chain starts at slot 1 of
// epoch 0. Data moves one slot on; a seal moves to slot 1 of the epoch that it
// names; an empty slot is the tail. The chain is the history, and what is not on
// it does not exist.
//
// That is the fence: a deposed leader's next slot holds its successor's seal, so
// its create is refused with 412, however long it slept.
//
// # Sinks that are not logs
//
// A [Gate] carries the same idea to other places: it remembers the highest epoch
// seen and refuses lower ones.
package fence
