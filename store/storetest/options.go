package storetest

// Options describe what a driver reports that it lacks, and the scale. The zero
// value asks for everything.
type Options struct {
	// Quick runs fewer rounds: for slow stores, and beside other tests.
	Quick bool
	// Clients is how many writers race, each over a client of its own; default
	// and at most 32, at least 2.
	Clients int
	// UnsureLosers admits that the loser of a race gets an answer of unknown
	// outcome (409, 5xx) instead of [store.ErrPrecondition]. There is still at
	// most one winner, and what is stored is its.
	UnsureLosers bool
	// UploadOverwrites admits that an Upload of several parts with Create
	// replaces an object that exists.
	UploadOverwrites bool
	// LooseListing admits that a listing that runs while keys are created and
	// deleted misses both the newest key deleted and the next one created. Such a
	// store cannot tell the newest manifest; see T37.
	LooseListing bool
	// OldVersions admits that a read beside a write gives a body with the version
	// of an earlier write. A swap that names that version is refused, which costs
	// a round and no safety. A version newer than its body is never admitted: a
	// swap that names it replaces what nobody has seen.
	OldVersions bool
	// UploadVersions admits that an Upload of several parts returns a version that
	// is not the one that reads and listings show.
	UploadVersions bool
	// LeaveOutKey reports odd keys that the store is known not to take; nil means
	// none.
	LeaveOutKey func(key string) bool
}

const maxClients = 32

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Clients <= 0 || v.Clients > maxClients {
		v.Clients = maxClients
	}
	v.Clients = max(v.Clients, 2)
	if v.LeaveOutKey == nil {
		v.LeaveOutKey = func(string) bool { return false }
	}
	return v
}
