package memstore

import "github.com/fencepost/fencepost/clock"

// Options of [New]. The zero value works.
type Options struct {
	// ContentVersions makes the version of an object the MD5 of its body in
	// quotes, as many S3 servers do it: objects with equal bodies have equal
	// versions, also at different times. Without it no version comes twice.
	ContentVersions bool
	// Seed makes the order of listings, and whether they ignore StartAfter, a
	// function of the seed and of how many listings went before, so that a
	// simulation can be repeated. Each listing is then sorted before it is
	// shuffled. 0 means another order every time.
	Seed uint64
	// Clock tells the Date and the LastModified of objects by its Wall; the
	// machine's by default.
	Clock clock.Clock
	// Name stands in Traits; "mem://" by default.
	Name string
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	v.Clock = clock.Or(v.Clock)
	if v.Name == "" {
		v.Name = "mem://"
	}
	return v
}
