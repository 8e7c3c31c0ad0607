package assign

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// wantShares compares the shares, from the least to the greatest.
func wantShares(t *testing.T, a *Assignment, want ...int) {
	t.Helper()
	got := a.Shares()
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("shares are %v, want %v", got, want)
	}
}

func TestNothingToDo(t *testing.T) {
	g := newGroup(t, 3)
	if g.next() {
		t.Error("an assignment without a member")
	}
	g.join(1, 0)
	if g.next() {
		t.Error("an assignment for a member that receives nothing")
	}
	g.join(2, 1)
	if !g.next() || g.a.Number() != 1 {
		t.Errorf("number %d", g.a.Number())
	}
	wantShares(t, g.a, 0, 1, 2)
	if g.next() {
		t.Error("a second assignment from the same news")
	}
	// What nobody has heard of is still there.
	if next, err := Next(g.a, &News{}); next != nil || err != nil {
		t.Errorf("without news: %+v, %v", next, err)
	}
}

func TestJoinOfThe101st(t *testing.T) {
	for _, n := range []int{100, 1000, 10_000, 99_999, MaxPartitions} {
		g := newGroup(t, n)
		g.join(100, 1)
		g.next()
		before := g.a
		g.join(1, 1)
		g.next()
		if got, most := moves(before, g.a), (n+100)/101; got > most {
			t.Errorf("%d partitions: %d move, at most %d need", n, got, most)
		}
		if s := g.a.Shares(); slices.Max(s)-slices.Min(s) > 1 {
			t.Errorf("%d partitions: shares of %d to %d", n, slices.Min(s), slices.Max(s))
		}
	}
}

// Ten workers restart one after the other. Each stops, and joins anew.
func TestRollingRestart(t *testing.T) {
	for _, end := range []State{Leaving, Expired} {
		g := newGroup(t, 1000)
		g.join(10, 1)
		g.next()
		moved := make([]int, 1000)
		step := func() {
			before := g.a
			if !g.next() {
				t.Fatal("nothing to do")
			}
			for p := range moved {
				if owner(before, p) != owner(g.a, p) {
					moved[p]++
				}
			}
		}
		for range 10 {
			g.end(0, end)
			step()
			g.join(1, 1)
			if len(g.members) > 10 {
				g.members = g.members[1:]
			}
			step()
		}
		if most := slices.Max(moved); most > 2 {
			t.Errorf("state %d: a partition moved %d times", end, most)
		}
		wantShares(t, g.a, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
	}
}

func TestTheLastOneLeaves(t *testing.T) {
	for _, end := range []State{Leaving, Expired} {
		g := newGroup(t, 5)
		g.cleared = func(int, Entry) bool { return false }
		g.join(1, 1)
		g.next()
		g.end(0, end)
		g.next()
		for p := range 5 {
			if g.a.Owner(p) != Nobody || g.a.Tenure(p) != 0 || g.a.Token(p, 0).Valid() || (len(g.a.Pending(p)) == 1) != (end == Leaving) {
				t.Errorf("partition %d: owner %d, tenure %d, pending %v", p, g.a.Owner(p), g.a.Tenure(p), g.a.Pending(p))
			}
		}
		if g.next() {
			t.Error("one more assignment")
		}
		g.join(1, 1)
		g.next()
		wantShares(t, g.a, slices.Sorted(slices.Values(g.a.Shares()))...)
		if got := shares(g.a)[name(2)]; got != 5 || g.a.Tenure(0) != 3 {
			t.Errorf("the next one owns %d, tenure %d", got, g.a.Tenure(0))
		}
	}
}

func TestWeights(t *testing.T) {
	for _, c := range []struct {
		weights []uint64
		want    []int
	}{
		{[]uint64{0, 0}, []int{}},
		{[]uint64{0, 1}, []int{0, 100}},
		{[]uint64{1, MaxWeight}, []int{0, 100}},
		{[]uint64{1, 5 * MaxWeight}, []int{0, 100}}, // counts as MaxWeight
		{[]uint64{MaxWeight, MaxWeight, 0}, []int{0, 50, 50}},
		{[]uint64{1, 2, 7}, []int{10, 20, 70}},
		{[]uint64{1, 1, 1}, []int{33, 33, 34}},
		{[]uint64{3, 3, 1}, []int{14, 43, 43}},
	} {
		g := newGroup(t, 100)
		for _, w := range c.weights {
			g.join(1, w)
		}
		g.next()
		wantShares(t, g.a, c.want...)
		for _, m := range g.a.Members() {
			if m.Weight > MaxWeight {
				t.Errorf("weight %d is listed", m.Weight)
			}
		}
	}
	// A member's weight falls to 0 while it works.
	g := newGroup(t, 100)
	g.join(2, 1)
	g.next()
	g.members[0].Weight = 0
	g.next()
	wantShares(t, g.a, 0, 100)
}

// guard:request-tenure. The organiser checks the tenure also when it collects the requests; this is the
// last check. Without both: A asks to give its partition up, and the partition goes to B; the organiser
// reads A's request again, and takes the partition from B, whose work is sound; this happens again with
// each new owner.
func TestGivenUp(t *testing.T) {
	g := newGroup(t, 3)
	g.join(1, 1)
	g.next()
	give := func(p int, avoid ...fence.ID) Request {
		return Request{Partition: p, Tenure: g.a.Tenure(p), Avoid: avoid}
	}
	if g.next(give(0)) {
		t.Error("nobody else is there, and it moves")
	}
	g.join(2, 1)
	g.next()
	if from := owner(g.a, 0); !g.next(give(0)) || owner(g.a, 0) == from {
		t.Errorf("partition 0 belongs to %s again", from)
	}
	wantShares(t, g.a, 1, 1, 1)
	late := give(0)
	if from := owner(g.a, 0); !g.next(give(0, name(1), name(2), name(3))) == (owner(g.a, 0) != from) {
		t.Errorf("all are to be avoided, and it went from %s to %s", from, owner(g.a, 0))
	}
	last := name(1)
	for _, n := range []int{2, 3} {
		if owner(g.a, 0) != name(n) {
			last = name(n)
		}
	}
	avoid := slices.DeleteFunc([]fence.ID{name(1), name(2), name(3)}, func(id fence.ID) bool { return id == last })
	if !g.next(give(0, avoid...)) || owner(g.a, 0) != last {
		t.Errorf("only %s may have it, and %s got it", last, owner(g.a, 0))
	}
	// guard:request-tenure.
	if g.next(late) {
		t.Error("a late request moved it once more")
	}
	// A member that leaves gives one up: that one goes to somebody who may have it.
	i := slices.IndexFunc(g.members, func(m MemberNews) bool { return m.Name == owner(g.a, 1) })
	from := owner(g.a, 1)
	g.end(i, Leaving)
	var not []fence.ID
	for _, m := range g.members {
		if m.State == Live && len(not) == 0 {
			not = append(not, m.Name)
		}
	}
	if !g.next(give(1, not...)) || owner(g.a, 1) == from || owner(g.a, 1) == not[0] {
		t.Errorf("it went to %s, which it should avoid", owner(g.a, 1))
	}
}

// It goes to the member that owns least, so that nothing else needs to move.
func TestGivenUpToTheLeast(t *testing.T) {
	g := newGroup(t, 30)
	g.join(4, 1)
	g.next()
	before := g.a
	from, least := 0, slices.Index(g.a.Shares(), 7)
	if least == 0 {
		t.Fatal("the first member owns least")
	}
	g.next(Request{Partition: slices.Sorted(g.a.Owned(from))[0], Tenure: 1})
	if n := moves(before, g.a); n != 1 || g.a.Shares()[least] != 8 {
		t.Errorf("%d partitions moved, and shares are %v", n, g.a.Shares())
	}
}

// Half of the partitions fail at their owner.
func TestManyAreGivenUp(t *testing.T) {
	g := newGroup(t, 1000)
	g.join(10, 1)
	g.next()
	var all []Request
	for p := range 500 {
		all = append(all, Request{Partition: p, Tenure: 1})
	}
	before := g.a
	g.next(all...)
	for p := range 500 {
		if owner(before, p) == owner(g.a, p) {
			t.Fatalf("partition %d stays at %s", p, owner(g.a, p))
		}
	}
	wantShares(t, g.a, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
}

func TestFreshTenure(t *testing.T) {
	g := newGroup(t, 2)
	g.cleared = func(int, Entry) bool { return false }
	g.join(1, 1)
	g.next()
	if token := g.a.Token(0, MaxOpenings-1); token.Epoch() != 1<<17-1 || g.a.Token(0, MaxOpenings).Valid() || g.a.Token(0, -1).Valid() {
		t.Errorf("the last token is %s", token)
	}
	if !g.next(Request{Partition: 0, Tenure: 1, Fresh: true}) {
		t.Fatal("nothing to do")
	}
	if g.a.Owner(0) != 0 || g.a.Tenure(0) != 2 || g.a.Tenure(1) != 1 || !slices.Equal(g.a.Pending(0), []Entry{{Member: 0, Number: 2}}) || len(g.a.Pending(1)) != 0 {
		t.Errorf("tenure %d and %d, pending %v", g.a.Tenure(0), g.a.Tenure(1), g.a.Pending(0))
	}
	if token := g.a.Token(0, 0); token.Epoch() != 2<<16 {
		t.Errorf("the first token is %s", token)
	}
	if g.next(Request{Partition: 0, Tenure: 1, Fresh: true}) {
		t.Error("a late request was granted again")
	}
}

// An assignment that moves few of many partitions shares a tenure with earlier ones, so the tenures stay few.
//
// guard:tenure-new. The tokens of an owner are counted from the tenure of its partition. So the tenure
// must rise whenever the partition moves. Without this check: the partition has tenure 5, the highest
// of all, and belongs to A; assignment 6 moves it to B, and reuses tenure 5; B's first token equals A's
// first; the log has been opened with that token, and refuses B.
func TestFewMovesShareATenure(t *testing.T) {
	g := newGroup(t, 3000)
	g.join(3, 1)
	g.next()
	fresh := func(parts ...int) (tenures []uint64) {
		t.Helper()
		var all []Request
		for _, p := range parts {
			all = append(all, Request{Partition: p, Tenure: g.a.Tenure(p), Fresh: true})
		}
		if !g.next(all...) {
			t.Fatal("nothing moved")
		}
		for _, p := range parts {
			tenures = append(tenures, g.a.Tenure(p))
		}
		return tenures
	}
	for i, c := range []struct {
		parts []int
		want  []uint64
	}{
		{[]int{0}, []uint64{2}}, // its tenure is the highest
		{[]int{1}, []uint64{2}},
		{[]int{1, 2}, []uint64{4, 2}},
		{[]int{1, 2, 3}, []uint64{5, 5, 5}}, // these are many
		{[]int{0, 4}, []uint64{5, 5}},
	} {
		if got := fresh(c.parts...); !slices.Equal(got, c.want) {
			t.Errorf("%d: assignment %d gives tenures %d, want %d", i, g.a.Number(), got, c.want)
		}
	}
	// A new partition has no tenure before.
	news := g.news()
	news.Partitions = 3001
	if g.plan(news); g.a.Tenure(3000) != 7 {
		t.Errorf("the new partition has tenure %d", g.a.Tenure(3000))
	}
}

// guard:partitions-kept. Without this check: assignment 2 adds partition 9, and A works on it; an
// organiser that has not read the new number of partitions makes assignment 3 without partition 9, and
// so without its pending entries; assignment 4 adds partition 9 again, and gives it to B; B starts
// while A, which has not read assignment 3, works.
func TestPartitionsAreRaised(t *testing.T) {
	g := newGroup(t, 2)
	news := g.news()
	news.Partitions = 4
	if !g.plan(news) || g.a.Partitions() != 4 || g.a.Owner(3) != Nobody {
		t.Errorf("%d partitions", g.a.Partitions())
	}
	g.join(2, 1)
	g.next()
	wantShares(t, g.a, 2, 2)
	news.Partitions = 2
	if g.plan(news) {
		t.Error("an old group.json lowered N")
	}
}

func TestPlanLimits(t *testing.T) {
	g := newGroup(t, 2)
	g.join(1, 1)
	g.a.number = MaxNumber
	_, err := Next(g.a, g.news())
	fixture.WantErr(t, err, fence.ErrLimit, "is the last possible one")
	g.a.number = MaxNumber - 1
	g.a.base = MaxBase
	if g.next(); g.a.Token(0, MaxOpenings-1).Epoch() < MaxBase {
		t.Error("the highest token overflows")
	}
	_, err = Next(New(name(1), 2, 0), &News{Partitions: MaxPartitions + 1})
	fixture.WantErr(t, err, fence.ErrLimit, "at most 100000")
}

// Old news of a member, and news of one member twice.
func TestAnEndIsFinal(t *testing.T) {
	g := newGroup(t, 4)
	g.cleared = func(int, Entry) bool { return false }
	g.join(2, 1)
	g.next()
	g.end(0, Leaving)
	g.next()
	g.end(0, Live)
	if g.next() {
		t.Error("who leaves receives partitions again")
	}
	g.members = append(g.members, g.members[0], MemberNews{Name: name(3), Weight: 1}, MemberNews{Name: name(3), Weight: 1})
	g.members[0].State = Expired
	g.next()
	if len(g.a.Members()) != 2 || len(g.a.entries) != 2 {
		t.Errorf("members %+v, entries %v", g.a.Members(), g.a.entries)
	}
	wantShares(t, g.a, 2, 2)
}

// More members than an assignment can list: the others wait.
func TestTooManyMembers(t *testing.T) {
	g := newGroup(t, 20_000)
	g.join(MaxMembers+5, 1)
	g.next()
	if len(g.a.Members()) != MaxMembers || slices.Max(g.a.Shares()) != 2 {
		t.Fatalf("%d members, of %d partitions at most", len(g.a.Members()), slices.Max(g.a.Shares()))
	}
	g.end(0, Expired)
	g.next() // its place is free in the one after this
	g.members[0] = MemberNews{Name: name(MaxMembers + 6), Weight: 1}
	g.next()
	if len(g.a.Members()) != MaxMembers {
		t.Errorf("%d members", len(g.a.Members()))
	}
	// Those that are over take no place.
	g = newGroup(t, 2)
	g.join(MaxMembers, 1)
	for i := range g.members {
		g.end(i, Leaving+State(i%2))
	}
	g.join(1, 1)
	if !g.next() || len(g.a.Members()) != 1 {
		t.Errorf("members %+v", g.a.Members())
	}
}

// A partition with many pending entries does not move for fairness, and does move when its
// owner ends.
func TestPartitionWithManyEntries(t *testing.T) {
	g := newGroup(t, 2)
	g.cleared = func(int, Entry) bool { return false }
	g.join(1, 1)
	g.next()
	for range MaxWaits {
		g.end(len(g.members)-1, Leaving)
		g.join(1, 1)
		g.next()
	}
	if n := len(g.a.Pending(0)); n != MaxWaits {
		t.Fatalf("%d entries", n)
	}
	g.join(1, 1)
	if g.next() {
		t.Errorf("a partition with %d entries moved for fairness", MaxWaits)
	}
	g.end(len(g.members)-2, Leaving)
	if !g.next() || len(g.a.Pending(0)) != MaxWaits+1 {
		t.Errorf("%d entries", len(g.a.Pending(0)))
	}
}

// All entries together have a limit: then partitions stay with who leaves.
func TestTooManyEntries(t *testing.T) {
	g := newGroup(t, MaxPartitions)
	g.cleared = func(int, Entry) bool { return false }
	g.join(1, 1)
	g.next()
	for range MaxEntries/MaxPartitions + 1 {
		g.end(len(g.members)-1, Leaving)
		g.join(1, 1)
		g.next()
	}
	if len(g.a.entries) != MaxEntries {
		t.Fatalf("%d entries", len(g.a.entries))
	}
	got, err := Decode("assign", g.a.Encode())
	if err != nil || !equal(got, g.a) {
		t.Errorf("the largest assignment does not return: %v", err)
	}
	wantShares(t, g.a, append(make([]int, len(g.a.Members())-2), MaxEntries%MaxPartitions, MaxPartitions-MaxEntries%MaxPartitions)...)
	g.cleared = nil
	for i := range g.members {
		g.end(i, Expired)
	}
	g.join(1, 1)
	g.next()
	if len(g.a.entries) > 0 || len(g.a.Members()) != 1 {
		t.Errorf("%d entries, %d members", len(g.a.entries), len(g.a.Members()))
	}
}

func ExampleNext() {
	a := New(fence.ID{1}, 6, 0)
	members := []MemberNews{{Name: fence.ID{0xa}, Weight: 1}, {Name: fence.ID{0xb}, Weight: 1}}
	show := func(news *News) {
		next, err := Next(a, news)
		if err != nil || next == nil {
			fmt.Println("nothing to do", err)
			return
		}
		a = next
		fmt.Print("assignment ", a.Number(), ":")
		for p := range a.Partitions() {
			fmt.Printf(" %x", owner(a, p)[0])
			for _, e := range a.Pending(p) {
				fmt.Printf("(%x,%d)", a.Members()[e.Member].Name[0], e.Number)
			}
		}
		fmt.Println()
	}
	show(&News{Partitions: 6, Members: members})
	show(&News{Partitions: 6, Members: append(members, MemberNews{Name: fence.ID{0xc}, Weight: 1})})
	show(&News{Partitions: 6})
	// Output:
	// assignment 1: a a a b b b
	// assignment 2: a a c(a,2) b b c(b,2)
	// nothing to do <nil>
}

// A partition that nobody is to own has no owner, and no part in shares. Its last owner is pending.
func TestNobodysPartitions(t *testing.T) {
	g := newGroup(t, 10)
	g.join(3, 1)
	g.next()
	from := owner(g.a, 4)
	g.nobody = map[int]bool{4: true, 11: true}
	if !g.next() || g.a.Owner(4) != Nobody || g.a.Tenure(4) != 0 || len(g.a.Pending(4)) != 1 || g.a.Members()[g.a.Pending(4)[0].Member].Name != from {
		t.Errorf("its owner is %d, and pending are %v", g.a.Owner(4), g.a.Pending(4))
	}
	wantShares(t, g.a, 3, 3, 3)
	if got, err := Decode("", g.a.Encode()); err != nil || !equal(got, g.a) {
		t.Errorf("it is decoded as %v, %v", got, err)
	}
	if g.next() {
		t.Error("it is given to nobody again")
	}
	g.join(1, 1)
	g.next()
	wantShares(t, g.a, 2, 2, 2, 3)
	tenure := g.a.Number()
	g.nobody = nil
	if !g.next() || g.a.Owner(4) == Nobody || g.a.Tenure(4) <= tenure {
		t.Errorf("its owner is %d, in tenure %d", g.a.Owner(4), g.a.Tenure(4))
	}
}
