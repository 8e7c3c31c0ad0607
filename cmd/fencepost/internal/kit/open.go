package kit

import (
	"context"

	"github.com/fencepost/fencepost/store"
)

// Hints for a store that only one process sees, such as mem://. Probe makes no log there.
const (
	GoneHint  = "a log there would be gone with this process; write file:///dir or s3://bucket/prefix"
	ProbeHint = "only the process that opens this store sees it; to probe it, call probe.Run in a test of your program"
)

// Open opens a store for the command line.
func Open(ctx context.Context, url string) (store.Store, error) {
	st, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	if t := st.Traits(); !t.MultiProcess {
		return nil, &store.Error{Op: "open", Key: t.Name, Kind: store.ErrInvalid,
			Hint: GoneHint}
	}
	return st, nil
}
