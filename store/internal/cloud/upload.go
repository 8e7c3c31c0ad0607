package cloud

import "fmt"

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
