package assign

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
)

// steady is what a long history of changes leads to, in which each assignment moves
// `each` partitions, whichever: as if owners gave them up at random. No history of joins and
// ends is as bad, since those move neighbours together.
func steady(partitions, members, each int, rng *rand.Rand) *Assignment {
	a := New(name(-1), partitions, 0)
	a.index = map[fence.ID]int{}
	for i := range members {
		a.members = append(a.members, Member{Name: name(i), Weight: 1})
		a.index[name(i)] = i
	}
	a.number = 1
	for p := range a.owners {
		a.owners[p], a.tenures[p] = int32(p*members/partitions), 1
	}
	highest := uint64(1)
	for range 6 * partitions / each {
		a.number++
		tenure := a.number
		if each*fewMoves < partitions {
			tenure = highest // as Next has it
		}
		for range each {
			p := rng.IntN(partitions)
			if a.tenures[p] >= tenure {
				a.tenures[p] = a.number
			} else {
				a.tenures[p] = tenure
			}
			a.owners[p], highest = int32(rng.IntN(members)), max(highest, a.tenures[p])
		}
	}
	return a
}

// limits are the sizes that are promised for MaxPartitions, by members.
var limits = map[int]int{100: 300_000, 1000: 600_000}

func checkSize(t *testing.T, what string, a *Assignment) {
	t.Helper()
	got, members := len(a.Encode()), len(a.Members())
	limit := limits[100]
	if members > 200 {
		limit = limits[1000]
	}
	t.Logf("%-32s %8d bytes, %d members, %d entries", what, got, members, len(a.entries))
	if got > limit {
		t.Errorf("%s: %d bytes; the limit is %d", what, got, limit)
	}
}

// TestSize measures assignments after many changes by the planner.
func TestSize(t *testing.T) {
	for members := range limits {
		for _, requests := range []int{0, 2000} {
			g := newGroup(t, MaxPartitions)
			rng := rand.New(rand.NewPCG(uint64(members), uint64(requests)))
			g.join(members, 1)
			g.next()
			checkSize(t, "fresh", g.a)
			for i := range test.Of(25, 100) {
				g.churn(rng, members, requests)
				if i%25 == 24 {
					checkSize(t, fmt.Sprintf("%d rounds, %d requests each", i+1, requests), g.a)
				}
			}
			// Everybody leaves, and nobody has acknowledged that.
			g.cleared = func(int, Entry) bool { return false }
			for i := range g.members {
				g.end(i, Leaving)
			}
			g.next()
			checkSize(t, "all left", g.a)
		}
	}
}

// TestSizeAfterLongHistories measures what would take the planner hours to make, and then
// a change of half of the members that nobody has acknowledged. With one move in each of
// 600,000 assignments, each partition would have another tenure, which alone are 220 KB of information. So small assignments
// share a tenure.
func TestSizeAfterLongHistories(t *testing.T) {
	for members := range limits {
		for _, each := range []int{1, 10, 100, 1000} {
			g := newGroup(t, 0)
			g.a = steady(MaxPartitions, members, each, rand.New(rand.NewPCG(1, 1)))
			g.cleared = func(int, Entry) bool { return false }
			what := fmt.Sprintf("%d members, %d moves each", members, each)
			checkSize(t, what, g.a)
			for i, m := range g.a.members {
				g.members = append(g.members, MemberNews{Name: m.Name, Weight: 1, State: State(i % 2)})
			}
			g.joined = members
			g.join(members/2, 1)
			g.next()
			checkSize(t, what+", half leave", g.a)
		}
	}
}
