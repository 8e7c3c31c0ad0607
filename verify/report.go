package verify

import (
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
)

// Report is what was found. It marshals to JSON.
type Report struct {
	// Store is what the store calls itself.
	Store string   `json:"store"`
	Log   fence.ID `json:"log"`
	// Manifest is the version by which the log was judged last.
	Manifest uint64 `json:"manifest"`
	// First is the offset of the first record that is kept, End that behind the
	// last one.
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
	// Floor is where the unfolded chain begins, Tail where it ends.
	Floor fence.Position `json:"floor"`
	Tail  fence.Position `json:"tail"`
	// What was read whole and checked.
	Segments int   `json:"segments"`
	Slots    int   `json:"slots"`
	Seals    int   `json:"seals"`
	Edits    int   `json:"edits"` // on the chain, not folded
	Files    int   `json:"files"` // live, and looked for in a listing
	Lists    int   `json:"lists"`
	Pins     int   `json:"pins"`
	Locks    int   `json:"locks"`
	Bytes    int64 `json:"bytes"`
	// Objects are counted by listing.
	Objects Objects       `json:"objects"`
	Took    time.Duration `json:"took_ns"`

	// Problems are damage. MoreProblems counts those beyond Options.MaxFindings.
	Problems     []Finding `json:"problems"`
	MoreProblems int       `json:"more_problems,omitempty"`
	// Notes are what somebody may want to know and nobody has to act on: what
	// crashed processes and late requests leave behind.
	Notes     []Finding `json:"notes"`
	MoreNotes int       `json:"more_notes,omitempty"`
}

// OK reports whether nothing is wrong.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Finding is one thing that was found.
type Finding struct {
	// Key is the object; empty if it is about none in particular.
	Key string `json:"key,omitempty"`
	// What is wrong, and what it means.
	What string `json:"what"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy,omitempty"`
}

func (f Finding) String() string {
	s := f.What
	if f.Key != "" {
		s = f.Key + ": " + s
	}
	if f.Remedy != "" {
		s += " (" + f.Remedy + ")"
	}
	return s
}

const (
	restore = "restore the object from a backup or an older version of it, if the bucket keeps them; look for lifecycle rules and people that delete below the log"
	keep    = "do not delete anything below the log until it is understood"
)

func (v *verifier) problem(key, remedy, format string, args ...any) {
	add(&v.report.Problems, &v.report.MoreProblems, v.opts.MaxFindings, Finding{key, fmt.Sprintf(format, args...), remedy})
}

func (v *verifier) note(key, remedy, format string, args ...any) {
	add(&v.report.Notes, &v.report.MoreNotes, v.opts.MaxFindings, Finding{key, fmt.Sprintf(format, args...), remedy})
}

// about is what an error says of an object whose key stands beside it.
func about(key string, err error) string {
	s := strings.ReplaceAll(err.Error(), fence.ErrCorrupt.Error()+": ", "")
	return strings.ReplaceAll(s, key+": ", "")
}

func add(to *[]Finding, more *int, limit int, f Finding) {
	for _, have := range *to {
		if have == f {
			return // an object may be looked at twice
		}
	}
	if len(*to) >= limit {
		*more++
		return
	}
	*to = append(*to, f)
}
