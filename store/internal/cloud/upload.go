package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// PartAttempts is how often one part of an upload is sent at most.
const PartAttempts = 4

var errCleanUp = errors.New("no time left to find out the outcome of an upload and to clean up")

// CleanUp returns the context for the work after a failed upload, since the caller's may
// have ended: reading the key and deleting the parts. It ends after 10 s.
func CleanUp(ctx context.Context) (context.Context, context.CancelFunc) {
	return clock.WithTimeout(context.WithoutCancel(ctx), clock.System(), 10*time.Second, errCleanUp)
}

// Parts returns the size of the parts of an upload of about hint bytes, and how many are in
// flight: size and inFlight, or fewer and larger ones if there would be more than most.
func Parts(hint, size int64, inFlight int, most, maxSize int64) (int64, int, error) {
	// A quarter more, since the hint may be low.
	need := (hint + hint/4 + most - 1) / most
	switch {
	case hint < 0 || hint > most*maxSize:
		return 0, 0, fmt.Errorf("a size hint is 0 to %d bytes, not %d", most*maxSize, hint)
	case need <= size:
		return size, inFlight, nil
	}
	larger := min((need+1<<20-1)>>20<<20, maxSize)
	return larger, max(1, int(size*int64(inFlight)/larger)), nil
}
