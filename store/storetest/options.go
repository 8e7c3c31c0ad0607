package storetest

import (
	"cmp"
	"fmt"

	"github.com/fencepost/fencepost/store"
)

// Options say what a store is known to lack, and the scale of the suite. The zero value
// tests everything.
type Options struct {
	// Quick runs fewer rounds, for slow stores or among many other tests.
	Quick bool
	// Clients is how many writers race, each over a client of its own: 2 to 32, default 32.
	Clients int
	// UnsureLosers accepts that the loser of a race gets an answer of unknown outcome (409,
	// 5xx) in place of [store.ErrPrecondition]. There must still be at most one winner,
	// whose object is stored.
	UnsureLosers bool
	// UploadOverwrites accepts that an Upload of several parts with Create replaces an
	// object.
	UploadOverwrites bool
	// LooseListing accepts that a listing misses both a key that is deleted meanwhile and
	// the next key that was created before the delete. Such a store cannot tell the newest
	// manifest (T37), so no log can be kept on it.
	LooseListing bool
	// OldVersions accepts that a read during a write gives a body with the version of an
	// earlier write. A swap of that version is refused, which costs a round trip and no
	// safety. A version newer than its body is never accepted: a swap of it would replace
	// an object that nobody has read.
	OldVersions bool
	// UploadVersions accepts that an Upload of several parts returns another version than
	// reads and listings show.
	UploadVersions bool
	// LeaveOutKey reports odd keys that the store is known not to take; nil means none.
	LeaveOutKey func(key string) bool
}

const maxClients = 32

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	if v := o.withDefaults(); v.Clients < 2 || v.Clients > maxClients {
		return fmt.Errorf("%w: storetest: Options.Clients is %d; it must be 2 to %d", store.ErrInvalid, v.Clients, maxClients)
	}
	return nil
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Clients = cmp.Or(v.Clients, maxClients)
	if v.LeaveOutKey == nil {
		v.LeaveOutKey = func(string) bool { return false }
	}
	return v
}
