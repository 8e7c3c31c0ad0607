package dirstore

import (
	"cmp"

	"github.com/fencepost/fencepost/clock"
)

// Options tune a [Store]. The zero value works, and no value is invalid.
type Options struct {
	// NoCreate makes Open return [store.ErrNoBucket] if the directory does not exist; it
	// does not create it then. In a URL: ?create=false.
	NoCreate bool
	// Clock is the machine's by default. It tells the times of objects, and measures the
	// pauses between tries for a lock.
	Clock clock.Clock
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Clock = clock.Or(v.Clock)
	return v
}
