// Package state keeps a log's state in serially numbered, immutable manifests: where the
// unfolded chain begins, which segments hold what is folded, which files are live, and
// which epochs may write.
//
// # Guarantees
//
// Updates are applied one after the other, and each has seen the one before it. An
// update is applied once, also when answers are lost and when zombies write junk into
// numbers that were pruned. A role that a later epoch has taken is fenced: its updates
// fail with fence.ErrFenced. An update that was in flight at that moment may have been
// applied; no update that begins later is.
//
// # How the newest is found
//
// The newest manifest is the highest number of a complete LIST, read with a GET
// that must return the version that the LIST showed. Counting upwards (GET n+1)
// decides nothing: if 51 to 90 are pruned, a process that remembers 50 finds 51 absent
// and believes that nothing has changed.
//
// # Lists
//
// A manifest has lists of segments, seals, files and dropped objects. It holds the
// latest entries itself. [Updater.Update] moves the others to pages: immutable objects
// that the manifest names, and that are stored before it is published. So the size of a
// manifest and the cost of an update do not grow with the log. [Log.Segments],
// [Log.Seals], [Log.Files] and [Log.Dropped] read both.
//
// # What is kept
//
// Everything that a version names is in the store while the newest prune mark is below
// that version, or a [Pin] holds it. After that the error is [ErrPruned]; no other data is
// ever returned. A pin is an object of its own, so that readers do not write manifests.
// Clocks decide when a pin that is not renewed expires, and never whether its holder is
// told.
//
// # Roles
//
// The writer and the compactor each have an epoch of their own and count their updates.
package state
