package verify

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of [Run]. The zero value works, and so does nil.
type Options struct {
	// Copy says that the log is a copy of one version, such as a backup: older versions
	// may be missing, although the prune mark has not passed them.
	Copy bool
	// NoContent leaves out the content of the table's files, which is most of the bytes in a
	// log with a table: then only their sizes are checked.
	NoContent bool
	// MaxFindings bounds how many problems, and how many notes, a report lists; default
	// 1,000. The others are counted.
	MaxFindings int
	Hooks       Hooks
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Hooks are called outside locks, one call at a time; each may be nil. Run waits for
// them.
type Hooks struct {
	// Progress is called some times a second.
	Progress func(Progress)
}

// Progress tells how far a verification is.
type Progress struct {
	// Stage is what is being read, in this order: "segments", "chain", "files", "pins",
	// "seals", "objects".
	Stage string
	// Done and Total count bytes in "segments" and "chain", objects otherwise. Total is 0
	// if it is not known.
	Done, Total int64
}

// Validate returns what is wrong with the options, as [Run] does: [ErrOptions].
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var bad []error
	if o.MaxFindings < 0 {
		bad = append(bad, fmt.Errorf("%w: MaxFindings %d must not be negative", ErrOptions, o.MaxFindings))
	}
	if err := o.Settle.Validate(); err != nil {
		bad = append(bad, fmt.Errorf("%w: Settle: %w", ErrOptions, err))
	}
	return errors.Join(bad...)
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.MaxFindings = cmp.Or(v.MaxFindings, 1000)
	if v.Hooks.Progress == nil {
		v.Hooks.Progress = func(Progress) {}
	}
	v.Clock = clock.Or(v.Clock)
	return v
}
