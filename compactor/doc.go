// Package compactor folds a log into segments and deletes what is no longer
// needed.
//
// # Guarantees
//
// The history stays what it is: the same records at the same offsets, before,
// during and after, also when a compactor dies at any request, when two run at
// once, and when one wakes up after a month. Nothing is deleted before a durable
// manifest has made it unnecessary, and nothing whose name the compactor does not
// understand is ever touched.
//
// Seals stay for ever: each is what stops the zombies of its epoch. They are 128
// bytes a leadership.
//
// # What it does
//
// Fold: the objects of the chain from the floor on become a segment, and its edits
// the table; a manifest with a higher floor names both. Merge: segments that follow
// each other become one, if it rises a level by its size, so that a record is
// written a bounded number of times. Retain: history beyond the owner's bounds is given
// up. Prune: objects behind the floor, manifests, what manifests have dropped and no pin
// holds, orphans of compactors and leaders that died, old lock files; each after the
// log's grace period, so that readers that follow an older manifest are not
// disturbed. Grace serves their comfort; safety depends on no clock.
//
// It runs as a job now and then ([Compactor.RunOnce]), in the background or beside a
// leader ([Compactor.Run]), each with an election of its own, or under a token from
// elsewhere ([Compactor.Once]). The examples show the first two.
package compactor
