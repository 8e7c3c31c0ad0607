package memstore

import (
	"cmp"

	"github.com/fencepost/fencepost/clock"
)

// Options of [New]. The zero value works, and no value is invalid.
type Options struct {
	// ContentVersions makes the version of an object the MD5 of its body in quotes, as many
	// S3 servers do. Then objects with equal bodies have equal versions, at all times.
	// Without it no version comes twice.
	ContentVersions bool
	// Seed makes listings repeatable: their order, and whether they ignore StartAfter,
	// depend only on the seed and on the number of listings before. 0 means another order
	// every time.
	Seed uint64
	// Clock tells the time of day for Date and LastModified; the machine's by default.
	Clock clock.Clock
	// Name is that of Traits; "mem://" by default.
	Name string
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Clock = clock.Or(v.Clock)
	v.Name = cmp.Or(v.Name, "mem://")
	return v
}
