// Package dirstore keeps objects as plain files in a local directory: the
// embedded default.
//
//	st, err := dirstore.Open("/var/lib/orders", nil)
//	st, err := store.Open(ctx, "file:///var/lib/orders")
//
// # What it guarantees
//
//   - An object is a file, byte for byte, and its key is its relative path. It
//     becomes visible whole or not at all.
//   - Create and swap are atomic between goroutines, handles and processes of one
//     machine. A create is one link(2), which fails if the name is taken. A swap
//     is one rename(2) under a file lock of that key.
//   - An object that was acknowledged, read, listed, or the reason of a refusal survives a
//     crash of the machine. Not only its writer makes its directory entry durable, but
//     also the first process that sees it (see durable.go).
//   - A process may be killed or stopped at any instant. What a killed process leaves
//     behind is invisible, and the first write of a later Store deletes it. A stopped process never blocks
//     reads, listings or creates. If it is stopped in the microseconds of a swap or a
//     delete, it blocks the swaps and deletes of one key in 256, or all deletes. If it is
//     stopped in a listing that met many deletes, it blocks deletes.
//
// # What it needs
//
// A local file system with hard links, flock, atomic rename and times in
// nanoseconds: ext4, XFS, btrfs, ZFS, tmpfs, APFS. Not a network file system:
// caches of attributes and names break read-after-write between machines. On Linux
// Open answers [store.ErrUnsupported] on NFS, SMB, AFS, Coda, NCP, and file systems of clusters such as CephFS, Lustre
// and GPFS; it cannot tell FUSE and 9P from a local one. The
// directory tree is one file system. All processes that write run as the same
// user; others may read, and cannot lock what those who write wait for. Linux, macOS and the BSDs; elsewhere Open answers
// [store.ErrUnsupported].
//
// # What it does not do
//
//   - Keys that differ only in case, or only in Unicode normalisation, are one
//     key where the file system folds them (macOS by default).
//   - A part of a key between slashes has at most 255 bytes, and no key is
//     another's directory ("a" and "a/b"): [store.ErrInvalid].
//   - No symbolic link below the root is followed. A link where a directory of the
//     store should be is [store.ErrInvalid]. A mount is not told from a directory.
//   - A file that has another name elsewhere (a hard link) is an object, and keeps its mode. A copy with
//     hard links (cp -al) does no harm; the lock files of both are the same, so each waits for the other's locks.
//   - An empty directory is nothing. A Put of a key where one is removes it, since a process may have died
//     between the making of a directory and of its first object. Delete removes a directory only if it has deleted the
//     last object there.
//   - Who may search a directory but not list it can get objects. On Linux this is true of the root, too. A List
//     there, and an object whose writer has not made it durable, are [store.ErrDenied].
//   - A Store does not follow its directory, nor change to another one. If the path that it was
//     opened with leads to another directory, or to none, each request fails with
//     [store.ErrNoBucket]: the directory was moved, deleted, or mounted over, or a link
//     to it was switched. Open the store again. A write that the move overtakes is
//     [store.ErrUnknown]. A directory that is copied and then put in the place of the first lacks what was
//     acknowledged in between: stop all writers, or move first and copy then.
//   - A directory below the root that cannot be read makes a List of everything fail, unless it belongs to another user than
//     the folder .fencepost, as lost+found of a volume does. Then it is passed over. A List of a folder always fails.
//   - Symbolic links, directories, devices and files whose names are no valid
//     keys are not objects: not listed, not read, not deleted.
//   - A deleted key can come back after a crash, unless Delete has returned.
//   - A store keeps its root and up to 64 directories that it has used open, besides the
//     files of requests: count them in the limit of open files, also when thousands of logs share a
//     process. Logs that share one store share the 64.
//   - A List by another user than the one who writes cannot block deletes: while they never pause, it tries again until its context ends.
//   - List holds what it found in memory, about 200 bytes a key, and yields it when it
//     holds no lock.
//
// # The folder .fencepost
//
// It holds locks and unfinished writes, and no key maps into it: a key whose
// first part is ".fencepost", in any case, has a "%" appended in the file
// system. Never delete it while processes use the store: they would lock
// different files. The first write makes the folder; a Store that only reads makes
// nothing and deletes nothing. In .fencepost/tmp only files are deleted that a store
// has made.
package dirstore
