// Package state keeps a log's state in serially numbered, immutable versions:
// where the unfolded chain begins, which segments hold what is folded, which files
// are live, who may write.
//
// # Guarantees
//
// Of two updates one comes after the other and has seen it. An update is applied
// once, also when replies are lost and when version numbers that were pruned are
// filled with junk by zombies. A role whose epoch has been overtaken is fenced:
// its updates fail with fence.ErrFenced. Of one that was under way when that happened
// nobody can say whether it was still applied; none that begins later is.
//
// # How the newest is found
//
// The newest manifest is the highest number of a complete LIST, read with a GET
// that must return the version that the LIST showed. Counting upwards (GET n+1)
// decides nothing: with 51 to 90 pruned, whoever remembers 50 finds 51 absent and
// believes that nothing has changed.
//
// # Lists
//
// A manifest holds the newest entries of its lists itself: segments, seals, files,
// what was dropped. [Updater.Update] moves the rest to pages, immutable objects that
// the manifest names, and uploads them before it publishes; so the size of a manifest
// and the cost of an update do not grow with the log. [Log.Segments], [Log.Seals],
// [Log.Files] and [Log.Dropped] read a list wherever its entries are.
//
// The table is the set of live files and properties. [Edit]s on the chain change it,
// [Change.Fold] applies them when the floor passes them, and [Manifest.Apply] for
// who wants to see further.
//
// # What is kept
//
// Everything that a version names is in the store while the newest prune mark is below
// that version, or a [Pin] holds it. After that [ErrGone] says so; it never reads as
// other data. A pin is an object of its own, so that readers do not write manifests.
// Clocks decide when a pin that is not renewed is taken away, and never whether its
// holder is told.
//
// # Roles
//
// The writer and the compactor each have an epoch of their own and count their
// updates. After creating version n+1 an updater reads the newest again: the
// update took place if and only if the newest carries its count and nonce.
package state
