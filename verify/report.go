package verify

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
)

// Report is what was found. It marshals to JSON.
type Report struct {
	// Store is the store's name for itself.
	Store string   `json:"store"`
	Log   fence.ID `json:"log"`
	// Manifest is the newest version that was read.
	Manifest uint64 `json:"manifest"`
	// First is the offset of the first record that is left, End the number of all
	// records.
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
	// Floor is where the unfolded chain begins, Tail where it ends.
	Floor fence.Position `json:"floor"`
	Tail  fence.Position `json:"tail"`
	// Part of Parts was read, as Options say; 0 if everything was.
	Part  int `json:"part,omitempty"`
	Parts int `json:"parts,omitempty"`
	// What was read whole and checked.
	Segments int   `json:"segments"`
	Slots    int   `json:"slots"`
	Seals    int   `json:"seals"`
	Edits    int   `json:"edits"` // on the chain, not folded
	Files    int   `json:"files"` // live, and looked up in a listing
	Lists    int   `json:"lists"`
	Pins     int   `json:"pins"`
	Locks    int   `json:"locks"`
	Bytes    int64 `json:"bytes"`
	// Objects counts all objects by their kinds: "format", "lock", "compactor-lock",
	// "manifest", "data", "segment", "list", "pin", "file", "tmp", "unknown".
	Objects map[string]Count `json:"objects"`
	Took    time.Duration    `json:"took_ns"`

	// Problems are damage. MoreProblems counts those beyond Options.MaxFindings.
	Problems     []Finding `json:"problems"`
	MoreProblems int       `json:"more_problems,omitempty"`
	// Notes need no action: they are what crashed processes and late requests leave in
	// the store.
	Notes     []Finding `json:"notes"`
	MoreNotes int       `json:"more_notes,omitempty"`
}

// Count is a number of objects and the sum of their sizes.
type Count struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// String returns the number and the sum.
func (c Count) String() string {
	if c.Objects == 1 {
		return fmt.Sprintf("1 object, %d B", c.Bytes)
	}
	return fmt.Sprintf("%d objects, %d B in all", c.Objects, c.Bytes)
}

func (c Count) and(size int64) Count { return Count{c.Objects + 1, c.Bytes + size} }

// OK reports whether nothing is wrong, or all of it was repaired.
func (r *Report) OK() bool {
	return r.MoreProblems == 0 && !slices.ContainsFunc(r.Problems, func(f Finding) bool { return !f.Repaired })
}

// Finding is one thing that was found.
type Finding struct {
	// Key is the object; empty if the finding is about none in particular.
	Key string `json:"key,omitempty"`
	// What is wrong, and what that means.
	What string `json:"what"`
	// Remedy is what to do about it.
	Remedy string `json:"remedy,omitempty"`
	// Repair is what Options.Repair does about it, empty if there is nothing. Repaired says
	// that it was done.
	Repair   string `json:"repair,omitempty"`
	Repaired bool   `json:"repaired,omitempty"`
}

func (f Finding) String() string {
	s := f.What
	if f.Key != "" {
		s = f.Key + ": " + s
	}
	switch {
	case f.Repaired:
		s += " (repaired: " + f.Repair + ")"
	case f.Remedy != "":
		s += " (" + f.Remedy + ")"
	}
	return s
}

const (
	restore = "restore the object from a backup or an older version of it, if the bucket keeps them; look for lifecycle rules and people that delete below the log"
	keep    = "do not delete anything below the log until it is understood"
)

func (v *verifier) problem(key, remedy, format string, args ...any) {
	add(&v.report.Problems, &v.report.MoreProblems, v.opts.MaxFindings, Finding{Key: key, What: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (v *verifier) note(key, remedy, format string, args ...any) {
	add(&v.report.Notes, &v.report.MoreNotes, v.opts.MaxFindings, Finding{Key: key, What: fmt.Sprintf(format, args...), Remedy: remedy})
}

// about is the text of an error without what the finding says anyway.
func about(key string, err error) string {
	if d := (*chain.DamagedError)(nil); errors.As(err, &d) {
		err = d.Err
	}
	s := strings.ReplaceAll(err.Error(), fence.ErrCorrupt.Error()+": ", "")
	return strings.ReplaceAll(s, key+": ", "")
}

func add(to *[]Finding, more *int, limit int, f Finding) {
	switch {
	case slices.Contains(*to, f): // an object may be read twice
	case len(*to) >= limit:
		*more++
	default:
		*to = append(*to, f)
	}
}
