package member

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// look finds the newest assignment.
type look struct {
	known  *assign.Assignment
	seenAt clock.Instant // when known was read

	looking  bool          // a request of turnLook is in flight
	want     bool          // a listing must begin from now on
	blind    clock.Instant // since when a listing is wanted that has not succeeded; 0: none is
	lookErr  error
	again    clock.Instant // not before then
	misses   int           // failures in a row
	damaged  int           // unreadable assignments in a row
	listDue  clock.Instant
	pollDue  clock.Instant
	head     store.Version
	headN    uint64
	hinted   uint64 // the highest number that a hint of this group had
	hinting  bool   // for the first hint
	hintRead bool   // the first hint was read, or is not there
	listed   uint64 // the highest number of the last listing, if it is to be read; or 0
	listedAs store.Version
}

// listEvery is the longest time from one listing to the next. A little is added at random.
const listEvery = time.Minute

// poll is how often to read the hint.
func (c *Config) poll() time.Duration { return c.Validity / 6 }

// turnLook sends the next request, if one is due: for the newest assignment, or for the hint.
func (m *Machine) turnLook() {
	if m.running && !m.hintRead && !m.hinting && m.now >= m.again {
		m.askHint()
	}
	if m.looking || !m.running {
		return
	}
	if m.now < m.again {
		m.at(m.again)
		return
	}
	// guard:look-anyway. A member lists the assignments from time to time, whatever the hint says.
	//
	//mutant:replace m.now >= m.listDue => false
	due := m.now >= m.listDue
	switch {
	case m.want || due || m.lost(m.hinted):
		m.list()
	case m.listed != 0 && !m.hintRead:
		// askHint goes on.
	case m.listed != 0:
		m.get()
	case m.now >= m.pollDue:
		m.poll()
	default:
		m.at(m.pollDue)
		m.at(m.listDue)
	}
}

// wanted notes that a listing must begin from now on.
func (m *Machine) wanted() {
	m.want = true
	if m.blind == 0 {
		m.blind = m.now
	}
}

func (m *Machine) list() {
	m.wanted()
	m.want, m.looking = false, true
	hinted := m.hinted
	// The job is cut off after a validity. What was the newest when it began is not deleted until long
	// after.
	m.do(Job{Op: List, Key: AssignPrefix, Until: m.now.Add(m.cfg.Validity)}, func(ev Event) {
		m.looking = false
		if ev.Outcome != Done {
			m.want = true
			m.missed(ev.Err)
			return
		}
		m.misses = 0
		m.listDue = m.now.Add(listEvery + time.Duration(m.cfg.Random()*float64(listEvery)/4))
		m.newest(ev.Entries)
		switch {
		case m.lost(hinted):
			m.unreadable(hinted, fmt.Errorf("%w: %s: it is missing, with all later ones, but %s names it", fence.ErrCorrupt, AssignKey(hinted), HeadKey))
		case m.lost(m.hinted):
			m.want = true // this listing began before the hint was read
		case m.listed == 0 && !m.want:
			m.damaged, m.blind = 0, 0
		}
	})
}

// lost reports whether a hint names an assignment above all that are known.
func (m *Machine) lost(hinted uint64) bool {
	// guard:hint-lost. If a listing that began after a hint was read shows neither the hint's
	// assignment nor a later one, assignments were lost, and the member ends.
	//
	//mutant:replace hinted > max(m.known.Number(), m.listed) => false
	return hinted > max(m.known.Number(), m.listed)
}

// askHint reads the hint when a session begins.
func (m *Machine) askHint() {
	m.hinting = true
	m.do(Job{Op: Get, Key: HeadKey}, func(ev Event) {
		m.hinting = false
		if m.hintRead = ev.Outcome != Failed; !m.hintRead {
			m.missed(ev.Err)
			return
		}
		m.heardHint(ev)
	})
}

// heardHint notes a hint. One of another group was late: this group was made anew. One that is lost or
// damaged is put again by the first organiser: without it nobody would learn that an assignment is lost.
func (m *Machine) heardHint(ev Event) {
	if ev.Outcome == Absent || ev.Outcome == Unreadable && !errors.Is(ev.Err, fence.ErrFormat) {
		m.head, m.headN = "", 0
	}
	h, ok := ev.Doc.(*Head)
	if !ok || ev.Outcome != Done {
		return
	}
	m.head, m.headN = ev.Version, h.Number
	if h.Group != m.cfg.Group {
		m.headN = 0
		return
	}
	if m.hinted = max(m.hinted, h.Number); h.Number > max(m.known.Number(), m.listed) && !m.looking {
		m.wanted() // a listing that is in flight is looked at when it comes
	}
}

// newest notes the highest assignment of a complete listing.
func (m *Machine) newest(entries []Entry) {
	for _, e := range entries {
		// guard:newest-kept. A member that has read an assignment never acts on one with a lower
		// number.
		//
		//mutant:replace n > m.known.Number() => n > 0
		if n, ok := ParseAssignKey(e.Key); ok && n > m.known.Number() && n >= m.listed {
			m.listed, m.listedAs = n, e.Version
		}
	}
}

func (m *Machine) get() {
	n, version := m.listed, m.listedAs
	m.looking = true
	if m.blind == 0 {
		m.blind = m.now
	}
	m.do(Job{Op: Get, Key: AssignKey(n)}, func(ev Event) {
		m.looking = false
		m.listed = 0
		a, _ := ev.Doc.(*assign.Assignment)
		switch {
		case ev.Outcome == Unreadable || ev.Outcome == Done && (a.Group() != m.cfg.Group || a.Number() != n):
			m.unreadable(n, ev.Err)
		case ev.Outcome != Done:
			m.want = true
			m.missed(ev.Err)
		case ev.Version != version:
			// guard:listed-version. The GET of an assignment must return the object version that the
			// listing showed.
			m.want = true
			m.missed(nil)
		default:
			m.misses, m.damaged = 0, 0
			if !m.want {
				m.blind = 0
			}
			m.adopt(a)
		}
	})
}

// unreadable is called for an assignment that cannot be understood. One in a hole is junk, so it is
// listed again before the member gives up.
func (m *Machine) unreadable(n uint64, err error) {
	if err == nil {
		err = fmt.Errorf("%s belongs to another group, or has another number inside", AssignKey(n))
	}
	m.want = true
	m.missed(err)
	if m.damaged++; m.damaged > 2 {
		m.end(ByDamage, err)
	}
}

// missed puts the next attempt off.
func (m *Machine) missed(err error) {
	m.lookErr = err
	d := min(m.cfg.quick()<<min(m.misses, 6), m.cfg.Renew)
	m.misses++
	m.again = m.now.Add(d)
}

func (m *Machine) poll() {
	m.looking = true
	m.pollDue = m.now.Add(m.cfg.poll())
	if m.round > 0 && m.rank() == 0 {
		m.pollDue = m.now.Add(m.cfg.Renew) // its listings show assignments, too, and it makes most of them
	}
	m.do(Job{Op: Get, Key: HeadKey, Known: m.head, Until: m.now.Add(m.cfg.poll())}, func(ev Event) {
		m.looking = false
		m.heardHint(ev)
	})
}

// adopt takes an assignment for the newest.
func (m *Machine) adopt(a *assign.Assignment) {
	m.known, m.seenAt = a, m.now
	m.out.Adopted = a
	if i, ok := a.Index(m.cfg.Self); ok && a.Members()[i].Leaving {
		m.leave() // somebody drains this member
	}
	m.adoptHold()
	m.adoptPlan()
}
