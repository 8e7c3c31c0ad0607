// Package lock keeps many short locks in an object store, each under a name of its own.
//
//	locks, err := lock.New(st, "locks", nil)
//	l, err := locks.Acquire(ctx, "invoices/2026-11")
//	defer l.Release(ctx)
//	err = ledger.Write(l.Context(), l.Token(), …) // refuses a lower token
//
// It is for tens of thousands of names, each held for milliseconds or for days. A leader that writes a log, or that
// leads for long, takes package leader instead.
//
// # Guarantees
//
//   - Each acquisition of a name has a greater token than all before it: also after a release, a crash, and a year in
//     which nobody has used the name. No clock decides that.
//   - A name that was released is free at once. A name whose holder has crashed is free when the holder's validity has
//     passed, measured by the elapsed time of the one that waits. No two machines' clocks are compared.
//   - If the rates of all clocks are right to within 5 %, no two processes believe at the same time that they hold a
//     name. At the holder's own deadline the lock's context is cancelled.
//   - Once another process has acquired a crashed holder's name, no heartbeat of that holder is applied any more. The
//     session objects that say so are kept for a day.
//   - Those who wait get the name about in the order in which they came.
//
// # What it does not guarantee
//
// A process may be frozen between its last [Lock.Check] and its next request, while its clock stands still, and go on a
// month later. No lock prevents that. Only the place that receives the write can refuse it: give it the token, and let
// it refuse a lower one (fence.Gate, or a WHERE clause). It is not re-entrant: who acquires a name twice
// waits for itself.
//
// # Cost
//
// Lock and unlock cost a GET and two PUTs. A process sends no heartbeat for locks that it holds for less than 2/5 of the
// validity, and otherwise 10 PUTs a minute for all its locks together. Who waits makes at most 150 GETs a minute. On
// stores that take one write a second of an object, such as Google Cloud Storage, a name changes hands once in two seconds.
//
// # Objects
//
// Names share 4,096 objects, so nothing is left of a name that was released. The README of this folder says how
// it works. Never delete objects below the prefix, also not by a lifecycle rule: tokens would begin again at 1.
package lock
