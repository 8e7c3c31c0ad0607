package member

import (
	"slices"
	"time"
)

// This file is what an owner does when the work on a partition fails or hangs. What organisers make of its calls is
// in trouble.go.

// failedPart puts off the next opening, longer with each failure. After some failures the owner asks
// that another member gets the partition.
func (m *Machine) failedPart(p int, x *part) {
	if m.now.Sub(x.began) >= lastBackoff {
		x.failures = 0
	}
	m.pause(x, min(firstBackoff<<min(x.failures, 16), lastBackoff))
	x.failures++
	if x.failures >= failuresAtOnce && !x.called {
		x.called = true
		m.giving = append(m.giving, Given{Partition: p, Tenure: x.tenure})
	}
}

// againPart puts off the next opening by work that has not failed.
func (m *Machine) againPart(x *part) {
	if m.now.Sub(x.began) >= longRound {
		x.rounds = 0
	}
	m.pause(x, min(firstBackoff<<min(x.rounds, 16), lastRound))
	x.rounds++
	x.failures = 0
}

// pause lets a partition be opened again after half of d to d.
func (m *Machine) pause(x *part, d time.Duration) {
	x.again, x.mine, x.free = false, m.now, m.now
	x.phase, x.until = backoff, m.now.Add(d/2+time.Duration(m.cfg.Random()*float64(d)/2))
	m.partsDue = min(m.partsDue, x.until)
}

// turnGive sends the calls of partitions that are given up, many in one.
func (m *Machine) turnGive() {
	if m.calling || len(m.giving) == 0 || m.leaving {
		return
	}
	n := min(len(m.giving), givenAtOnce)
	doc := &Call{Nonce: m.cfg.Nonce(), Given: slices.Clone(m.giving[:n])}
	m.giving, m.calling = m.giving[n:], true
	m.nCall++
	if m.callAt == 0 && slices.ContainsFunc(doc.Given, func(g Given) bool { return !g.Sound }) {
		m.callAt = m.now
	}
	m.persist(callKey(m.cfg.Self, FormatNumber(m.nCall)), doc, func() { m.calling = false })
}

// hangs ends the session, because the work on a partition does not return. Before that a call says so: the next
// owner's work may hang, too. If several hang, one is named. Perhaps it is not the partitions that are to blame.
func (m *Machine) hangs(p int, x *part) {
	if m.leaving { // a session that ends anyway
		m.end(ByHanging, nil)
		return
	}
	if m.hungBy == 0 {
		m.hungBy = min(m.now.Add(m.cfg.Renew), m.deadline)
		m.nCall++
		doc := &Call{Nonce: m.cfg.Nonce(), Given: []Given{{Partition: p, Tenure: x.tenure, Hung: true}}}
		m.blame(callKey(m.cfg.Self, FormatNumber(m.nCall)), doc)
	}
	if m.now >= m.hungBy {
		m.end(ByHanging, nil)
		return
	}
	m.partsDue = min(m.partsDue, m.hungBy)
}

// blame creates the call of a session that is about to end, and ends the session then.
func (m *Machine) blame(key string, doc *Call) {
	m.do(Job{Op: Create, Key: key, Doc: doc, Until: m.hungBy}, func(ev Event) {
		if ev.Outcome == Failed && m.now < m.hungBy {
			m.blame(key, doc) // without the call the next owner's work may end one session too many
			return
		}
		m.end(ByHanging, nil)
	})
}

// mayRetract takes back that a partition was given up, when its work has run for long.
func (m *Machine) mayRetract(p int, x *part) {
	if !x.called {
		return
	}
	if well := x.began.Add(lastBackoff); m.now < well {
		m.partsDue = min(m.partsDue, well)
		return
	}
	x.called, x.failures = false, 0
	m.giving = append(m.giving, Given{Partition: p, Tenure: x.tenure, Sound: true})
}
