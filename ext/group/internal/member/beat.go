package member

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// beat keeps the member's own object alive.
type beat struct {
	version  store.Version // as last known
	deadline clock.Instant
	due      clock.Instant // the next heartbeat
	last     clock.Instant // when the last write was sent, and later when it was answered
	renewals uint64

	doc     *Record // a heartbeat without an answer
	first   clock.Instant
	sending bool
	retry   clock.Instant
	broken  int
	failed  error // the last failed heartbeat

	leaving  bool
	leaveBy  clock.Instant // then the member leaves without an assignment
	released bool
}

func (m *Machine) record() *Record {
	m.renewals++
	c := &m.cfg
	return &Record{
		Identity: c.Identity, Weight: c.Weight, Data: c.Data, Validity: c.Validity, Renew: c.Renew,
		Nonce: c.Nonce(), Renewals: m.renewals - 1,
	}
}

// join creates the member's object. That is its first heartbeat.
func (m *Machine) join() {
	sent := m.now
	until := sent.Add(m.cfg.Validity - m.cfg.Margin)
	m.do(Job{Op: Create, Key: Key(m.cfg.Self), Doc: m.record(), Until: until}, func(ev Event) {
		switch ev.Outcome {
		case Done:
			// guard:clean-join. The first deadline of a member counts from before its create was first
			// sent.
			//
			//mutant:replace sent.Add => m.now.Add
			m.deadline = sent.Add(m.cfg.Validity - m.cfg.Margin)
			if m.now >= m.deadline {
				m.end(ByLateJoin, ev.Err)
				return
			}
			m.state, m.version, m.last = live, ev.Version, m.now
			m.due = sent.Add(m.cfg.Renew)
		case Denied:
			m.end(ByDenial, ev.Err)
		default:
			m.end(ByLateJoin, ev.Err)
		}
	})
}

// turnBeat sends the next write of the member's own object, if one is due.
func (m *Machine) turnBeat() {
	if m.sending || m.state == joining || m.released {
		return
	}
	switch {
	case m.state == over:
		return
	case m.doc != nil: // the same bytes again
		if m.now < m.retry {
			m.at(m.retry)
			return
		}
		m.send()
		return
	}
	turn := m.last.Add(m.cfg.MinRewrite)
	switch {
	case m.mayRelease():
		if m.now < turn {
			m.at(turn)
			return
		}
		m.release()
	case m.now < max(m.due, turn):
		m.at(max(m.due, turn))
	default:
		m.doc, m.first = m.record(), m.now
		m.send()
	}
}

func (m *Machine) send() {
	// guard:deadline-sent. After a heartbeat, a member's new deadline counts from before the heartbeat
	// was first sent, not from a retry.
	//
	//mutant:replace first := m.first => first := m.now
	first := m.first
	m.sending = true
	m.last = m.now
	m.do(Job{Op: Swap, Key: Key(m.cfg.Self), Known: m.version, Doc: m.doc, Until: m.deadline}, func(ev Event) {
		m.sending = false
		m.last = m.now
		m.note(Note{What: NoteBeat, Took: m.now.Sub(first), Err: ev.Err})
		switch ev.Outcome {
		case Done:
			m.doc, m.broken, m.failed = nil, 0, nil
			m.version = ev.Version
			m.renewed(first)
		case Refused:
			m.end(ByOthers, ev.Err)
		default:
			m.failed = ev.Err
			m.retry = m.now.Add(max(m.cfg.Renew/16<<min(m.broken, 3), time.Millisecond))
			m.broken++
		}
	})
}

// renewed moves the deadline after a heartbeat was applied.
func (m *Machine) renewed(first clock.Instant) {
	// guard:final-deadline. A member whose deadline has passed never goes on under its name, whatever
	// answer comes later.
	//
	//mutant:replace m.state == over => false
	if m.state == over {
		return
	}
	m.state = live
	m.deadline = max(m.deadline, first.Add(m.cfg.Validity-m.cfg.Margin))
	for m.due <= m.now {
		m.due = m.due.Add(m.cfg.Renew)
	}
}

// leave begins the end in good order: the call says so, everything moves away, the member drains and
// acknowledges, and then expires itself.
func (m *Machine) leave() {
	if m.leaving || m.state == over {
		return
	}
	m.leaving, m.leaveBy = true, m.now.Add(m.cfg.Validity)
	if m.state == joining || !m.running {
		return
	}
	m.call(leaving, &Sign{Nonce: m.cfg.Nonce()})
	m.planSoon()
}

// mayRelease reports whether a member that leaves may expire itself now.
func (m *Machine) mayRelease() bool {
	if !m.leaving {
		return false
	}
	// guard:expire-last. A member that leaves swaps its own object to expired only when all its work
	// has returned.
	//
	//mutant:replace len(m.parts) > 0 => false
	if len(m.parts) > 0 {
		return false
	}
	return m.owesNothing() || m.now >= m.leaveBy
}

func (m *Machine) release() {
	rec := m.record()
	rec.Expired, rec.By = true, m.cfg.Identity
	m.sending, m.released = true, true
	m.do(Job{Op: Swap, Key: Key(m.cfg.Self), Known: m.version, Doc: rec}, func(ev Event) {
		m.sending = false
		// Where the answer is lost, the member lapses.
		m.end(ByLeaving, ev.Err)
	})
}
