package store

import "context"

// UploadAborter is a [Store] in which an upload that broke off can leave parts
// behind, which nobody sees and somebody pays for. A store that wraps another one
// implements it with [AbortUploads]. Drivers whose leftovers are objects with names
// of their own, or that sweep them themselves, need not.
type UploadAborter interface {
	// AbortUploads ends those uploads for keys that begin with prefix which are not
	// complete and which doomed picks, and returns how many. Of the Info that doomed
	// is given Key is that of the object to be, LastModified when its upload began,
	// and Date the store's clock when it answered. Who is still uploading gets an
	// error. What is complete is not touched, nor is what begins meanwhile.
	// Prefix is empty or ends in "/".
	AbortUploads(ctx context.Context, prefix string, doomed func(Info) bool) (int, error)
}

// AbortUploads calls st's method if it is an [UploadAborter]; otherwise there is
// nothing to end.
func AbortUploads(ctx context.Context, st Store, prefix string, doomed func(Info) bool) (int, error) {
	if a, ok := st.(UploadAborter); ok {
		return a.AbortUploads(ctx, prefix, doomed)
	}
	return 0, nil
}
