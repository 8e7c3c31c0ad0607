package probe

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/store"
)

var (
	// ErrRefused: the store breaks a promise that Fencepost needs.
	ErrRefused = errors.New("probe: store refused")
	// ErrInconclusive: the store failed or timed out so often that its promises could not
	// be tested.
	ErrInconclusive = errors.New("probe: the store failed too often to tell whether it keeps its promises")
)

// The promises, as they stand in Error.Promise and Report.Kept.
const (
	Create       = "a create is refused if the key exists"
	CreateAtomic = "of concurrent creators of one key exactly one wins"
	Swap         = "a swap takes place only at the version named"
	SwapMissing  = "a swap of a key that does not exist is refused"
	SwapAtomic   = "of concurrent swappers of one version exactly one wins"
	OneVersion   = "writing, reading and listing name the same version"
	ReadWrite    = "a read sees every write that has returned"
	ListWrite    = "a listing sees every write that has returned"
	Pages        = "a listing of several pages shows each object once, and ends"
	Ranges       = "a range of an object can be read"
	Uploads      = "a streamed upload appears whole"
	Stays        = "what has been decided stays so"
)

// promises is how many there are.
const promises = 12

// Error says which promise is broken. It is [ErrRefused].
type Error struct {
	// Store is the store's own name.
	Store string
	// Promise is one of the constants of this package.
	Promise string
	// Observed is what was seen: "8 creators raced, 3 were told that they won".
	Observed string
	// Hint says what to do.
	Hint string
	// Err is the store's error; may be nil.
	Err error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("probe: store %s refused: it breaks the promise %q: %s", e.Store, e.Promise, e.Observed)
	if e.Err != nil {
		s += fmt.Sprintf(": %v", e.Err)
	}
	return s + " (" + e.Hint + ")"
}

// Unwrap returns [ErrRefused] and the store's error.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrRefused}
	}
	return []error{ErrRefused, e.Err}
}

const (
	hintConditions = "conditional writes (If-None-Match: *, If-Match) do not work here and data would be lost; " +
		"update the server, switch them on if it has a setting, remove a proxy that drops headers, or use another store"
	hintAtomic = "the server tests conditions and writes in two steps, and data would be lost; " +
		"update it, run a single instance of it if it is not built for several on one directory, or use another store"
	hintConsistent = "a read came from something older than the last write; remove caches and read replicas, or use another store"
	hintPages      = "the server, or a proxy before it, gives wrong pages of long listings, and a log would seem to end where it does not; " +
		"update it, or use another store"
	hintDriver = "the driver or the server treats the request wrongly; update both, and report it if that does not help"
)

// failed adds a hint to an error of the store that tells nothing about its promises.
func failed(what string, err error) error {
	var hint string
	switch {
	case errors.Is(err, store.ErrDenied):
		hint = "the credentials need to get, put, list and delete below tmp/"
	case errors.Is(err, store.ErrNoBucket):
		hint = "create the bucket first, or correct its name"
	case errors.Is(err, store.ErrInvalid):
		hint = "see the store's URL and options"
	default:
		return fmt.Errorf("%w: %s: %w (check that the endpoint is right and reachable, and try again; nothing was decided)", ErrInconclusive, what, err)
	}
	return fmt.Errorf("probe: %s: %w (%s)", what, err, hint)
}
