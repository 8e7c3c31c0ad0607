package leader

import "github.com/fencepost/fencepost/store"

// This file goes when branch h-leader is merged, which has both.

// Validate returns all faults of the options, each an [ErrOptions], or nil. It does not
// know the limits of a store, which [New] checks as well.
func (o *Options) Validate() error {
	_, err := o.withDefaults(store.Traits{})
	return err
}

// DefaultIdentity returns a new name for a candidate.
func DefaultIdentity() string { return identity() }
