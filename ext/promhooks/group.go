package promhooks

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
)

type groupMetrics struct {
	assignment, partitions, members, owned, open prometheus.Gauge
	beats, waited                                prometheus.Histogram
	failed, opened, parked, ends                 prometheus.Counter
	closed                                       *prometheus.CounterVec
	remaining                                    *deadlines
}

func (g *groupMetrics) make(c clock.Clock) []prometheus.Collector {
	g.assignment = gauge("fencepost_group_assignment", "Newest assignment that this member has read.")
	g.partitions = gauge("fencepost_group_partitions", "Partitions of the group.")
	g.members = gauge("fencepost_group_members", "Members that the assignment lists.")
	g.owned = gauge("fencepost_group_owned_partitions", "Partitions assigned to this member.")
	g.open = gauge("fencepost_group_open_partitions", "Partitions that this member works on now.")
	g.beats = times("fencepost_group_heartbeat_seconds", "Time of a heartbeat of this member.")
	g.failed = counter("fencepost_group_heartbeats_failed_total", "Heartbeats of this member that were not applied.")
	g.opened = counter("fencepost_group_opened_total", "Works on a partition that began.")
	g.closed = counters("fencepost_group_closed_total", "Works on a partition that returned, by outcome: done, moved, error.", "outcome")
	for _, outcome := range []string{"done", "moved", "error"} {
		g.closed.WithLabelValues(outcome)
	}
	g.waited = times("fencepost_group_open_wait_seconds", "Wait for the last owner of a partition.")
	g.parked = counter("fencepost_group_parked_total", "Partitions that all owners gave up; the organiser counts.")
	g.ends = counter("fencepost_group_ended_total", "Sessions of this process that have ended.")
	g.remaining = newDeadlines(c, "fencepost_group_remaining_seconds", "Time until the session ends without a heartbeat.")
	return []prometheus.Collector{
		g.assignment, g.partitions, g.members, g.owned, g.open, g.beats, g.failed, g.opened, g.closed, g.waited, g.parked, g.ends, g.remaining,
	}
}

// Group returns hooks for a member of a group that measure and then call next.
func (m *Metrics) Group(next group.Hooks) group.Hooks {
	g := &m.group
	left := g.remaining.of("")
	h := next
	h.Opened = func(o group.Opening) {
		g.opened.Inc()
		g.open.Inc()
		g.waited.Observe(o.Waited.Seconds())
		if next.Opened != nil {
			next.Opened(o)
		}
	}
	h.Closed = func(c group.Closing) {
		g.open.Dec()
		g.closed.WithLabelValues(closing(c)).Inc()
		if next.Closed != nil {
			next.Closed(c)
		}
	}
	h.Assigned = func(a group.Assigned) {
		g.assignment.Set(float64(a.Number))
		g.partitions.Set(float64(a.Partitions))
		g.members.Set(float64(a.Members))
		g.owned.Set(float64(a.Owned))
		if next.Assigned != nil {
			next.Assigned(a)
		}
	}
	h.Heartbeat = func(b group.Heartbeat) {
		g.beats.Observe(b.Took.Seconds())
		left.set(0, b.Remaining)
		if b.Err != nil {
			g.failed.Inc()
		}
		if next.Heartbeat != nil {
			next.Heartbeat(b)
		}
	}
	h.Parked = func(p group.Parking) {
		g.parked.Inc()
		if next.Parked != nil {
			next.Parked(p)
		}
	}
	h.Ended = func(e group.End) {
		g.ends.Inc()
		g.owned.Set(0)
		left.end(0)
		if next.Ended != nil {
			next.Ended(e)
		}
	}
	return h
}

func closing(c group.Closing) string {
	switch {
	case c.Cause != nil:
		return "moved"
	case c.Err != nil:
		return "error"
	}
	return "done"
}
