package promhooks

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

type leaderMetrics struct {
	leads, epoch  *prometheus.GaugeVec
	elected, ends *prometheus.CounterVec
	beats, late   *prometheus.HistogramVec
	failed        *prometheus.CounterVec
	remaining     *deadlines
	campaigns     *prometheus.HistogramVec
}

func (l *leaderMetrics) make(c clock.Clock) []prometheus.Collector {
	const by = "election"
	l.leads = gauges("fencepost_leader_leads", "1 while this process leads, otherwise 0.", by)
	l.epoch = gauges("fencepost_leader_epoch", "Newest epoch that this process has seen.", by)
	l.elected = counters("fencepost_leader_elections_total", "Terms that this process has won.", by)
	l.ends = counters("fencepost_leader_ends_total", "Ends of terms of this process, by cause: resigned, expired, deposed, stalled, other.", by, "cause")
	l.beats = timesBy("fencepost_leader_heartbeat_seconds", "Time from sending a heartbeat to its answer.", by)
	l.late = timesBy("fencepost_leader_heartbeat_late_seconds", "Time from when a heartbeat was due to its answer.", by)
	l.failed = counters("fencepost_leader_heartbeats_failed_total", "Heartbeats that were not applied.", by)
	l.campaigns = timesBy("fencepost_leader_campaign_seconds", "Time of a campaign that was won.", by)
	l.remaining = newDeadlines(c, "fencepost_leader_remaining_seconds", "Time until the term ends without a heartbeat; 0 without a term.", by)
	return []prometheus.Collector{l.leads, l.epoch, l.elected, l.ends, l.beats, l.late, l.failed, l.campaigns, l.remaining}
}

// Leader returns hooks for an elector that measure and then call next. The label election gets
// the name given, such as "log" and "compactor".
func (m *Metrics) Leader(election string, next leader.Hooks) leader.Hooks {
	l := &m.leader
	leads, epoch := l.leads.WithLabelValues(election), l.epoch.WithLabelValues(election)
	elected, waited := l.elected.WithLabelValues(election), l.campaigns.WithLabelValues(election)
	beats, late, failed := l.beats.WithLabelValues(election), l.late.WithLabelValues(election), l.failed.WithLabelValues(election)
	for _, cause := range []string{"resigned", "expired", "deposed", "stalled", "other"} {
		l.ends.WithLabelValues(election, cause)
	}
	left := l.remaining.of(election)
	var newest newest
	h := next
	h.Elected = func(e leader.Election) {
		leads.Set(1)
		epoch.Set(newest.raise(e.Epoch))
		elected.Inc()
		left.set(e.Epoch, e.Remaining)
		waited.Observe(e.Took.Seconds())
		if next.Elected != nil {
			next.Elected(e)
		}
	}
	h.Ended = func(e leader.End) {
		leads.Set(0)
		left.end(e.Epoch)
		l.ends.WithLabelValues(election, termCause(e.Cause)).Inc()
		if next.Ended != nil {
			next.Ended(e)
		}
	}
	h.Heartbeat = func(e leader.Heartbeat) {
		beats.Observe(e.Took.Seconds())
		late.Observe(e.Late.Seconds())
		left.set(e.Epoch, e.Remaining)
		if e.Err != nil {
			failed.Inc()
		}
		if next.Heartbeat != nil {
			next.Heartbeat(e)
		}
	}
	h.Leader = func(r leader.Record) {
		epoch.Set(newest.raise(r.Epoch))
		if next.Leader != nil {
			next.Leader(r)
		}
	}
	return h
}

func termCause(err error) string {
	switch {
	case errors.Is(err, leader.ErrResigned):
		return "resigned"
	case errors.Is(err, leader.ErrExpired):
		return "expired"
	case errors.Is(err, leader.ErrDeposed):
		return "deposed"
	case errors.Is(err, leader.ErrStalled):
		return "stalled"
	}
	return "other"
}

// newest is the greatest number seen.
type newest struct {
	mu sync.Mutex
	n  fence.Epoch
}

func (n *newest) raise(to fence.Epoch) float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n = max(n.n, to)
	return float64(n.n)
}

// deadlines is a gauge whose values run down to 0 between two hooks.
type deadlines struct {
	desc   *prometheus.Desc
	labels int
	clock  clock.Clock
	mu     sync.Mutex
	all    map[string]*deadline // by the value of the label, if there is one
}

type deadline struct {
	clock clock.Clock
	mu    sync.Mutex
	at    clock.Instant
	over  fence.Epoch // the last term that has ended; 0 if there was none
}

func newDeadlines(c clock.Clock, name, help string, labels ...string) *deadlines {
	return &deadlines{desc: prometheus.NewDesc(name, help, labels, nil), labels: len(labels), clock: c, all: map[string]*deadline{}}
}

func (d *deadlines) of(label string) *deadline {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all[label] == nil {
		d.all[label] = &deadline{clock: d.clock, at: d.clock.Now()}
	}
	return d.all[label]
}

// set notes how much is left of the term of an epoch. A heartbeat may be told after the end of its term,
// with what was left before. That counts no more. A group has no epochs, so its epoch is 0.
func (d *deadline) set(epoch fence.Epoch, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if epoch == 0 || epoch != d.over {
		d.at = d.clock.Now().Add(left)
	}
}

func (d *deadline) end(epoch fence.Epoch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.over = d.clock.Now(), epoch
}

func (d *deadline) left() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(d.at.Sub(d.clock.Now()), 0)
}

// Describe implements prometheus.Collector.
func (d *deadlines) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d *deadlines) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for label, one := range d.all {
		ch <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, one.left().Seconds(), []string{label}[:d.labels]...)
	}
}
