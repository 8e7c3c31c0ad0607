package assign

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/fence"
)

// plan is an assignment that is being made.
type plan struct {
	base   *Assignment
	number uint64 // of the new assignment
	// members are those of the base, by their old index, and then those that are new.
	members []Member
	expired []bool
	owners  []int32 // by old index
	// fixed partitions were placed by a request, and stay where they are now.
	fixed []bool
	fresh []bool       // the partition gets a new tenure
	none  map[int]bool // nobody is to own the partition
	stays []bool       // by index into base.entries: the entry is not cleared
	room  int          // how many entries may be added
}

// Next plans the assignment that follows the newest one. It returns nil if nothing needs
// to be done: no partition needs to move, and N is not raised.
//
// Shares are fair: each is the member's part by weight, rounded up or down. So shares of
// equal weight differ by one at most. As few partitions move as fairness allows, and those
// that moved last move first. What belongs to members that leave or are expired moves at
// once; to nobody, if there is no live member of a weight above 0. What news gives to nobody is nobody's, and
// has no part in shares.
//
// Fairness yields in three cases. A partition stays if its owner gave it up and nobody else
// may have it. A partition that has [MaxWaits] pending entries does not move for fairness.
// And no partition moves that would need an entry above [MaxEntries].
//
// An error says that no assignment can follow.
func Next(newest *Assignment, news *News) (*Assignment, error) {
	if newest.number >= MaxNumber {
		return nil, fmt.Errorf("%w: assignment %d is the last possible one; begin a new group, with a base above all tokens of this one", fence.ErrLimit, newest.number)
	}
	if news.Partitions > MaxPartitions {
		return nil, fmt.Errorf("%w: %d partitions; at most %d are possible", fence.ErrLimit, news.Partitions, MaxPartitions)
	}
	p := begin(newest, news)
	p.withhold(news.Nobody)
	p.grant(news.Requests)
	p.share()
	if !p.changed() {
		return nil, nil
	}
	return p.build(news.Organiser), nil
}

func begin(base *Assignment, news *News) *plan {
	// guard:partitions-kept. An assignment has no fewer partitions than the one before.
	//
	//mutant:replace max(len(base.owners), news.Partitions) => news.Partitions
	n := max(len(base.owners), news.Partitions)
	p := &plan{
		base: base, number: base.number + 1, owners: make([]int32, n), fixed: make([]bool, n), fresh: make([]bool, n),
		stays: make([]bool, len(base.entries)), room: MaxEntries,
	}
	for i := copy(p.owners, base.owners); i < n; i++ {
		p.owners[i] = Nobody
	}
	p.enroll(news.Members)
	for part := range base.owners {
		for i := base.first[part]; i < base.first[part+1]; i++ {
			e := base.entries[i]
			if !p.expired[e.Member] && (news.Cleared == nil || !news.Cleared(part, e)) {
				p.stays[i] = true
				p.room--
			}
		}
	}
	return p
}

// enroll applies the news of members.
func (p *plan) enroll(news []MemberNews) {
	p.members = slices.Clone(p.base.members)
	p.expired = make([]bool, len(p.members), len(p.members)+len(news))
	joined := map[fence.ID]int{}
	for _, m := range news {
		i, listed := p.base.index[m.Name]
		if !listed {
			i, listed = joined[m.Name]
		}
		if !listed {
			if m.State != Live || len(p.members) == MaxMembers {
				continue
			}
			i = len(p.members)
			joined[m.Name] = i
			p.members, p.expired = append(p.members, Member{Name: m.Name}), append(p.expired, false)
		}
		if m.State == Live {
			p.members[i].Weight = min(m.Weight, MaxWeight)
		}
		p.members[i].Leaving = p.members[i].Leaving || m.State == Leaving
		p.expired[i] = p.expired[i] || m.State == Expired
	}
}

// receives reports whether member m may own partitions.
func (p *plan) receives(m int32) bool {
	return m != Nobody && p.members[m].Weight > 0 && !p.members[m].Leaving && !p.expired[m]
}

// shares returns how many partitions each member owns that may receive some.
func (p *plan) shares() []int {
	shares := make([]int, len(p.members))
	for _, o := range p.owners {
		if p.receives(o) {
			shares[o]++
		}
	}
	return shares
}

// entry finds the entry of member m for a partition that the base has.
func (p *plan) entry(part int, m int32) bool {
	for i := p.base.first[part]; i < p.base.first[part+1]; i++ {
		if p.base.entries[i].Member == int(m) && p.stays[i] {
			return true
		}
	}
	return false
}

// waits is how many entries of a partition are not cleared.
func (p *plan) waits(part int) (n int) {
	for i := p.base.first[part]; i < p.base.first[part+1]; i++ {
		if p.stays[i] {
			n++
		}
	}
	return n
}

// take takes a partition from its owner in the base, who gets an entry. It reports false if
// there is no room for one more.
func (p *plan) take(part int) bool {
	if part >= len(p.base.owners) {
		return true
	}
	o := p.base.owners[part]
	if o == Nobody || p.expired[o] || p.entry(part, o) {
		return true
	}
	if p.room == 0 {
		return false
	}
	p.room--
	return true
}

// withhold takes partitions from their owners, and gives them to nobody.
func (p *plan) withhold(none map[int]bool) {
	p.none = map[int]bool{}
	for part := range none {
		if part < 0 || part >= len(p.base.owners) || !p.take(part) {
			continue
		}
		p.none[part] = true
		p.owners[part] = Nobody
	}
}

// grant does what owners ask for.
func (p *plan) grant(requests []Request) {
	if len(requests) == 0 {
		return
	}
	c := p.candidates()
	for _, r := range requests {
		if r.Partition < 0 || r.Partition >= len(p.base.owners) {
			continue
		}
		// guard:request-tenure. A request of an owner counts only while the partition has the tenure
		// that the request names.
		if r.Tenure != p.base.tenures[r.Partition] {
			continue
		}
		o := p.owners[r.Partition]
		if o == Nobody || p.fixed[r.Partition] {
			continue
		}
		to := o
		if !r.Fresh {
			to = c.other(o, r.Avoid)
		}
		if !p.receives(to) || !p.take(r.Partition) {
			continue
		}
		if !r.Fresh {
			c.moved(o, to)
		}
		p.owners[r.Partition], p.fixed[r.Partition], p.fresh[r.Partition] = to, true, true
	}
}

// share gives each member its fair share.
func (p *plan) share() {
	shares := p.shares()
	targets := p.targets(shares)
	var pool []int // the partitions to give to somebody
	excess := make([][]int, len(p.members))
	for part, o := range p.owners {
		switch {
		case p.none[part]:
		case !p.receives(o):
			if (targets != nil || o != Nobody) && p.take(part) {
				pool = append(pool, part)
				p.owners[part] = Nobody
			}
		case shares[o] > targets[o] && !p.fixed[part] && p.waits(part) < MaxWaits:
			excess[o] = append(excess[o], part)
		}
	}
	if targets == nil {
		return
	}
	for m, parts := range excess {
		// Those that moved last move first: perhaps they do not run yet. And partitions that
		// a restarted worker has lost go to it again, not others.
		slices.SortFunc(parts, func(a, b int) int {
			return cmp.Or(cmp.Compare(p.base.tenures[b], p.base.tenures[a]), cmp.Compare(b, a))
		})
		for _, part := range parts {
			if shares[m] > targets[m] && p.take(part) {
				pool = append(pool, part)
				shares[m]--
			}
		}
	}
	// Neighbours in the pool go to the same member, so the object stays small.
	for m := range p.members {
		n := min(max(targets[m]-shares[m], 0), len(pool))
		for _, part := range pool[:n] {
			p.owners[part] = int32(m)
		}
		pool = pool[n:]
	}
}

// targets returns how many partitions each member shall own, or nil if no member may own
// any.
func (p *plan) targets(shares []int) []int {
	var weights uint64
	for m := range p.members {
		if p.receives(int32(m)) {
			weights += p.members[m].Weight
		}
	}
	if weights == 0 {
		return nil
	}
	rest := len(p.owners) - len(p.none)
	n := uint64(rest)
	targets, remainders := make([]int, len(p.members)), make([]uint64, len(p.members))
	var more []int // who may get one more
	for m := range p.members {
		if p.receives(int32(m)) {
			part := n * p.members[m].Weight
			targets[m], remainders[m] = int(part/weights), part%weights
			rest -= targets[m]
			if remainders[m] > 0 {
				more = append(more, m)
			}
		}
	}
	// Who has one more already keeps it: so fewer partitions move.
	has := func(m int) int {
		if shares[m] > targets[m] {
			return 1
		}
		return 0
	}
	slices.SortFunc(more, func(a, b int) int {
		return cmp.Or(cmp.Compare(has(b), has(a)), cmp.Compare(remainders[b], remainders[a]), cmp.Compare(a, b))
	})
	for _, m := range more[:rest] {
		targets[m]++
	}
	return targets
}

// changed reports whether the plan differs from its base in more than cleared entries.
func (p *plan) changed() bool {
	return slices.Contains(p.fresh, true) || !slices.Equal(p.owners, p.base.owners)
}

// moves reports whether the plan gives a partition to another owner, or a fresh tenure.
func (p *plan) moves(part int) bool {
	old := int32(Nobody)
	if part < len(p.base.owners) {
		old = p.base.owners[part]
	}
	return p.fresh[part] || p.owners[part] != old
}

// fewMoves is how small a part of the partitions an assignment moves at most if it is to reuse
// a tenure: fewer than one in so many. It is a variable for tests.
var fewMoves = 1000

// reused returns the tenure that partitions get if the plan moves few: the highest of the base.
// It returns 0 if the plan moves many.
//
// Without it each of many small assignments adds one more tenure that stays. After 100,000 of them
// that moved one partition each, the tenures alone take 220 KB, however they are encoded.
// Not covered: a partition that moves for itself in the same assignment as many others gets the
// new number, and keeps it when the others move on.
func (p *plan) reused() (highest uint64) {
	n := 0
	for part := range p.owners {
		if p.moves(part) {
			n++
		}
	}
	if n*fewMoves >= len(p.owners) {
		return 0
	}
	for _, s := range p.base.tenures {
		highest = max(highest, s)
	}
	return highest
}

// tenure returns the tenure of a partition that moves: reused if that will do, else the number
// of the new assignment.
func (p *plan) tenure(part int, reused uint64) uint64 {
	if part >= len(p.base.owners) {
		return p.number
	}
	// guard:tenure-new. A partition that moves gets an older tenure again only if that is higher than
	// its own.
	//
	//mutant:replace reused > old => reused > 0
	if old := p.base.tenures[part]; old > 0 && reused > old {
		return reused
	}
	return p.number
}

// build makes the assignment.
func (p *plan) build(maker fence.ID) *Assignment {
	n := len(p.owners)
	a := &Assignment{
		group: p.base.group, number: p.number, maker: maker, base: p.base.base,
		owners: p.owners, tenures: make([]uint64, n), first: make([]uint32, n+1),
	}
	copy(a.tenures, p.base.tenures)
	reused := p.reused()
	for part, o := range p.owners {
		moved := p.moves(part)
		switch {
		case o == Nobody:
			a.tenures[part] = 0
		case moved:
			a.tenures[part] = p.tenure(part, reused)
		}
		if part < len(p.base.owners) {
			a.entries = p.pend(a.entries, part, moved)
		}
		a.first[part+1] = uint32(len(a.entries))
	}
	p.list(a)
	return a
}

// pend appends the pending entries of a partition.
func (p *plan) pend(entries []Entry, part int, moved bool) []Entry {
	old, first := p.base.owners[part], len(entries)
	must := moved && old != Nobody && !p.expired[old]
	for i := p.base.first[part]; i < p.base.first[part+1]; i++ {
		e := p.base.entries[i]
		// guard:pending-kept. A pending entry stays in each later assignment until it is cleared.
		//
		//mutant:replace !p.stays[i] => true
		if !p.stays[i] {
			continue
		}
		// guard:pending-raised. An owner that loses its partition must acknowledge the assignment that
		// takes it away, also if a pending entry already names the owner.
		if must && e.Member == int(old) {
			e.Number = p.number
		}
		entries = append(entries, e)
	}
	// guard:pending-owner. An assignment that moves a partition adds a pending entry for the old owner,
	// unless the old owner is expired.
	if must && !p.entry(part, old) {
		i, _ := slices.BinarySearchFunc(entries[first:], int(old), func(e Entry, m int) int { return cmp.Compare(e.Member, m) })
		entries = slices.Insert(entries, first+i, Entry{Member: int(old), Number: p.number})
	}
	return entries
}

// list lists the members of a: those that are live, and those that a names.
func (p *plan) list(a *Assignment) {
	named := make([]bool, len(p.members))
	for _, o := range a.owners {
		if o != Nobody {
			named[o] = true
		}
	}
	for _, e := range a.entries {
		named[e.Member] = true
	}
	a.index = map[fence.ID]int{}
	index := make([]int32, len(p.members))
	for m, member := range p.members {
		if named[m] || !p.expired[m] && !member.Leaving {
			index[m] = int32(len(a.members))
			a.index[member.Name] = len(a.members)
			a.members = append(a.members, member)
		}
	}
	for part, o := range a.owners {
		if o != Nobody {
			a.owners[part] = index[o]
		}
	}
	for i := range a.entries {
		a.entries[i].Member = int(index[a.entries[i].Member])
	}
}
