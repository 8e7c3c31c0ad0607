//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package dirstore

import (
	"runtime"

	"github.com/fencepost/fencepost/store"
)

// Store cannot be opened on this platform.
type Store struct{ store.Store }

// Open answers [store.ErrUnsupported] on this platform.
func Open(dir string, _ *Options) (*Store, error) {
	return nil, &store.Error{Op: "open", Key: dir, Kind: store.ErrUnsupported,
		Hint: "directories are not supported on " + runtime.GOOS + ", which has no flock; use an object store or mem://"}
}
