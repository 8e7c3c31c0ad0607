// Package lease is the election's state machine: an event and an instant go in,
// the next action comes out. It does no I/O, starts no goroutines, and gets
// clock readings and random numbers from its caller. The same events at the same
// instants give the same actions, so testdata can script any interleaving.
//
// [Candidate] finds the newest lock, waits until it is free or lapsed, and takes
// over; or it only observes. [Leader] begins with a won lock and ends when that
// lock is released or lost. Package leader is their driver: it carries the
// actions out on a store and reports the outcomes as events.
//
// The driver finishes one action before it reports the next event. The exception
// is a Leader's write: other signals may come while it is in flight.
package lease
