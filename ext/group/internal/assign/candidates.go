package assign

import (
	"container/heap"
	"slices"

	"github.com/fencepost/fencepost/fence"
)

// candidates finds members for partitions that were given up. What they receive is fixed, so
// those come last that have received their share. The others come by what they own, by their weight.
type candidates struct {
	members  []Member
	shares   []int   // what they own
	received []int   // of this, what is fixed
	targets  []int   // what they shall own
	order    []int32 // a heap of those that may receive partitions
	place    []int   // in order, by member; -1: not there
}

func (p *plan) candidates() *candidates {
	shares := p.shares()
	c := &candidates{members: p.members, shares: shares, received: make([]int, len(shares)), targets: p.targets(shares), place: make([]int, len(shares))}
	for m := range p.members {
		c.place[m] = -1
		if p.receives(int32(m)) {
			c.place[m] = len(c.order)
			c.order = append(c.order, int32(m))
		}
	}
	heap.Init(c)
	return c
}

// other returns the first candidate that is neither m nor named by avoid, or Nobody.
func (c *candidates) other(m int32, avoid []fence.ID) int32 {
	var passed []int32
	found := int32(Nobody)
	for len(c.order) > 0 && found == Nobody {
		if first := c.order[0]; first == m || slices.Contains(avoid, c.members[first].Name) {
			passed = append(passed, heap.Pop(c).(int32))
		} else {
			found = first
		}
	}
	for _, m := range passed {
		heap.Push(c, m)
	}
	return found
}

// moved counts a partition that goes from one member to another.
func (c *candidates) moved(from, to int32) {
	c.shares[to]++
	c.received[to]++
	heap.Fix(c, c.place[to])
	if c.place[from] >= 0 {
		c.shares[from]--
		heap.Fix(c, c.place[from])
	}
}

// Len, Less, Swap, Push and Pop are for package heap.
func (c *candidates) Len() int { return len(c.order) }

func (c *candidates) Less(i, j int) bool {
	a, b := c.order[i], c.order[j]
	if x, y := c.received[a] >= c.targets[a], c.received[b] >= c.targets[b]; x != y {
		return y
	}
	// No product of a share and a weight overflows.
	x, y := uint64(c.shares[a])*c.members[b].Weight, uint64(c.shares[b])*c.members[a].Weight
	return x < y || x == y && a < b
}

func (c *candidates) Swap(i, j int) {
	c.order[i], c.order[j] = c.order[j], c.order[i]
	c.place[c.order[i]], c.place[c.order[j]] = i, j
}

func (c *candidates) Push(m any) {
	c.place[m.(int32)] = len(c.order)
	c.order = append(c.order, m.(int32))
}

func (c *candidates) Pop() any {
	last := c.order[len(c.order)-1]
	c.order, c.place[last] = c.order[:len(c.order)-1], -1
	return last
}
