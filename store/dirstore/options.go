package dirstore

import "github.com/fencepost/fencepost/clock"

// Options tune a [Store]. The zero value works.
type Options struct {
	// NoCreate makes Open answer [store.ErrNoBucket] if the directory does not
	// exist, instead of creating it. In a URL: ?create=false.
	NoCreate bool
	// Clock is the machine's by default. Its wall time becomes the times of
	// objects; pauses between tries for a lock are measured on it.
	Clock clock.Clock
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	v.Clock = clock.Or(v.Clock)
	return v
}
