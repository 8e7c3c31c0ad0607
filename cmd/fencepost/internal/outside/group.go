package outside

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

const maxMoves = 200

// followGroup watches a group. A look takes a listing, and a request for the format and for each
// member. With three members that is five, so there are two looks a minute. Beside that it looks now
// and then whether the group is still there. Seen: it was read at least once.
func (h *Hub) followGroup(ctx context.Context, i int, st store.Store) (seen bool, err error) {
	ctx, end := context.WithCancel(ctx)
	var other sync.WaitGroup
	defer other.Wait()
	defer end()
	other.Go(func() {
		defer end()
		h.whileGroup(ctx, st)
	})
	var last *group.Status
	moves := []Move{} // not null in JSON, nor are the other lists
	h.mu.Lock()
	if g := h.states[i].Group; g != nil { // seen before a failure
		moves = g.Moves
	}
	h.mu.Unlock()
	slow := &paced{Store: st, Clock: h.clock, pause: h.tick * 3 / 2, attempt: h.settle().Attempt, looked: func(at time.Time) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.states[i].Read = at
	}}
	for s, err := range group.Observe(ctx, slow, &group.Options{Clock: slow}) {
		if err != nil {
			return seen, err
		}
		seen = true
		slow.hurry(unsettled(&s))
		if last != nil {
			moves = append(changes(last, &s, h.clock.Wall()), moves...)
			moves = moves[:min(len(moves), maxMoves)]
		}
		last = &s
		g := &Group{*survey.GroupOf(&s), moves}
		h.update(i, func(s *State) { s.Group, s.Read, s.Err = g, h.clock.Wall(), "" })
	}
	return seen, nil
}

// unsettled reports whether some of a group is as it is for a moment when workers come and go.
func unsettled(s *group.Status) bool {
	return len(s.Moving)+len(s.GivenUp) > 0 || slices.Contains(s.Owners, -1) ||
		slices.ContainsFunc(s.Members, func(m group.Member) bool { return m.Lapsed })
}

// whileGroup returns when there is something else than a group.
func (h *Hub) whileGroup(ctx context.Context, st store.Store) {
	for clock.Sleep(ctx, h.clock, 8*h.tick) == nil {
		kind, _, err := h.kind(ctx, st)
		if err == nil && kind != "group" || errors.Is(err, manifest.ErrNotInitialized) {
			return
		}
	}
}

// changes are the moves between two looks, by the names of members.
func changes(from, to *group.Status, at time.Time) []Move {
	name := func(s *group.Status, p int) string {
		if p >= len(s.Owners) || s.Owners[p] < 0 {
			return ""
		}
		return s.Members[s.Owners[p]].Name
	}
	count := map[[2]string]int{}
	var order [][2]string
	for p := range to.Owners {
		if pair := [2]string{name(from, p), name(to, p)}; pair[0] != pair[1] {
			if count[pair] == 0 {
				order = append(order, pair)
			}
			count[pair]++
		}
	}
	var all []Move
	for _, pair := range order {
		all = append(all, Move{At: at, Partitions: count[pair], From: pair[0], To: pair[1], Assignment: to.Number})
	}
	return all
}
