package assign

import (
	"iter"

	"github.com/fencepost/fencepost/fence"
)

// The greatest possible assignment. Decode refuses what is larger, and Next makes nothing
// larger.
const (
	MaxPartitions = 100_000
	// MaxMembers is how many members an assignment may list.
	MaxMembers = 10_000
	// MaxEntries is how many pending entries all partitions may have together.
	MaxEntries = 1 << 20
	// MaxNumber is the highest number of an assignment. With MaxBase, no token overflows.
	MaxNumber = 1<<46 - 1
	// MaxBase is the highest base.
	MaxBase = 1 << 62
	// MaxWeight is the highest weight of a member.
	MaxWeight = 1_000_000_000
	// MaxWaits is how many pending entries a partition may have before it moves for fairness
	// once more.
	MaxWaits = 8
	// MaxOpenings is how often an owner may open a partition under one tenure.
	MaxOpenings = 1 << 16
)

// Nobody is the owner of a partition that has none.
const Nobody = -1

// Member is a member that an assignment lists. Owners and pending entries name it by its
// index in [Assignment.Members].
type Member struct {
	// Name is the UUID of the member's session.
	Name fence.ID
	// Weight is the member's share, relative to the others'. A member of weight 0 receives
	// nothing.
	Weight uint64
	// Leaving says that the member has announced its end, and receives nothing.
	Leaving bool
}

// Entry is pending: nobody starts the partition until the member has acknowledged this
// assignment or a later one, or is expired.
type Entry struct {
	Member int    // index
	Number uint64 // the assignment that must be acknowledged
}

// Assignment says who owns each partition, and who may still work on it. It is immutable,
// and safe for concurrent use. Partitions count from 0.
type Assignment struct {
	group   fence.ID
	number  uint64
	maker   fence.ID
	base    fence.Epoch
	members []Member
	index   map[fence.ID]int // of members, by name
	owners  []int32
	tenures []uint64
	// The entries of partition p are entries[first[p]:first[p+1]], by member.
	first   []uint32
	entries []Entry
}

// New returns the assignment before the first. Its number is 0, it lists no members, and
// nobody owns anything. It is never stored.
func New(group fence.ID, partitions int, base fence.Epoch) *Assignment {
	a := &Assignment{group: group, base: base, owners: make([]int32, partitions), tenures: make([]uint64, partitions), first: make([]uint32, partitions+1)}
	for p := range a.owners {
		a.owners[p] = Nobody
	}
	return a
}

// Group is the id of the group, as group.json has it.
func (a *Assignment) Group() fence.ID { return a.group }

// Number is n of assign/<n>.
func (a *Assignment) Number() uint64 { return a.number }

// Maker is the name of the member that made the assignment. It need not be listed.
func (a *Assignment) Maker() fence.ID { return a.maker }

// Base is what all tokens of the group are above.
func (a *Assignment) Base() fence.Epoch { return a.base }

// Partitions is N, the number of partitions.
func (a *Assignment) Partitions() int { return len(a.owners) }

// Members returns the listed members, in the order in which they organise. The caller must
// not change the slice.
//
// A member is listed if it is live, or owns a partition, or is pending.
func (a *Assignment) Members() []Member { return a.members }

// Index returns the index of a member, and false if the assignment does not list it.
func (a *Assignment) Index(name fence.ID) (int, bool) {
	i, ok := a.index[name]
	return i, ok
}

// Owner returns the index of the member that owns partition p, or [Nobody].
func (a *Assignment) Owner(p int) int { return int(a.owners[p]) }

// Tenure names the ownership of partition p. It rises with each move of p, and with each fresh
// tenure that the owner asks for. It is the number of the assignment that moved p, or of an
// earlier one: assignments that move few partitions share a tenure. It is 0 if nobody owns p.
func (a *Assignment) Tenure(p int) uint64 { return a.tenures[p] }

// Token returns the token of an opening of partition p by its owner. The first opening under
// a tenure has number 0. It returns the zero Token if nobody owns p or if opening is
// [MaxOpenings] or more: then the owner must ask for a fresh tenure.
func (a *Assignment) Token(p, opening int) fence.Token {
	if a.tenures[p] == 0 || opening < 0 || opening >= MaxOpenings {
		return fence.Token{}
	}
	return fence.NewToken(a.base + fence.Epoch(a.tenures[p]*MaxOpenings+uint64(opening)))
}

// Pending returns the pending entries of partition p, at most one for each member, by
// index. The owner may be among them, and does not wait for itself. The caller must not
// change the slice.
func (a *Assignment) Pending(p int) []Entry {
	return a.entries[a.first[p]:a.first[p+1]:a.first[p+1]]
}

// Moved returns the number of the assignment that took partition p from its last owner, as far
// as the pending entries show. It is 0 if there are none.
func (a *Assignment) Moved(p int) (number uint64) {
	for _, e := range a.Pending(p) {
		number = max(number, e.Number)
	}
	return number
}

// Owned yields the partitions that member m owns, in order.
func (a *Assignment) Owned(m int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for p, o := range a.owners {
			if int(o) == m && !yield(p) {
				return
			}
		}
	}
}

// PendingOf yields the partitions that have a pending entry of member m, in order, with
// its number.
func (a *Assignment) PendingOf(m int) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for p := range a.owners {
			for _, e := range a.Pending(p) {
				if e.Member == m && !yield(p, e.Number) {
					return
				}
			}
		}
	}
}

// Shares returns how many partitions each member owns, by index.
func (a *Assignment) Shares() []int {
	shares := make([]int, len(a.members))
	for _, o := range a.owners {
		if o != Nobody {
			shares[o]++
		}
	}
	return shares
}
