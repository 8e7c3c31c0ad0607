package verify

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"

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
	// Part and Parts make a scrub: of segments, files and seals only part Part of Parts is
	// read, 1 to Parts, chosen by the names of the objects. Everything else is checked as
	// always. One part a day, in turn, reads everything once in Parts days. 0: everything.
	Part, Parts int
	// Outline reads no content: each object that something names must be there, with its size, and a slot must be
	// taken from the floor to the last checkpoint. What comes after that is read. Old locks, consumers and lifecycle rules
	// are left out, and so is a second store that Files does not give. It costs a listing, the lists of the manifest, and a request for each epoch that is not folded.
	Outline bool
	// Repair repairs what can be repaired without a guess, and says so in the report: seals before
	// the floor that the manifest names are created again; pages of its lists are written again,
	// if an older version has their entries; and old locks that cannot be read are deleted. With
	// DryRun the report says what it would do.
	Repair, DryRun bool
	// Files is the store for the files of the table, if the log keeps them in a second one: see
	// manifest.InitOptions.Files.
	Files store.Store
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
	// Verified: a run has ended, also one that could not read. Invalid options begin no run.
	Verified func(Verified)
}

// Verified is the event of [Hooks].Verified: what Run is about to return.
type Verified struct {
	Report *Report
	// Err is nil if everything was read that there was to read. Damage is no error.
	Err error
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
	if o.DryRun && !o.Repair {
		bad = append(bad, fmt.Errorf("%w: DryRun goes with Repair", ErrOptions))
	}
	if o.Outline && (o.Repair || o.Parts > 0) {
		bad = append(bad, fmt.Errorf("%w: Outline goes with neither Repair nor Parts", ErrOptions))
	}
	if o.Part != 0 || o.Parts != 0 {
		if o.Parts < 1 || o.Part < 1 || o.Part > o.Parts {
			bad = append(bad, fmt.Errorf("%w: Part %d of %d must be 1 to %d, of at least 1", ErrOptions, o.Part, o.Parts, o.Parts))
		}
	}
	if err := o.Settle.Validate(); err != nil {
		bad = append(bad, fmt.Errorf("%w: Settle: %w", ErrOptions, err))
	}
	return errors.Join(bad...)
}

// due reports whether an object is in the part that is to be read. The part depends on the name
// alone, so that an object is read once in each turn.
func (o *Options) due(key string) bool {
	return !o.Outline && (o.Parts < 2 || crc32.ChecksumIEEE([]byte(key))%uint32(o.Parts) == uint32(o.Part-1))
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
