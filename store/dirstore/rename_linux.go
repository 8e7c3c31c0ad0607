package dirstore

import "golang.org/x/sys/unix"

// renameMoves tells whether renaming a file over another may move the
// directory entry to where a reader of the directory does not come any more, so
// that a listing misses an object that was there all the time. btrfs gives the
// entry a new number at the end, and stops reading at what was the end when the
// directory was opened. There a swap is announced to listings as a delete is, at
// a price: what holds up deletes holds up swaps, too.
func renameMoves(root string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return false, pathError("statfs", root, err)
	}
	return uint32(st.Type) == unix.BTRFS_SUPER_MAGIC, nil // the type of Type differs
}
