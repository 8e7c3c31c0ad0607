// Package compactor folds a log into segments and deletes what is no longer
// needed.
//
// # Guarantees
//
// Compaction never changes the history: the same records stay at the same offsets,
// before, during and after it. This holds if a compactor dies at any request, if two
// run at once, and if one wakes up after a month. A compactor deletes an object only
// after a durable manifest has made it unnecessary. It never touches an object whose
// name it does not understand.
//
// The seal of each epoch stays for ever, because it stops the zombies of that epoch.
// A seal has 128 bytes.
//
// # What it does
//
//   - Fold: the objects of the chain from the floor on become a segment, and their
//     edits become part of the table. A manifest with a higher floor names both.
//   - Merge: neighbouring segments become one, if the result is of a larger size
//     class. So a record is written a bounded number of times.
//   - Truncate: records beyond the bounds of [Retain] are given up, the oldest first.
//   - Prune: what nothing needs any more is deleted after the log's grace period.
//     These are objects before the floor, old manifests, objects that a manifest has
//     dropped and no pin holds, orphans of compactors and leaders that died, and old
//     locks.
//
// The grace period is for readers that still use an older manifest. On stores whose
// listings are not atomic it also serves safety: a replaced manifest must outlive every
// listing that began before. Nothing else depends on a clock.
//
// # How to run it
//
// [Compactor.Once] is for a job that is started now and then. [Compactor.Run] is for
// a background process, or for a goroutine beside a leader. Both elect one compactor
// among all processes, unless [Options.Token] holds a token from elsewhere.
package compactor
