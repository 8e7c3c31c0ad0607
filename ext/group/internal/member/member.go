package member

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
)

// Config of a machine. Nothing has a default.
type Config struct {
	Self  fence.ID
	Group fence.ID
	// Partitions and Base are those of group.json.
	Partitions int
	Base       fence.Epoch
	// Identity, Weight and Data go into the member's object.
	Identity string
	Weight   uint64
	Data     string
	// Validity is the group's. Renew is from one heartbeat to the next, Margin how long before
	// the end of the validity the member stops.
	Validity, Renew, Margin time.Duration
	// ClockRate is the largest error of a clock's rate, as a share.
	ClockRate float64
	// MinRewrite is the shortest time between two writes of one key that the store takes.
	MinRewrite time.Duration
	// Drain is how long the work on a partition may take to return once its context has ended.
	Drain time.Duration
	// StallAfter ends the work on a partition that shows no progress for so long; 0 means never.
	StallAfter time.Duration
	// Progress is when the work on a partition last showed progress.
	Progress func(partition int) clock.Instant
	// Random is from [0, 1). Nonce returns another string each time.
	Random func() float64
	Nonce  func() string
}

// wait is how long others wait for a member that shows no sign of life.
//
// guard:lapse-rate. Organisers wait a little longer than a validity before they expire a member,
// because clocks may differ in rate.
//
//mutant:replace float64(c.Validity)*(1+c.ClockRate)/(1-c.ClockRate) => float64(c.Validity)
func (c *Config) wait() time.Duration {
	return time.Duration(float64(c.Validity)*(1+c.ClockRate)/(1-c.ClockRate)) + 1
}

// quick is how often to ask for what others are about to write.
func (c *Config) quick() time.Duration {
	q := min(max(c.Validity/60, time.Millisecond), 250*time.Millisecond)
	return q/2 + time.Duration(c.Random()*float64(q))
}

// Machine is one member, from its joining to its end.
type Machine struct {
	cfg   Config
	state state
	// origin is added to the machine's own instants, which begin at 1, to give the caller's. 0 is no
	// instant.
	origin clock.Instant
	now    clock.Instant
	out    Ready
	jobs   map[uint64]func(Event)
	count  uint64

	beat
	look
	hold
	watch
	plan
	trouble
	prune

	// dead are the members that were found dead. They stay so.
	dead map[fence.ID]bool
}

type state uint8

const (
	joining state = iota
	live
	over
)

// New returns a machine whose first event is Join.
func New(cfg Config) *Machine {
	m := &Machine{cfg: cfg, jobs: map[uint64]func(Event){}, dead: map[fence.ID]bool{}}
	m.known = assign.New(cfg.Group, cfg.Partitions, cfg.Base)
	m.parts = map[int]*part{}
	m.watch.members = map[fence.ID]*seen{}
	m.calls = map[string]*heard{}
	m.acks = map[string]*heldAck{}
	m.idleSince = map[string]clock.Instant{}
	m.total = cfg.Partitions
	return m
}

// Deadline is when the session ends unless a heartbeat is applied.
func (m *Machine) Deadline() clock.Instant { return m.deadline + m.origin }

// Joined reports whether the member's object was created in time.
func (m *Machine) Joined() bool { return m.state != joining && m.version != "" }

// Leaving reports whether it leaves: it is told to, or somebody drains it.
func (m *Machine) Leaving() bool { return m.leaving }

// Known is the newest assignment that the member has seen.
func (m *Machine) Known() *assign.Assignment { return m.known }

// Step takes an event and returns what follows from it.
func (m *Machine) Step(now clock.Instant, ev Event) Ready {
	if m.now == 0 {
		m.origin = now - 1
	}
	m.now = max(m.now, now-m.origin)
	m.out = Ready{Wake: m.now.Add(m.cfg.Validity)}
	// The clock comes first. After the deadline every event is too late.
	m.check()
	switch ev.Kind {
	case Tick:
	case Join:
		m.join()
	case Run:
		m.run()
	case Answer:
		if then := m.jobs[ev.N]; then != nil {
			delete(m.jobs, ev.N)
			then(ev)
		}
	case Returned:
		m.returned(ev)
	case Leave:
		m.leave()
	}
	// What one turn has found out may be news for another.
	for again := true; again && m.state == live; {
		jobs := len(m.out.Jobs)
		m.ranked = -1
		m.turnHold()
		m.turnLook()
		m.turnWatch()
		m.turnPlan()
		m.turnPrune()
		again = len(m.out.Jobs) > jobs || m.scan && m.running
	}
	m.turnBeat()
	m.out.Wake += m.origin
	for i := range m.out.Jobs {
		m.out.Jobs[i].Until += m.origin
	}
	return m.out
}

// do sends a job. Then gets its answer, unless the session is over before.
func (m *Machine) do(j Job, then func(Event)) {
	m.count++
	j.N = m.count
	if j.Until == 0 {
		j.Until = m.now.Add(m.cfg.Validity)
	}
	m.jobs[j.N] = func(ev Event) {
		if m.state != over || j.Key == Key(m.cfg.Self) {
			then(ev)
		}
	}
	m.out.Jobs = append(m.out.Jobs, j)
}

// at asks to be woken. What is due now is done in this step.
func (m *Machine) at(t clock.Instant) {
	if t > m.now {
		m.out.Wake = min(m.out.Wake, t)
	}
}

// end ends the session. What comes first is the cause.
func (m *Machine) end(c Cause, err error) {
	if m.state == over {
		return
	}
	m.state = over
	m.out.Ended, m.out.Err = c, err
	m.out.Starts, m.out.Stops = nil, nil
	clear(m.parts)
}

func (m *Machine) note(n Note) { m.out.Notes = append(m.out.Notes, n) }

// check ends the session if its time is up.
func (m *Machine) check() {
	if m.state != live {
		return
	}
	switch {
	case m.now >= m.deadline:
		// guard:deadline-first. A member ends its session at its own deadline, which comes before
		// anybody may expire the member.
		m.end(ByDeadline, m.failed)
	case m.blind != 0 && m.now >= m.blind.Add(m.cfg.Validity):
		// guard:blind-ends. A member that for a validity could not read the newest assignment, which
		// says who owns each partition, ends its session.
		m.end(ByBlindness, m.lookErr)
	default:
		m.at(m.deadline)
		if m.blind != 0 {
			m.at(m.blind.Add(m.cfg.Validity))
		}
	}
}
