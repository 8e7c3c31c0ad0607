package member

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
)

// trouble is what an organiser knows of partitions whose work fails or hangs.
type trouble struct {
	calls   map[string]*heard  // by key
	present map[int]presentOne // of partitions that an earlier owner has given up
	parked  map[int]uint64     // reported: partition and tenure
}

// presentOne is the present tenure of a partition, and since when this member knows it.
type presentOne struct {
	tenure uint64
	since  clock.Instant
}

// heard is a call.
type heard struct {
	name  fence.ID
	round uint64
	call  *Call
	asked bool
	over  []bool // by index into call.Given: it counts no more
}

// quit is a partition that an owner has given up.
type quit struct {
	Given
	name fence.ID
	key  string // of the call
	i    int    // in the call
}

// ownersAtMost is how many members in a row may give a partition up. The last one keeps it, but if its work
// hung: then nobody owns the partition.
const ownersAtMost = 3

// soundAfter is how long a tenure lasts before its owner is known to do well. An owner whose work fails gives
// its partition up after failuresAtOnce runs, each shorter than lastBackoff: a longer one makes the owner forget
// the failures before. Before that it may have to wait until the owner before has stopped. Work that hangs
// does so for StallAfter and Drain.
func (c *Config) soundAfter() time.Duration {
	return (failuresAtOnce+1)*lastBackoff + c.StallAfter + 3*(c.Validity+c.Drain)
}

// collect returns by partition who has given it up, in the order of their tenures, without what is over.
// Cancelled are those that a later call says are over.
func collect(calls iter.Seq2[string, *heard]) (quits map[int][]quit, cancelled []quit) {
	quits = map[int][]quit{}
	var sound []quit
	for key, h := range calls {
		if h.call == nil {
			continue
		}
		for i, g := range h.call.Given {
			switch q := (quit{g, h.name, key, i}); {
			case g.Fresh || h.over != nil && h.over[i]:
			case g.Sound:
				sound = append(sound, q)
			default:
				quits[g.Partition] = append(quits[g.Partition], q)
			}
		}
	}
	for _, s := range sound {
		quits[s.Partition] = slices.DeleteFunc(quits[s.Partition], func(q quit) bool {
			if s.ends(q) {
				cancelled = append(cancelled, q)
			}
			return s.ends(q)
		})
	}
	for p, all := range quits {
		slices.SortFunc(all, func(a, b quit) int { return cmp.Or(cmp.Compare(a.Tenure, b.Tenure), cmp.Compare(a.key, b.key)) })
		if len(all) == 0 {
			delete(quits, p)
		}
	}
	return quits, cancelled
}

// ends reports whether s, by which the work on a partition is sound, came after q.
func (s quit) ends(q quit) bool {
	return s.Partition == q.Partition && (q.Tenure < s.Tenure || q.Tenure == s.Tenure && (q.name != s.name || q.key < s.key))
}

// owners are the members of some quits, each once.
func owners(quits []quit) (names []fence.ID) {
	for _, q := range quits {
		if !slices.Contains(names, q.name) {
			names = append(names, q.name)
		}
	}
	return names
}

// withheld reports whether nobody is to own a partition: enough owners have given it up, and the work of the last
// one hung. Cleared says of a pending entry that the present owner need not wait for it; if it is nil, every entry
// counts as cleared.
func withheld(a *assign.Assignment, quits []quit, cleared func(p int, e assign.Entry) bool) bool {
	last := quits[len(quits)-1]
	switch p := last.Partition; {
	case !last.Hung || len(owners(quits)) < ownersAtMost:
		return false
	case a.Owner(p) == assign.Nobody || a.Tenure(p) == last.Tenure:
		return true
	default:
		// guard:hung-moved. Nobody gets a partition that three owners gave up, the third with hung
		// work, until the organiser knows that the third one has stopped.
		//
		//mutant:replace cleared != nil && !cleared(p, e) => false
		return slices.ContainsFunc(a.Pending(p), func(e assign.Entry) bool {
			return a.Members()[e.Member].Name == last.name && cleared != nil && !cleared(p, e)
		})
	}
}

// stored is for those who have read calls by key.
func stored(calls map[string]*Call) map[int][]quit {
	quits, _ := collect(func(yield func(string, *heard) bool) {
		for key, c := range calls {
			if name, _, ok := ParseKey(CallPrefix, key); ok && !yield(key, &heard{name: name, call: c}) {
				return
			}
		}
	})
	return quits
}

// Again is the call by which an operator lets partitions run again, and its key. Calls are by key. Those of the
// partitions that nobody has given up are not in it.
func Again(calls map[string]*Call, partitions []int, name fence.ID, nonce string) (key string, doc *Call) {
	quits := stored(calls)
	doc = &Call{Nonce: nonce}
	for _, p := range partitions {
		if q := quits[p]; q != nil {
			doc.Given = append(doc.Given, Given{Partition: p, Tenure: q[len(q)-1].Tenure, Sound: true})
		}
	}
	return callKey(name, FormatNumber(1)), doc
}

// GivenUp returns the partitions that are given up by their owners, or that nobody is to own. Calls are by key.
func GivenUp(a *assign.Assignment, calls map[string]*Call) (all []int) {
	for p, q := range stored(calls) {
		if p >= 0 && p < a.Partitions() && (withheld(a, q, nil) || a.Owner(p) != assign.Nobody && a.Tenure(p) == q[len(q)-1].Tenure) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

// troubles returns by partition who has given it up, and notes which of these count no more.
func (m *Machine) troubles() map[int][]quit {
	for _, h := range m.calls {
		if h.call != nil && h.over == nil {
			h.over = make([]bool, len(h.call.Given))
		}
	}
	quits, cancelled := collect(maps.All(m.calls))
	for _, q := range cancelled {
		m.calls[q.key].over[q.i] = true
	}
	for p, all := range quits {
		if p < 0 || p >= m.known.Partitions() {
			delete(quits, p)
			continue
		}
		if !m.doesWell(p, all[len(all)-1].Tenure) {
			continue
		}
		for _, q := range all {
			m.calls[q.key].over[q.i] = true
		}
		delete(quits, p)
	}
	maps.DeleteFunc(m.present, func(p int, _ presentOne) bool { return quits[p] == nil })
	return quits
}

// doesWell reports whether the present owner of a partition does well, after another gave it up in its own
// tenure.
func (m *Machine) doesWell(p int, gaveUp uint64) bool {
	now := m.known.Tenure(p)
	// guard:quit-kept. An organiser forgets who gave a partition up only when a later owner has held it
	// for so long that this owner would have given it up, too.
	//
	//mutant:replace m.now >= x.since.Add(m.cfg.soundAfter()) => m.now >= x.since.Add(2 * lastBackoff)
	switch x, ok := m.present[p]; {
	case m.known.Owner(p) == assign.Nobody, now <= gaveUp:
		delete(m.present, p)
		return false
	case !ok || x.tenure != now:
		if m.present == nil {
			m.present = map[int]presentOne{}
		}
		m.present[p] = presentOne{now, m.now}
		return false
	default:
		return m.now >= x.since.Add(m.cfg.soundAfter())
	}
}

// requests are what owners ask for, and which partitions nobody is to own. A partition that enough members have
// given up stays with its owner.
func (m *Machine) requests() (all []assign.Request, none map[int]bool) {
	none = map[int]bool{}
	quits := m.troubles()
	parked := map[int]bool{}
	cleared := func(p int, e assign.Entry) bool { return m.isCleared(p, m.known.Members()[e.Member].Name, e.Number) }
	for _, p := range slices.Sorted(maps.Keys(quits)) {
		gave := quits[p]
		last, names := gave[len(gave)-1], owners(gave)
		// guard:hung-parked. When three owners in a row have given a partition up, and the third one's
		// work hung, nobody gets the partition.
		//
		//mutant:replace withheld(m.known, gave, cleared): => withheld(m.known, gave, cleared) && false:
		switch {
		case withheld(m.known, gave, cleared):
			none[p], parked[p] = true, true
			m.park(last.Given, NoteWithheld)
		case m.known.Tenure(p) != last.Tenure:
		case len(names) >= ownersAtMost:
			parked[p] = true
			m.park(last.Given, NoteParked)
		default:
			all = append(all, assign.Request{Partition: p, Tenure: last.Tenure, Avoid: names})
		}
	}
	maps.DeleteFunc(m.parked, func(p int, _ uint64) bool { return !parked[p] })
	for _, key := range slices.Sorted(maps.Keys(m.calls)) {
		if h := m.calls[key]; h.call != nil {
			for _, g := range h.call.Given {
				if g.Fresh && g.Partition >= 0 && g.Partition < m.known.Partitions() && m.known.Tenure(g.Partition) == g.Tenure {
					all = append(all, assign.Request{Partition: g.Partition, Tenure: g.Tenure, Fresh: true})
				}
			}
		}
	}
	return all, none
}

// park reports a partition that stays as it is, once. The deputy, who knows it as well, reports nothing.
func (m *Machine) park(g Given, what string) {
	if tenure, ok := m.parked[g.Partition]; ok && tenure == g.Tenure || m.rank() > 0 {
		return
	}
	if m.parked == nil {
		m.parked = map[int]uint64{}
	}
	m.parked[g.Partition] = g.Tenure
	m.note(Note{What: what, Partition: g.Partition, Number: g.Tenure})
}

// answered reports whether nothing in a call counts any more.
func (m *Machine) answered(h *heard) bool {
	if h == nil || h.call == nil || h.over == nil {
		return false
	}
	for i, g := range h.call.Given {
		switch {
		case g.Partition < 0 || g.Partition >= m.known.Partitions() || h.over[i]:
		case g.Sound && !m.ends(quit{g, h.name, "", i}):
		case g.Fresh && g.Tenure < m.known.Tenure(g.Partition):
		case g.Fresh && m.known.Owner(g.Partition) == assign.Nobody:
		default:
			return false
		}
	}
	return true
}

// ends reports whether there are calls that s ends. They are deleted before it: else they would count again.
func (m *Machine) ends(s quit) bool {
	for key, h := range m.calls {
		if h.call == nil {
			continue
		}
		for i, g := range h.call.Given {
			if !g.Sound && !g.Fresh && s.ends(quit{g, h.name, key, i}) {
				return true
			}
		}
	}
	return false
}
