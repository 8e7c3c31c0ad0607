package member

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
)

// hold starts and stops the work on partitions.
type hold struct {
	running  bool // partitions may be started
	self     int  // this member's index in the newest assignment, or assign.Nobody
	parts    map[int]*part
	scan     bool          // every partition is to be looked at
	partsDue clock.Instant // when some partition has to be looked at
	runAt    clock.Instant // when Run was called

	awaited map[fence.ID]uint64 // members whose acknowledgement is waited for, with the least number
	acks    map[string]*heldAck
	cleared map[fence.ID]map[int]uint64 // what acknowledgements say: for each partition the highest number
	ackDue  clock.Instant
	asking  bool

	moving   bool                // some work waits until its new owner is ready
	readies  map[fence.ID]uint64 // the highest assignment that a member is ready for
	readyDue clock.Instant
	listing  bool
	told     uint64 // the last assignment for which this member said that it is ready

	owed   map[int]uint64 // entries of this member: partition and number
	acked  map[int]uint64 // what this member has acknowledged
	toAck  map[int]bool   // what may be acknowledged now
	acking *Ack
	nAck   uint64

	giving  []Given
	calling bool
	nCall   uint64
	callAt  clock.Instant // of the first call that was not answered by an assignment
	hungBy  clock.Instant // work hangs: when the session ends at the latest
}

// phase of a partition.
type phase uint8

const (
	waiting  phase = iota // for acknowledgements
	backoff               // after a failure
	working               //
	handing               // working on until the new owner is ready
	stopping              // told to stop, and has not returned
	idle                  // the work has returned, or waits for a fresh tenure
)

// part is a partition that this member owns, or on which it works.
type part struct {
	phase    phase
	tenure   uint64
	opened   int           // openings under this tenure
	mine     clock.Instant // when the member saw that it is the owner, or the work failed
	free     clock.Instant // since when nobody works on it
	until    clock.Instant // the end of a backoff, of handing, of stopping
	began    clock.Instant
	failures int
	rounds   int // in a row that were short, and did not fail
	called   bool
	again    bool // stopping: it is to start again, because it stalled
	to       fence.ID
	moved    uint64 // the assignment that gave the partition to it
}

func (p *part) works() bool { return p.phase == working || p.phase == handing || p.phase == stopping }

// heldAck is an acknowledgement in the store.
type heldAck struct {
	name   fence.ID
	number uint64
	read   bool
	asked  bool
	again  clock.Instant // after a failure
}

const (
	firstBackoff = time.Second
	lastBackoff  = 5 * time.Minute
	// lastRound is the longest pause before work that has not failed begins again. After a run of longRound it is the first one.
	lastRound, longRound = 30 * time.Second, time.Minute
	// failuresAtOnce is how often in a row the work on a partition fails before its owner gives
	// the partition up.
	failuresAtOnce = 3
	far            = clock.Instant(1) << 62
	// givenAtOnce bounds the partitions of one call.
	givenAtOnce = 256
	// atOnce bounds the reads that are in flight together.
	atOnce = 16
)

// run allows partitions to be started, and asks for a share.
func (m *Machine) run() {
	if m.running || m.leaving || m.state != live {
		return
	}
	m.running, m.runAt, m.partsDue, m.self = true, m.now, far, assign.Nobody
	m.readies, m.cleared, m.owed, m.acked = map[fence.ID]uint64{}, map[fence.ID]map[int]uint64{}, map[int]uint64{}, map[int]uint64{}
	m.pollDue, m.listDue = m.now.Add(m.cfg.poll()), m.now
	m.beginWatch()
	m.call(joined, &Sign{Nonce: m.cfg.Nonce()})
}

// call creates an object that organisers find in a listing.
func (m *Machine) call(what string, doc any) {
	if m.callAt == 0 {
		m.callAt = m.now
	}
	m.persist(callKey(m.cfg.Self, what), doc, func() {})
}

// persist creates an object that only this member creates, however often it takes.
func (m *Machine) persist(key string, doc any, then func()) {
	m.do(Job{Op: Create, Key: key, Doc: doc}, func(ev Event) {
		switch ev.Outcome {
		case Done, Refused:
			then()
		case Denied:
			m.end(ByDenial, ev.Err)
		default:
			m.persist(key, doc, then)
		}
	})
}

// adoptHold compares what this member works on with the newest assignment.
func (m *Machine) adoptHold() {
	a := m.known
	m.scan = true
	m.self = assign.Nobody
	if i, ok := a.Index(m.cfg.Self); ok {
		m.self = i
	}
	for _, p := range slices.Sorted(maps.Keys(m.parts)) {
		m.compare(p, m.parts[p])
	}
	if m.self == assign.Nobody {
		clear(m.owed)
		clear(m.toAck)
		return
	}
	if !m.leaving {
		for p := range a.Owned(m.self) {
			m.gain(p)
		}
	}
	owed, acked := map[int]uint64{}, map[int]uint64{}
	for p, v := range a.PendingOf(m.self) {
		// guard:ack-unheld. A member acknowledges every pending entry that names it, also for a
		// partition that it never worked on.
		//
		//mutant:replace owed[p] = v => if m.parts[p] != nil { owed[p] = v }
		owed[p] = v
		acked[p] = m.acked[p]
	}
	m.owed, m.acked, m.toAck = owed, acked, map[int]bool{}
	for p := range owed {
		m.mayAck(p)
	}
	maps.DeleteFunc(m.cleared, func(x fence.ID, _ map[int]uint64) bool { _, ok := a.Index(x); return !ok })
	maps.DeleteFunc(m.readies, func(x fence.ID, _ uint64) bool { _, ok := a.Index(x); return !ok })
}

// gain notes a partition that this member owns.
func (m *Machine) gain(p int) {
	if m.parts[p] == nil {
		m.parts[p] = &part{phase: waiting, tenure: m.known.Tenure(p), mine: m.now}
	}
}

// compare ends what this member does not own any more.
func (m *Machine) compare(p int, x *part) {
	a := m.known
	owner := a.Owner(p)
	mine := owner != assign.Nobody && owner == m.self
	// guard:tenure-token. A member's work goes on only while the partition has the tenure under which
	// the work began.
	//
	//mutant:replace x.tenure == a.Tenure(p) => true
	if mine && x.tenure == a.Tenure(p) {
		return
	}
	switch x.phase {
	case waiting, backoff, idle:
		delete(m.parts, p)
	case stopping:
		x.again = false
	case working, handing:
		x.to = fence.ID{}
		if owner != assign.Nobody && !mine {
			x.to, x.moved = a.Members()[owner].Name, a.Moved(p)
		}
		if x.phase == working {
			x.phase, x.until = handing, m.now.Add(m.cfg.Renew)
		}
	}
}

// turnHold does what is due on all partitions.
func (m *Machine) turnHold() {
	if !m.running {
		return
	}
	if m.leaving && m.now >= m.leaveBy {
		m.leaveAnyway()
	}
	if m.scan || m.now >= m.partsDue {
		m.scan, m.partsDue, m.moving = false, far, false
		m.awaited = map[fence.ID]uint64{}
		for _, p := range slices.Sorted(maps.Keys(m.parts)) {
			m.turnPart(p, m.parts[p])
			if m.state == over {
				return
			}
		}
	}
	if m.partsDue < far {
		m.at(m.partsDue)
	}
	if m.leaving {
		m.at(m.leaveBy)
	}
	m.turnGive()
	m.turnAck()
	m.turnAwaited()
	m.turnReady()
}

// leaveAnyway gives up everything although no assignment has moved it.
func (m *Machine) leaveAnyway() {
	for _, p := range slices.Sorted(maps.Keys(m.parts)) {
		switch x := m.parts[p]; x.phase {
		case working, handing:
			m.stop(p, x, ByLeaving)
		case stopping:
			x.again = false
		default:
			delete(m.parts, p)
		}
	}
}

// turnPart does what is due on one partition.
func (m *Machine) turnPart(p int, x *part) {
	switch x.phase {
	case waiting:
		// guard:handshake. A new owner starts only when every pending entry of the partition is
		// cleared: each such member has acknowledged, or is dead.
		//
		//mutant:replace m.waits(p) => false
		if m.waits(p) {
			return
		}
		x.free = x.mine
		if m.handedOver(p) {
			x.free = m.now
		}
		m.start(p, x)
	case backoff:
		if m.now >= x.until && !m.leaving {
			m.start(p, x)
		} else {
			m.partsDue = min(m.partsDue, max(x.until, m.now))
		}
	case working:
		m.mayRetract(p, x)
		if m.cfg.StallAfter == 0 {
			return
		}
		if stall := max(m.cfg.Progress(p)-m.origin, x.began).Add(m.cfg.StallAfter); m.now < stall {
			m.partsDue = min(m.partsDue, stall)
			return
		}
		x.again = true
		m.stop(p, x, ByStalling)
	case handing:
		if x.to == (fence.ID{}) || m.dead[x.to] || m.readies[x.to] >= x.moved || m.now >= x.until {
			m.stop(p, x, ByMoving)
			return
		}
		m.moving = true
		m.partsDue = min(m.partsDue, x.until)
	case stopping:
		// guard:hung-ends. A member ends its session if work that was told to stop does not return
		// within Options.Drain.
		//
		//mutant:replace m.now >= x.until => false
		if m.now >= x.until {
			m.hangs(p, x)
			return
		}
		m.partsDue = min(m.partsDue, x.until)
	case idle:
	}
}

func (m *Machine) stop(p int, x *part, why Cause) {
	x.phase, x.until = stopping, m.now.Add(m.cfg.Drain)
	m.partsDue = min(m.partsDue, x.until)
	m.out.Stops = append(m.out.Stops, Stop{Partition: p, Cause: why})
}

// start opens a partition.
func (m *Machine) start(p int, x *part) {
	if m.leaving {
		return
	}
	token := m.known.Token(p, x.opened)
	if !token.Valid() {
		if !x.called {
			x.called = true
			m.giving = append(m.giving, Given{Partition: p, Tenure: x.tenure, Fresh: true})
		}
		x.phase = idle
		return
	}
	// guard:token-count. An owner counts how often it opens a partition under one tenure, because each
	// opening needs a token of its own.
	//
	//mutant:replace x.opened++ =>
	x.opened++
	x.phase, x.began = working, m.now
	m.out.Starts = append(m.out.Starts, Start{Partition: p, Tenure: x.tenure, Token: token, Failures: x.failures, Waited: m.now.Sub(x.mine), Idle: m.now.Sub(x.free)})
	if m.cfg.StallAfter > 0 {
		m.partsDue = min(m.partsDue, m.now.Add(m.cfg.StallAfter))
	}
	if x.called {
		m.partsDue = min(m.partsDue, m.now.Add(lastBackoff))
	}
}

// returned is called when the work on a partition has returned.
func (m *Machine) returned(ev Event) {
	p := ev.Partition
	x := m.parts[p]
	if x == nil || m.state == over {
		return
	}
	defer m.mayAck(p)
	switch {
	case x.phase == stopping && x.again, x.phase == working && ev.Failed:
		m.failedPart(p, x)
	case x.phase == working && ev.Again:
		m.againPart(x)
	case x.phase == working:
		x.phase = idle
	default:
		delete(m.parts, p)
		if !m.leaving && m.self != assign.Nobody && m.known.Owner(p) == m.self {
			m.gain(p)
			m.scan = true
		}
	}
}

// waits reports whether somebody may still work on a partition, and notes who.
func (m *Machine) waits(p int) bool {
	waits := false
	for _, e := range m.known.Pending(p) {
		x := m.known.Members()[e.Member].Name
		if x == m.cfg.Self || m.isCleared(p, x, e.Number) {
			continue
		}
		waits = true
		m.awaited[x] = min(cmp.Or(m.awaited[x], e.Number), e.Number)
	}
	return waits
}

// handedOver reports whether the owner before has worked on a partition until it acknowledged.
func (m *Machine) handedOver(p int) bool {
	return slices.ContainsFunc(m.known.Pending(p), func(e assign.Entry) bool {
		x := m.known.Members()[e.Member].Name
		return x != m.cfg.Self && e.Number == m.known.Moved(p) && !m.dead[x]
	})
}

func (m *Machine) isCleared(p int, x fence.ID, n uint64) bool {
	return m.dead[x] || m.cleared[x][p] >= n
}

// owesNothing reports whether this member owes nobody anything.
func (m *Machine) owesNothing() bool {
	if !m.running || m.self == assign.Nobody {
		return true
	}
	for p, v := range m.owed {
		if m.acked[p] < v {
			return false
		}
	}
	for range m.known.Owned(m.self) {
		return false
	}
	return true
}

// mayAck notes that a partition may be acknowledged, if this member owes that.
func (m *Machine) mayAck(p int) {
	if v, ok := m.owed[p]; ok && m.acked[p] < v {
		m.toAck[p] = true
	}
}

// turnAck acknowledges what is owed and does not run.
func (m *Machine) turnAck() {
	if m.acking != nil || len(m.toAck) == 0 {
		return
	}
	doc := &Ack{Number: m.known.Number()}
	for p := range m.toAck {
		// guard:stop-first. A member acknowledges a partition only when its work there has returned.
		if x := m.parts[p]; x != nil && x.works() {
			continue
		}
		doc.Partitions = append(doc.Partitions, p)
	}
	clear(m.toAck)
	if len(doc.Partitions) == 0 {
		return
	}
	slices.Sort(doc.Partitions)
	doc.Nonce = m.cfg.Nonce()
	m.acking = doc
	m.nAck++
	m.persist(ackKey(m.cfg.Self, doc.Number, m.nAck), doc, func() {
		m.acking = nil
		for _, p := range doc.Partitions {
			if _, ok := m.owed[p]; ok {
				m.acked[p] = max(m.acked[p], doc.Number)
			}
		}
	})
}

// turnAwaited asks for the acknowledgements that this member waits for, and whether their senders
// are dead.
func (m *Machine) turnAwaited() {
	if len(m.awaited) == 0 {
		return
	}
	if n := m.known.Number(); m.told < n && !m.leaving {
		m.told = n
		m.do(Job{Op: Create, Key: readyKey(m.cfg.Self, n), Doc: &Sign{Nonce: m.cfg.Nonce()}}, func(Event) {})
	}
	for _, x := range slices.SortedFunc(maps.Keys(m.awaited), compareIDs) {
		m.attend(x)
	}
	m.readAcks(func(x fence.ID, n uint64) bool { least, ok := m.awaited[x]; return ok && n >= least })
	if m.asking {
		return
	}
	if m.now < m.ackDue {
		m.at(m.ackDue)
		return
	}
	m.asking = true
	m.do(Job{Op: List, Key: AckPrefix}, func(ev Event) {
		m.asking = false
		m.ackDue = m.now.Add(m.cfg.quick())
		if ev.Outcome == Done {
			m.heardAcks(ev.Entries, true)
		}
	})
}

// heardAcks notes the acknowledgements of a listing. All says that the listing shows all that there are.
func (m *Machine) heardAcks(entries []Entry, all bool) {
	there := map[string]bool{}
	for _, e := range entries {
		x, n, ok := parseAck(e.Key)
		if !ok {
			continue
		}
		there[e.Key] = true
		if m.acks[e.Key] == nil {
			m.acks[e.Key] = &heldAck{name: x, number: n}
		}
	}
	if all {
		maps.DeleteFunc(m.acks, func(key string, h *heldAck) bool { return !there[key] && !h.asked })
	}
}

// readAcks reads the acknowledgements that somebody wants and this member has not read.
func (m *Machine) readAcks(wanted func(x fence.ID, n uint64) bool) (unread int) {
	for _, key := range slices.Sorted(maps.Keys(m.acks)) {
		h := m.acks[key]
		if h.read || !wanted(h.name, h.number) {
			continue
		}
		unread++
		if m.now < h.again {
			m.at(h.again)
			continue
		}
		if h.asked || unread > atOnce {
			continue
		}
		h.asked = true
		m.do(Job{Op: Get, Key: key}, func(ev Event) {
			h.asked = false
			ack, ok := ev.Doc.(*Ack)
			if ev.Outcome != Done || !ok || ack.Number != h.number {
				h.again = m.now.Add(m.cfg.Renew / 4)
				return
			}
			h.read = true
			m.heard(h, ack)
		})
	}
	return unread
}

func (m *Machine) heard(h *heldAck, ack *Ack) {
	m.scan = true
	if m.cleared[h.name] == nil {
		m.cleared[h.name] = map[int]uint64{}
	}
	for _, p := range ack.Partitions {
		m.cleared[h.name][p] = max(m.cleared[h.name][p], h.number)
	}
}

// turnReady asks whether the new owners of partitions that move are ready.
func (m *Machine) turnReady() {
	if !m.moving || m.listing {
		return
	}
	if m.now < m.readyDue {
		m.at(m.readyDue)
		return
	}
	m.listing = true
	m.do(Job{Op: List, Key: ReadyPrefix}, func(ev Event) {
		m.listing, m.scan = false, true
		m.readyDue = m.now.Add(m.cfg.quick())
		for _, e := range ev.Entries {
			if x, n, ok := parseReady(e.Key); ok {
				m.readies[x] = max(m.readies[x], n)
			}
		}
	})
}

func compareIDs(a, b fence.ID) int { return slices.Compare(a[:], b[:]) }
