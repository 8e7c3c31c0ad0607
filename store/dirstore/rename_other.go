//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

// renameMoves: UFS, ZFS and APFS replace the entry where it is.
func renameMoves(string) (bool, error) { return false, nil }
