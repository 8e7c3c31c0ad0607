package main

import (
	"context"
	"strconv"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
)

const (
	// manyUnfolded is how many objects of a log that no compactor has folded are worth a
	// warning. A compactor that runs leaves some hundred.
	manyUnfolded = 4096
	// mostUnfolded bounds the listing: beyond it the exact number does not matter.
	mostUnfolded = 10_000
)

// listUnfolded counts the objects from the floor on. It stops after mostUnfolded, and then reports
// that there are more. After an error it returns 0.
func listUnfolded(ctx context.Context, st store.Store, floor fence.Position) (n int, more bool) {
	for info, err := range st.List(ctx, inspect.Data.Prefix(), survey.After(floor)) {
		if err != nil {
			return 0, false
		}
		if p := inspect.Parse(info.Key); p.Kind != inspect.Data || p.Slot.Before(floor) {
			continue
		}
		if n++; n > mostUnfolded {
			return mostUnfolded, true
		}
	}
	return n, false
}

// noteUnfolded warns if n objects that are not folded are many, and tells whether they are.
func (a *app) noteUnfolded(n int, more bool) bool {
	if n < manyUnfolded {
		return false
	}
	objects := strconv.Itoa(n)
	if more {
		objects = "more than " + objects
	}
	a.con.note("warning: %s objects of the log are not folded; %s", objects, foldAdvice)
	return true
}

// unfoldedNotice is the warning of one run of status, which with --watch looks many times.
type unfoldedNotice struct {
	app    *app
	warned bool
	// listed is how many records or objects were not folded when they were listed last.
	listed uint64
}

// look warns once, as soon as many objects are not folded.
func (u *unfoldedNotice) look(ctx context.Context, st store.Store, s *survey.Log) {
	if u.warned {
		return
	}
	floor := s.Floor
	if floor.Epoch == s.Tail.Epoch {
		u.warned = u.app.noteUnfolded(int(s.Tail.Seq-floor.Seq), false)
		return
	}
	// Only a listing tells how many objects the epochs before the tail's have. A small log needs
	// none. Nor does status --watch list a log of large objects at each look. An object with an
	// edit of the table has no records, so the objects of the last epoch count too.
	size := max(s.End-s.FloorOffset, s.Tail.Seq-1)
	if size < manyUnfolded || size < 2*u.listed {
		return
	}
	u.listed = size
	u.warned = u.app.noteUnfolded(listUnfolded(ctx, st, floor))
}

const foldAdvice = "reading and verifying it take long. Does a compactor run? See fencepost help compact"
