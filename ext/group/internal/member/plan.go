package member

import (
	"maps"
	"slices"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
)

// plan makes the next assignment.
type plan struct {
	planned bool          // what is known has changed since the last plan
	making  bool          // an assignment is being created
	need    clock.Instant // since when something has to be done; 0: nothing has
	planAt  clock.Instant // not before then
	putting bool
	putDue  clock.Instant
	putAt   clock.Instant // when the hint was last put
	made    uint64        // an assignment of this member for which the hint is still to be put
	least   map[fence.ID]uint64
}

func (m *Machine) planSoon() { m.planned = true }

func (m *Machine) adoptPlan() {
	m.need, m.struck, m.silent, m.callAt = 0, false, false, 0
	m.least = leastEntries(m.known)
	m.stock, m.ranked = true, -1
	m.planSoon()
}

// overdue reports whether others have left undone what is needed.
func (m *Machine) overdue() bool {
	// guard:next-organises. If an assignment is needed and nobody has created it for a validity, the
	// next member in order creates it.
	//
	//mutant:replace m.need != 0 && m.now >= m.need.Add(m.cfg.Validity) => false
	return m.need != 0 && m.now >= m.need.Add(m.cfg.Validity)
}

// turnPlan makes the next assignment if one is needed and it is this member's turn.
func (m *Machine) turnPlan() {
	rank := m.rank()
	if !m.running || m.round == 0 || !m.alert(rank) {
		return
	}
	m.turnHead(rank)
	if m.making || m.looking && m.listed != 0 || !m.hintRead || m.lost(m.hinted) {
		return
	}
	overdue := m.overdue()
	switch {
	case !m.planned && !overdue:
		if m.need != 0 {
			m.at(m.need.Add(m.cfg.Validity))
		}
		return
	case m.now < m.planAt:
		m.at(m.planAt)
		return
	case m.reading > 0 && m.now < m.busy.Add(m.cfg.Renew/2):
		m.at(m.busy.Add(m.cfg.Renew / 2))
		return // what the last listing showed is being read, or somebody is being expired
	}
	// Those whose turn it is not only find out whether anything is needed. Acknowledgements do not change that, and
	// after a storm all members are here at once: each would read the acknowledgements of all.
	turn := rank <= 1 || m.struck || overdue
	if turn && m.readAcks(func(x fence.ID, n uint64) bool { return m.known.Number() > 0 && m.wantsAck(x, n) }) > 0 && m.now < m.roundAt.Add(m.cfg.Renew/2) {
		m.at(m.roundAt.Add(m.cfg.Renew / 2))
		return
	}
	news, urgent := m.news()
	next, err := assign.Next(m.known, news)
	m.planned = false
	if err != nil {
		m.end(ByDamage, err)
		return
	}
	if next == nil {
		m.need = 0
		return
	}
	if m.need == 0 {
		m.need = m.now
	}
	if rank > 0 && !m.struck && !overdue {
		m.at(m.need.Add(m.cfg.Validity))
		return
	}
	if due := m.seenAt.Add(m.cfg.Renew); m.known.Number() > 0 && m.now < due && !urgent {
		m.planned, m.planAt = true, due
		m.at(due)
		return
	}
	m.make(next)
}

// wantsAck reports whether an acknowledgement of n may clear an entry of the newest assignment.
func (m *Machine) wantsAck(x fence.ID, n uint64) bool {
	least, ok := m.least[x]
	return ok && least <= n && !m.dead[x]
}

// leastEntries returns for each member that is pending the least number of its entries.
func leastEntries(a *assign.Assignment) map[fence.ID]uint64 {
	least := map[fence.ID]uint64{}
	members := a.Members()
	for p := range a.Partitions() {
		for _, e := range a.Pending(p) {
			x := members[e.Member].Name
			if v, ok := least[x]; !ok || e.Number < v {
				least[x] = e.Number
			}
		}
	}
	return least
}

// news is what this member knows beside the newest assignment. Urgent says that somebody
// leaves who still owns partitions.
func (m *Machine) news() (n *assign.News, urgent bool) {
	a := m.known
	n = &assign.News{Organiser: m.cfg.Self, Partitions: m.total, Cleared: func(p int, e assign.Entry) bool {
		return m.isCleared(p, a.Members()[e.Member].Name, e.Number)
	}}
	shares := a.Shares()
	add := func(x fence.ID, weight uint64, s assign.State) {
		n.Members = append(n.Members, assign.MemberNews{Name: x, Weight: weight, State: s})
		if i, ok := a.Index(x); ok && s == assign.Leaving && shares[i] > 0 {
			urgent = true
		}
	}
	for _, x := range slices.SortedFunc(maps.Keys(m.watch.members), compareIDs) {
		s := m.watch.members[x]
		_, named := a.Index(x)
		switch {
		case x == m.cfg.Self || m.dead[x] && !named:
		case m.dead[x]:
			add(x, 0, assign.Expired)
		case (s.leaves || s.hung) && named:
			add(x, 0, assign.Leaving)
		case s.rec != nil && (named || s.joined && !s.leaves && !s.hung):
			add(x, s.rec.Weight, assign.Live)
		}
	}
	for _, x := range a.Members() {
		if m.dead[x.Name] && m.watch.members[x.Name] == nil {
			add(x.Name, 0, assign.Expired)
		}
	}
	if m.leaving {
		add(m.cfg.Self, m.cfg.Weight, assign.Leaving)
	} else {
		add(m.cfg.Self, m.cfg.Weight, assign.Live)
	}
	n.Requests, n.Nobody = m.requests()
	return n, urgent
}

// make creates the next assignment.
func (m *Machine) make(next *assign.Assignment) {
	n := next.Number()
	m.making = true
	began := m.now
	// guard:create-absent. An assignment is created only if its key is absent, and is never
	// overwritten.
	//
	//mutant:replace Op: Create => Op: Put
	m.do(Job{Op: Create, Key: AssignKey(n), Doc: next, Until: m.now.Add(m.cfg.Renew)}, func(ev Event) {
		m.making = false
		switch ev.Outcome {
		case Denied:
			m.end(ByDenial, ev.Err)
			return
		case Done:
			m.note(Note{What: NoteAssigned, Number: n, Took: m.now.Sub(began)})
			m.made = n
		}
		m.planned, m.planAt = true, m.now.Add(m.cfg.Renew/4)
		// guard:created-listed. A member that has created an assignment acts on it only when a listing
		// that began after the create shows it as the newest.
		//
		//mutant:replace m.wanted() => if ev.Outcome == Done { m.adopt(next) }
		m.wanted()
	})
}

// turnHead puts the hint of what this member has made, and puts the hint right.
func (m *Machine) turnHead(rank int) {
	if m.headN >= m.made {
		m.made = 0
	}
	due, n := m.putDue, m.known.Number()
	if m.made > 0 && m.made >= n {
		due, n = 0, m.made
	} else if rank > 0 || m.headN >= n {
		return
	}
	if m.putAt > 0 {
		due = max(due, m.putAt.Add(m.cfg.MinRewrite))
	}
	switch {
	case m.putting:
	case m.now < due:
		m.at(due)
	default:
		m.putHead(n)
	}
}

func (m *Machine) putHead(n uint64) {
	m.putting = true
	m.putDue = m.now.Add(m.cfg.Renew)
	m.do(Job{Op: Put, Key: HeadKey, Doc: &Head{Nonce: m.cfg.Nonce(), Group: m.cfg.Group, Number: n}}, func(ev Event) {
		m.putting, m.putAt = false, m.now
		if ev.Outcome == Done {
			m.headN = max(m.headN, n)
			return
		}
		m.putAt = m.putAt.Add(m.cfg.Renew / 6) // a pause before the next try
	})
}
