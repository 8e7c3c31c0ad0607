package assign

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
)

// name is the name of a member, made of its number. It looks random, as a UUID does.
func name(n int) (id fence.ID) {
	r := rand.New(rand.NewPCG(uint64(n), 42))
	binary.LittleEndian.PutUint64(id[:], r.Uint64())
	binary.LittleEndian.PutUint64(id[8:], r.Uint64())
	return id
}

// group is the members as an organiser knows them, and the newest assignment.
type group struct {
	t       testing.TB
	a       *Assignment
	members []MemberNews
	joined  int
	cleared func(p int, e Entry) bool
	nobody  map[int]bool
}

func newGroup(t testing.TB, partitions int) *group {
	return &group{t: t, a: New(name(-1), partitions, 0), cleared: func(int, Entry) bool { return true }}
}

// join adds n members of a weight.
func (g *group) join(n int, weight uint64) {
	for range n {
		g.joined++
		g.members = append(g.members, MemberNews{Name: name(g.joined), Weight: weight})
	}
}

func (g *group) news() *News {
	return &News{Organiser: name(1), Partitions: g.a.Partitions(), Members: g.members, Cleared: g.cleared, Nobody: g.nobody}
}

// next makes the next assignment, and returns false if there is nothing to do. Then it
// forgets the expired members that are listed no more.
func (g *group) next(requests ...Request) bool {
	g.t.Helper()
	news := g.news()
	news.Requests = requests
	return g.plan(news)
}

func (g *group) plan(news *News) bool {
	g.t.Helper()
	next, err := Next(g.a, news)
	if err != nil {
		g.t.Fatal(err)
	}
	if next == nil {
		return false
	}
	g.a = next
	g.members = slices.DeleteFunc(g.members, func(m MemberNews) bool {
		_, listed := next.Index(m.Name)
		return m.State != Live && !listed
	})
	return true
}

// end sets the state of the i-th member.
func (g *group) end(i int, s State) { g.members[i].State = s }

// owner is the name of the owner of a partition, or the zero name.
func owner(a *Assignment, p int) fence.ID {
	if a.Owner(p) == Nobody {
		return fence.ID{}
	}
	return a.Members()[a.Owner(p)].Name
}

// pending is the pending entries of a partition by the names of the members.
func pending(a *Assignment, p int) map[fence.ID]uint64 {
	entries := map[fence.ID]uint64{}
	for _, e := range a.Pending(p) {
		entries[a.Members()[e.Member].Name] = e.Number
	}
	return entries
}

// shares is how many partitions each member owns, by name. Members that own none are left
// out.
func shares(a *Assignment) map[fence.ID]int {
	all := map[fence.ID]int{}
	for p := range a.Partitions() {
		if a.Owner(p) != Nobody {
			all[owner(a, p)]++
		}
	}
	return all
}

// moves counts the partitions that changed their owner.
func moves(from, to *Assignment) (n int) {
	for p := range from.Partitions() {
		if owner(from, p) != owner(to, p) {
			n++
		}
	}
	return n
}

// churn changes the group at random, as weeks of operation may: members join, leave or
// crash, and some owners give partitions up or ask for a fresh tenure.
func (g *group) churn(rng *rand.Rand, members int, requests int) {
	g.t.Helper()
	n := 1 + rng.IntN(2)
	if live := len(g.members); live+n <= members || live < members && rng.IntN(2) == 0 {
		g.join(min(n, members-live), 1)
	} else {
		for _, i := range rng.Perm(len(g.members))[:n] {
			g.end(i, Leaving+State(rng.IntN(2)))
		}
	}
	var all []Request
	for range requests {
		p := rng.IntN(g.a.Partitions())
		all = append(all, Request{Partition: p, Tenure: g.a.Tenure(p), Fresh: rng.IntN(2) == 0})
	}
	g.next(all...)
	for i := range g.members {
		if g.members[i].State == Leaving {
			g.members[i].State = Expired
		}
	}
}

// shareTenures makes assignments share a tenure that move fewer than one partition in so many.
func shareTenures(t *testing.T, few int) {
	before := fewMoves
	t.Cleanup(func() { fewMoves = before })
	fewMoves = few
}

// equal reports whether two assignments say the same.
func equal(a, b *Assignment) bool {
	if a.Group() != b.Group() || a.Number() != b.Number() || a.Maker() != b.Maker() || a.Base() != b.Base() || a.Partitions() != b.Partitions() || !slices.Equal(a.Members(), b.Members()) {
		return false
	}
	for _, m := range a.Members() {
		x, here := a.Index(m.Name)
		y, there := b.Index(m.Name)
		if x != y || !here || !there || a.Members()[x] != m {
			return false
		}
	}
	for p := range a.Partitions() {
		if a.Owner(p) != b.Owner(p) || a.Tenure(p) != b.Tenure(p) || !maps.Equal(pending(a, p), pending(b, p)) || !slices.Equal(a.Pending(p), b.Pending(p)) {
			return false
		}
	}
	return true
}
