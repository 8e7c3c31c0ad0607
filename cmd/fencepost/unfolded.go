package main

import (
	"context"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

const (
	// manyUnfolded is how many objects of a log that no compactor has folded are worth a
	// warning. A compactor that runs leaves some hundred.
	manyUnfolded = 4096
	// mostUnfolded bounds the listing: beyond it the exact number does not matter.
	mostUnfolded = 10_000
)

// warnUnfolded says that nobody seems to compact a log. It costs three requests, and ten more
// at most. It is only a warning, so it fails in silence: the verb finds out what is wrong.
func (a *app) warnUnfolded(ctx context.Context, st store.Store) {
	log, err := state.Open(ctx, st, nil)
	if err != nil {
		return
	}
	floor, err := log.Floor(ctx)
	if err != nil {
		return
	}
	n := 0
	for info, err := range st.List(ctx, layout.DataPrefix, &store.ListOptions{StartAfter: layout.DataKey(floor)}) {
		if err != nil {
			return
		}
		if p, ok := layout.ParseDataKey(info.Key); ok && floor.Before(p) {
			n++
		}
		if n > mostUnfolded {
			a.con.note("warning: more than %d objects of the log are not folded; %s", mostUnfolded, foldAdvice)
			return
		}
	}
	a.noteUnfolded(n + 1)
}

// noteUnfolded warns if at least n objects that are not folded are many.
func (a *app) noteUnfolded(n int) {
	if n >= manyUnfolded {
		a.con.note("warning: %d objects of the log are not folded; %s", n, foldAdvice)
	}
}

// unfolded is how many objects are not folded, as far as the positions tell: those of the epochs
// between floor and tail are not counted.
func unfolded(s *survey.Survey) int {
	n := s.Tail.Seq - 1
	if f := s.Manifest.Floor; f.Epoch == s.Tail.Epoch {
		n = s.Tail.Seq - f.Seq
	}
	return int(n)
}

const foldAdvice = "reading and verifying it take long. Does a compactor run? See fencepost help compact"
