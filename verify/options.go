package verify

import (
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of [Run]. The zero value works.
type Options struct {
	// Copy says that the log is a copy of one version, such as a backup: the versions
	// before it may be missing, although they are not given up.
	Copy bool
	// MaxFindings bounds how many problems, and how many notes, a report lists;
	// default 1,000. The others are counted.
	MaxFindings int
	// Progress is called now and then, one call at a time. May be nil.
	Progress func(Progress)
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Progress tells how far a verification is.
type Progress struct {
	// Stage is what is being read: "segments", "chain", "seals", "objects".
	Stage string
	// Done and Total are bytes in "segments" and "chain", else objects. Total is 0
	// if it is not known.
	Done, Total int64
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.MaxFindings <= 0 {
		v.MaxFindings = 1000
	}
	if v.Progress == nil {
		v.Progress = func(Progress) {}
	}
	v.Clock = clock.Or(v.Clock)
	return v
}
