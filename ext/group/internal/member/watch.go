package member

import (
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// watch finds out which members live. Only those that organise, or may have to, watch.
type watch struct {
	members  map[fence.ID]*seen
	format   store.Version // of group.json, in the last listing
	total    int           // partitions, by group.json
	older    []Entry       // assignments, ready objects and acknowledgements of the last listing
	watching bool
	watchDue clock.Instant
	round    uint64        // listings so far
	roundAt  clock.Instant // when the last one began
	reading  int           // requests under way that a plan waits for
	busy     clock.Instant // since when there are some

	ranked   int           // the result of rank in this step, or -1
	stock    bool          // the members are to be looked through
	acted    bool          // what turnMembers was told last
	stockDue clock.Instant // when they are to be looked through anyway

	silent      bool          // the member before this one in order shows no sign of life
	deputyDue   clock.Instant // when to read the deputy's object
	before      fence.ID
	beforeSeen  store.Version
	beforeDue   clock.Instant
	beforeAsked bool
	struck      bool // this member has found another dead since the newest assignment
}

// seen is what is known of a member's object.
type seen struct {
	version store.Version
	first   clock.Instant // the answer that first showed this version
	round   uint64        // the last listing that showed it
	rec     *Record
	stale   bool // the version was old when a listing showed it
	doubt   bool // the version changed late, or the member leaves: it may have been expired
	asked   bool
	beat    clock.Instant // about when the last heartbeat that a listing showed was applied, by the store's clock; or 0
	expires bool          // a swap to expired is in flight
	joined  bool
	leaves  bool
	hung    bool          // a call says that its work hangs, so its session is over, or will be in a Renew
	absent  clock.Instant // the first answer that found no object
	again   clock.Instant // when to ask again
}

// beginWatch lists everything once: the versions count from then on, if this member has to
// organise later.
func (m *Machine) beginWatch() { m.watchDue = m.now }

// begins notes a request that a plan waits for.
func (m *Machine) begins() {
	if m.reading == 0 {
		m.busy = m.now
	}
	m.reading++
}

func (m *Machine) member(x fence.ID) *seen {
	s := m.watch.members[x]
	if s == nil {
		s = &seen{}
		m.watch.members[x] = s
	}
	return s
}

// lapsed reports whether the last listing, which began a whole wait after the version was first
// shown, still showed it.
func (m *Machine) lapsed(x fence.ID) bool {
	s := m.watch.members[x]
	return s != nil && s.version != "" && s.round == m.round && m.roundAt >= s.first.Add(m.cfg.wait())
}

func (m *Machine) gone(x fence.ID) bool { return m.dead[x] || m.lapsed(x) }

// rank is how many members come before this one in the order of organisers: live members that the
// newest assignment lists, in its order; then those that joined, by name.
func (m *Machine) rank() int {
	if m.ranked < 0 {
		m.ranked = m.countBefore()
	}
	return m.ranked
}

func (m *Machine) countBefore() (rank int) {
	for i, x := range m.known.Members() {
		if i == m.self {
			return rank
		}
		s := m.watch.members[x.Name]
		// guard:hung-unfit. A member that has said that its work hangs does not organise any more,
		// although it is not expired yet.
		//
		//mutant:replace !s.leaves && !s.hung => !s.leaves
		if !m.gone(x.Name) && !x.Leaving && (s == nil || !s.leaves && !s.hung) {
			rank++
		}
	}
	for x, s := range m.watch.members {
		if _, ok := m.known.Index(x); !ok && s.joined && !s.hung && !s.leaves && !m.gone(x) && compareIDs(x, m.cfg.Self) < 0 {
			rank++
		}
	}
	return rank
}

// alert reports whether this member has to watch all others.
func (m *Machine) alert(rank int) bool {
	switch {
	case m.round == 0, m.known.Number() == 0, m.silent:
		return true
	case m.callAt != 0 && m.now >= m.callAt.Add(m.cfg.Validity):
		return true // nobody has answered a call
	case m.self == assign.Nobody && m.deserted():
		return true
	case m.self == assign.Nobody:
		m.at(m.runAt.Add(m.cfg.Validity))
		return m.now >= m.runAt.Add(m.cfg.Validity)
	}
	return rank <= 1
}

// deserted reports whether all members that the newest assignment lists have left or are dead.
func (m *Machine) deserted() bool {
	return !slices.ContainsFunc(m.known.Members(), func(x assign.Member) bool { return !x.Leaving && !m.gone(x.Name) })
}

func (m *Machine) turnWatch() {
	if !m.running {
		return
	}
	if m.callAt != 0 {
		m.at(m.callAt.Add(m.cfg.Validity))
	}
	rank := m.rank()
	if !m.alert(rank) {
		m.watchDue = m.now
		m.turnBefore()
		return
	}
	m.turnMembers(rank <= 1 || m.overdue())
	if rank == 0 {
		m.turnDeputy()
	}
	if m.watching {
		return
	}
	if m.now < m.watchDue {
		m.at(m.watchDue)
		return
	}
	m.watchAll(rank)
}

// watchAll lists all objects of the group.
func (m *Machine) watchAll(rank int) {
	m.watching = true
	sent := m.now
	m.watchDue = sent.Add(m.cfg.Renew)
	if rank > 1 && !m.silent && m.known.Number() > 0 {
		m.watchDue = sent.Add(m.cfg.wait() + m.cfg.quick())
	}
	m.do(Job{Op: List, Key: Prefix}, func(ev Event) {
		m.watching = false
		if ev.Outcome != Done {
			if ev.Outcome == Denied {
				m.end(ByDenial, ev.Err)
			}
			m.watchDue = m.now.Add(max(m.cfg.quick(), m.cfg.Renew/4))
			return
		}
		m.round++
		m.roundAt = sent
		m.listDue = m.now.Add(listEvery + time.Duration(m.cfg.Random()*float64(listEvery)/4))
		m.newest(ev.Entries)
		m.takeStock(ev.Entries)
		m.heardAcks(ev.Entries, true)
		m.planSoon()
		m.shiftPhase(ev.Entries)
	})
}

// takeStock compares a listing with what is known.
func (m *Machine) takeStock(entries []Entry) {
	m.older, m.stock = m.older[:0], true
	for _, e := range entries {
		if x, rest, ok := ParseKey(MemberPrefix, e.Key); ok && rest == "" {
			m.shown(x, e.Version, e.Age)
		} else if x, what, ok := ParseKey(CallPrefix, e.Key); ok {
			m.shownCall(x, what, e.Key)
			m.older = append(m.older, e)
		} else if e.Key == FormatKey {
			m.shownFormat(e.Version)
		} else {
			m.older = append(m.older, e)
		}
	}
	maps.DeleteFunc(m.watch.members, func(x fence.ID, s *seen) bool {
		if s.round == m.round {
			return false
		}
		_, named := m.known.Index(x)
		return !named && !s.asked && !s.expires
	})
	maps.DeleteFunc(m.calls, func(_ string, h *heard) bool { return h.round != m.round && !h.asked })
	if len(m.dead) > 4*assign.MaxMembers {
		maps.DeleteFunc(m.dead, func(x fence.ID, _ bool) bool {
			_, named := m.known.Index(x)
			return !named && m.watch.members[x] == nil
		})
	}
}

// shown notes a member's object in a listing. Usually a new version is a heartbeat, and is not read. But if the
// version before was older than any that is renewed in time, somebody may have expired the member.
func (m *Machine) shown(x fence.ID, v store.Version, age time.Duration) {
	s := m.member(x)
	s.round, s.absent = m.round, 0
	old := age < 0 || age > m.cfg.Renew*3/2
	if s.version == v {
		s.stale = s.stale || old
		return
	}
	if s.version != "" && (s.stale || s.leaves) {
		s.doubt = true
	}
	s.stale, s.beat = old, 0
	if !old {
		s.beat = m.now.Add(-age)
	}
	m.renewedAt(s, v)
}

// renewedAt notes a new version of a member's object.
func (m *Machine) renewedAt(s *seen, v store.Version) {
	s.version = v
	// guard:lapse. An organiser counts the time without a heartbeat from after the answer that first
	// showed an object version of a member.
	//
	//mutant:replace s.first = m.now => s.first = m.roundAt
	s.first = m.now
}

func (m *Machine) shownCall(x fence.ID, what, key string) {
	switch what {
	case joined:
		m.member(x).joined = true
	case leaving:
		m.member(x).leaves = true
		if x == m.cfg.Self {
			m.leave() // somebody drains this member, and perhaps it is the only one
		}
	default:
		h := m.calls[key]
		if h == nil {
			h = &heard{name: x}
			m.calls[key] = h
		}
		h.round = m.round
		if h.call == nil && !h.asked {
			m.readCall(key, h)
		}
	}
}

func (m *Machine) readCall(key string, h *heard) {
	h.asked = true
	m.begins()
	m.do(Job{Op: Get, Key: key}, func(ev Event) {
		m.reading--
		h.asked = false
		if c, ok := ev.Doc.(*Call); ok && ev.Outcome == Done {
			h.call = c
			if slices.ContainsFunc(c.Given, func(g Given) bool { return g.Hung }) {
				m.member(h.name).hung = true
				m.ranked = -1
			}
			m.planSoon()
		}
	})
}

func (m *Machine) shownFormat(v store.Version) {
	if v == m.format {
		return
	}
	m.begins()
	m.do(Job{Op: Get, Key: FormatKey}, func(ev Event) {
		m.reading--
		if f, ok := ev.Doc.(*Format); ok && ev.Outcome == Done {
			m.format, m.total = ev.Version, max(m.total, f.Partitions)
			m.planSoon()
		}
	})
}

// soon is how long after a heartbeat is due somebody looks for it. Many stores tell times in whole seconds.
func (c *Config) soon() time.Duration { return c.Renew / 6 }

// shiftPhase moves the listings of the deputy to soon after the heartbeats of the organiser, and those of the
// organiser to the middle between. So one of the two sees each heartbeat within half a Renew, and the
// deputy sees those of the organiser at once. turnDeputy is for the other way round.
func (m *Machine) shiftPhase(entries []Entry) {
	first := fence.ID{}
	for i, x := range m.known.Members() {
		if i == m.self {
			break
		}
		if !m.gone(x.Name) {
			first = x.Name
			break
		}
	}
	if first == (fence.ID{}) {
		m.watchDue = m.due.Add(m.cfg.soon() - m.cfg.Renew/2)
		for m.watchDue <= m.now.Add(m.cfg.Renew/2) {
			m.watchDue = m.watchDue.Add(m.cfg.Renew)
		}
		return
	}
	for _, e := range entries {
		if e.Key != Key(first) || e.Age < 0 || e.Age > m.cfg.Renew*3/2 {
			continue
		}
		next := m.now.Add(-e.Age).Add(m.cfg.soon())
		for next <= m.now.Add(m.cfg.Renew/2) {
			next = next.Add(m.cfg.Renew)
		}
		m.watchDue = next
	}
}

// turnDeputy reads the object of the deputy soon after its heartbeats are due. If the organiser crashes, its
// deputy alone lists, and the other way round; so each must know well when the other has lapsed.
func (m *Machine) turnDeputy() {
	var s *seen
	deputy := fence.ID{}
	for _, x := range m.known.Members()[m.self+1:] {
		if s = m.watch.members[x.Name]; s != nil && !m.gone(x.Name) && !x.Leaving && !s.leaves {
			deputy = x.Name
			break
		}
	}
	if deputy == (fence.ID{}) || s.asked || s.expires {
		return
	}
	if m.now < m.deputyDue {
		m.at(m.deputyDue)
		return
	}
	if m.deputyDue != 0 {
		m.inspect(deputy)
	}
	// If the store does not tell when it was written, read it between two listings.
	m.deputyDue = m.now.Add(m.cfg.Renew / 2)
	if s.beat != 0 {
		m.deputyDue = s.beat.Add(m.cfg.soon())
		for m.deputyDue <= m.now.Add(m.cfg.Renew/2) {
			m.deputyDue = m.deputyDue.Add(m.cfg.Renew)
		}
	}
}

// turnMembers reads members, and expires those that have lapsed. Only those that may act expire.
func (m *Machine) turnMembers(act bool) {
	if !m.stock && act == m.acted && m.now < m.stockDue {
		m.at(m.stockDue)
		return
	}
	m.stock, m.acted, m.stockDue = false, act, far
	defer func() {
		if m.stockDue < far {
			m.at(m.stockDue)
		}
	}()
	flying := 0
	for _, s := range m.watch.members {
		if s.asked || s.expires {
			flying++
		}
	}
	for _, x := range m.interesting() {
		s := m.member(x)
		if m.dead[x] || s.asked || s.expires || x == m.cfg.Self || flying >= atOnce {
			continue
		}
		_, named := m.known.Index(x)
		lapse := s.first.Add(m.cfg.wait())
		switch {
		case s.round == m.round && act && (s.rec == nil || s.doubt):
			flying++
			m.attend(x)
		case s.version != "" && s.rec != nil && act && m.now >= lapse && s.round == m.round:
			flying++
			m.expire(x, s)
		case s.version != "" && s.round == m.round:
			if act && m.now < lapse {
				m.stockDue = min(m.stockDue, lapse)
			}
		case named && m.round > 0:
			flying++
			m.attend(x)
		}
	}
}

// interesting are the members that the last listing showed or that the newest assignment lists.
func (m *Machine) interesting() []fence.ID {
	all := make([]fence.ID, 0, len(m.watch.members))
	for x, s := range m.watch.members {
		if s.round == m.round && !m.dead[x] {
			all = append(all, x)
		}
	}
	for _, x := range m.known.Members() {
		if s := m.watch.members[x.Name]; !m.dead[x.Name] && (s == nil || s.round != m.round) {
			all = append(all, x.Name)
		}
	}
	slices.SortFunc(all, compareIDs)
	return all
}

// attend asks from time to time whether a member is expired, or its object is gone.
func (m *Machine) attend(x fence.ID) {
	s := m.member(x)
	if s.asked || m.dead[x] {
		return
	}
	if m.now < s.again {
		m.at(s.again)
		m.stockDue = min(m.stockDue, s.again)
		return
	}
	m.inspect(x)
}

// inspect reads a member's object.
func (m *Machine) inspect(x fence.ID) {
	s := m.member(x)
	s.asked = true
	s.again = m.now.Add(m.cfg.Validity / 15)
	m.begins()
	sent := m.now
	m.do(Job{Op: Get, Key: Key(x)}, func(ev Event) {
		s.asked, m.stock = false, true
		m.reading--
		rec, _ := ev.Doc.(*Record)
		switch {
		case ev.Outcome == Done && rec != nil:
			s.rec, s.doubt, s.absent = rec, false, 0
			if s.version != ev.Version {
				m.renewedAt(s, ev.Version)
			}
			if rec.Expired {
				m.found(x)
			}
			m.planSoon()
		case ev.Outcome == Absent:
			m.notFound(x, s, sent)
		case ev.Outcome == Unreadable && s.rec == nil:
			// It lapses like any other, and is overwritten then.
			s.rec = &Record{Validity: m.cfg.Validity, Renew: m.cfg.Renew}
		}
	})
}

// notFound is called when a GET found no object of a member.
func (m *Machine) notFound(x fence.ID, s *seen, sent clock.Instant) {
	if s.absent == 0 {
		s.absent = m.now
	}
	// guard:absent-waits. A member whose object is absent counts as dead only after GETs have found
	// nothing for a whole wait.
	//
	//mutant:replace sent >= s.absent.Add(m.cfg.wait()) => true
	if sent >= s.absent.Add(m.cfg.wait()) {
		// guard:absent-dead. A member whose object has been absent for a whole wait counts as dead.
		//
		//mutant:replace m.found(x) =>
		m.found(x)
	}
}

// found notes that a member is dead.
func (m *Machine) found(x fence.ID) {
	m.dead[x] = true
	m.scan, m.stock, m.ranked = true, true, -1
	m.planSoon()
}

// expire swaps the object of a member that has lapsed to expired.
func (m *Machine) expire(x fence.ID, s *seen) {
	rec := *s.rec
	rec.Expired, rec.By, rec.Nonce = true, m.cfg.Identity, m.cfg.Nonce()
	s.expires = true
	m.begins()
	// guard:expire-swap. An organiser expires a member by a swap of the object version that has lapsed.
	//
	//mutant:replace Op: Swap => Op: Put
	m.do(Job{Op: Swap, Key: Key(x), Known: s.version, Doc: &rec}, func(ev Event) {
		s.expires, m.stock = false, true
		m.reading--
		switch ev.Outcome {
		case Done:
			s.rec, s.version = &rec, ev.Version
			m.struck = true
			m.note(Note{What: NoteExpired, Member: x})
			m.found(x)
		case Denied:
			m.end(ByDenial, ev.Err)
		default:
			s.doubt = true // read it before anything else
		}
	})
}

// turnBefore reads the object of the member before this one in order, so that somebody notices when
// all who organise are dead.
func (m *Machine) turnBefore() {
	before := fence.ID{}
	for i, x := range m.known.Members() {
		if i == m.self {
			break
		}
		if !m.dead[x.Name] && !x.Leaving {
			before = x.Name
		}
	}
	if before != m.before {
		m.before, m.beforeSeen, m.beforeDue = before, "", m.now
	}
	if before == (fence.ID{}) || m.beforeAsked {
		return
	}
	if m.now < m.beforeDue {
		m.at(m.beforeDue)
		return
	}
	m.beforeAsked = true
	m.beforeDue = m.now.Add(m.cfg.Validity * 4 / 5)
	m.do(Job{Op: Get, Key: Key(before), Known: m.beforeSeen}, func(ev Event) {
		m.beforeAsked = false
		if before != m.before {
			return
		}
		switch ev.Outcome {
		case Done:
			m.beforeSeen = ev.Version
			if rec, ok := ev.Doc.(*Record); ok && rec.Expired {
				m.silent = true
			}
		case Same, Absent:
			m.silent = true
		}
	})
}
