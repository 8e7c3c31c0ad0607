package member

import (
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// prune deletes what nobody needs any more. The first organiser does it.
type prune struct {
	idleSince map[string]clock.Instant // by key: since when nobody needs the object
	deleting  bool
	pruned    uint64 // the listing that was last looked through
}

// grace is how long an object stays that nobody needs.
func (c *Config) grace() time.Duration { return max(time.Minute, 4*c.Validity) }

// deleteAtOnce bounds the keys of one job.
const deleteAtOnce = 1000

// turnPrune looks through a listing, and deletes what was not needed for the grace period.
func (m *Machine) turnPrune() {
	// What a listing showed is judged by the newest assignment that it showed, or by a later one.
	if !m.running || m.deleting || m.pruned == m.round || m.listed != 0 || m.known.Number() == 0 || m.rank() > 0 {
		return
	}
	m.pruned = m.round
	m.troubles()
	doomed := map[string]time.Duration{}
	for _, e := range m.older {
		if grace, ok := m.needless(e.Key); ok {
			doomed[e.Key] = grace
		}
	}
	for x, s := range m.watch.members {
		_, named := m.known.Index(x)
		if s.round == m.round && m.dead[x] && s.rec != nil && s.rec.Expired && !named {
			doomed[Key(x)] = m.cfg.grace()
		}
	}
	maps.DeleteFunc(m.idleSince, func(key string, _ clock.Instant) bool { _, ok := doomed[key]; return !ok })
	var keys []string
	for key, grace := range doomed {
		if m.idleSince[key] == 0 {
			m.idleSince[key] = m.now
		}
		if m.now >= m.idleSince[key].Add(grace) && len(keys) < deleteAtOnce {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	m.deleting = true
	m.do(Job{Op: Delete, Keys: keys}, func(Event) { m.deleting = false })
}

// needless reports whether nobody needs an object, and how long it stays all the same.
func (m *Machine) needless(key string) (grace time.Duration, ok bool) {
	a := m.known
	if n, ok := ParseAssignKey(key); ok {
		return m.cfg.grace(), n < a.Number()
	}
	if _, n, ok := parseReady(key); ok {
		return m.cfg.grace(), n < a.Number()
	}
	if x, n, ok := parseAck(key); ok {
		// guard:ack-newer. A pruner deletes no acknowledgement whose number is above the newest
		// assignment that the pruner has read, because it cannot know who waits for that.
		//
		//mutant:replace n > a.Number() => false
		if n > a.Number() {
			return 0, false
		}
		// guard:ack-kept. An acknowledgement with number n is kept while the newest assignment has a
		// pending entry of its sender with number n or lower.
		//
		//mutant:replace !m.wantsAck(x, n) => m.wantsAck(x, n) || true
		return m.cfg.grace(), !m.wantsAck(x, n)
	}
	if x, what, ok := ParseKey(CallPrefix, key); ok {
		i, named := a.Index(x)
		gone := m.watch.members[x] == nil && !named
		switch what {
		case joined:
			return m.cfg.grace(), gone || named && !a.Members()[i].Leaving
		case leaving:
			return m.cfg.grace(), gone
		}
		return m.cfg.grace(), m.answered(m.calls[key])
	}
	return 0, false
}
