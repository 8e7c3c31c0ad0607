package outside

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector exports what a hub knows.
type collector struct{ states func() []State }

// Collector returns the metrics of what hub knows. To collect them costs no request.
func Collector(hub *Hub) prometheus.Collector {
	return collector{func() []State {
		all, _ := hub.States()
		return all
	}}
}

// CollectorOf returns the metrics of states that do not change, for tests.
func CollectorOf(states []State) prometheus.Collector {
	return collector{func() []State { return states }}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fencepost_"+name, help, append([]string{"url"}, labels...), nil)
}

// sheet has the descriptions of all metrics.
var sheet = struct {
	up, answered, requests                                           *prometheus.Desc
	leads, epoch, leader, terms, compactorLeads, compactorEpoch      *prometheus.Desc
	records, first, folded, unfolded, unfoldedMore, unfoldedRecords  *prometheus.Desc
	written, segments, files                                         *prometheus.Desc
	seals, manifest, manifestWritten, pruneMark, pins, oldestPin     *prometheus.Desc
	edits, published, publishedEdits, publishedAt                    *prometheus.Desc
	lockLeads, lockEpoch, lockLeader, lockTerm, lockUntil            *prometheus.Desc
	partitions, unowned, moving, givenUp, owned, members, assignment *prometheus.Desc
}{
	up:       desc("watch_up", "1 if the last look at the log, group or lock succeeded, else 0."),
	answered: desc("watch_answered_timestamp_seconds", "When the store last answered, in seconds since 1970."),
	requests: prometheus.NewDesc("fencepost_watch_requests_total", "Requests to the store, for all URLs.", nil, nil),

	leads:          desc("log_leader_leads", "1 if somebody leads the log, else 0."),
	epoch:          desc("log_leader_epoch", "The newest epoch of the log."),
	leader:         desc("log_leader_info", "1, with the machine of the newest leader, or its whole name if somebody chose it.", "holder"),
	terms:          desc("log_leader_acquired_timestamp_seconds", "When the newest leader began to lead, by its clock."),
	compactorLeads: desc("log_compactor_leads", "1 if somebody compacts the log, else 0."),
	compactorEpoch: desc("log_compactor_epoch", "The newest epoch of the compactors; 0 if there was none."),

	records:         desc("log_records", "Offset of the end of the log."),
	first:           desc("log_first_offset", "Offset of the first record that is kept."),
	folded:          desc("log_folded_offset", "Offset of the floor: the records before it are in segments."),
	unfolded:        desc("log_unfolded_objects", "Objects from the floor to the tail, which a compactor has not folded yet."),
	unfoldedMore:    desc("log_unfolded_more", "1 if log_unfolded_objects is only a lower bound, since there were too many to list, else 0."),
	unfoldedRecords: desc("log_unfolded_records", "Records from the floor to the end."),
	written:         desc("log_written_timestamp_seconds", "When the newest object was written, by the store's clock."),
	segments:        desc("log_segments", "Segments of the newest manifest."),
	files:           desc("log_files", "Live files of the log's table."),
	seals:           desc("log_seals", "Seals before the floor: past epochs of the log."),
	manifest:        desc("log_manifest_version", "Version of the newest manifest."),
	manifestWritten: desc("log_manifest_written_timestamp_seconds", "When the newest manifest was written, by its writer's clock."),
	pruneMark:       desc("log_prune_mark", "Version of the manifest up to which nothing is promised."),
	pins:            desc("log_pins", "Pins, which keep versions from being deleted."),
	oldestPin:       desc("log_oldest_pin_version", "The oldest version that is pinned, of the pins that were read; only if there are any."),

	edits:          desc("log_edits", "Edits of the log's table that are folded."),
	published:      desc("log_published_version", "Version of the Delta table beside the log; only if the log is published there."),
	publishedEdits: desc("log_published_edits", "Edits of the log that this table has; it may have some that are not folded."),
	publishedAt:    desc("log_published_timestamp_seconds", "When the last of them was published, by the publisher's clock."),

	lockLeads:  desc("lock_leader_leads", "1 if somebody leads where there is a lock and no log, as with exec, else 0."),
	lockEpoch:  desc("lock_leader_epoch", "The newest epoch of the lock."),
	lockLeader: desc("lock_leader_info", "1, with the machine of the newest leader, or its whole name if somebody chose it.", "holder"),
	lockTerm:   desc("lock_leader_acquired_timestamp_seconds", "When the newest leader began to lead, by its clock."),
	lockUntil:  desc("lock_leader_until_timestamp_seconds", "When the lease ends unless it is renewed, by the leader's clock; only while somebody leads."),

	partitions: desc("partitions", "Partitions of the group."),
	unowned:    desc("partitions_unowned", "Partitions that nobody owns."),
	moving:     desc("partitions_moving", "Partitions that wait until their last owner has stopped."),
	givenUp:    desc("partitions_given_up", "Partitions whose owners gave them up, because the work failed."),
	owned:      desc("partitions_owned", "Partitions that the members on a machine own, or of a name that somebody chose.", "identity"),
	members:    desc("members", "Members of the group, by state: live, leaving, lapsed, expired.", "state"),
	assignment: desc("assignment_number", "Number of the newest assignment."),
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for i, s := range c.states() {
		set := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.URL}, labels...)...)
		}
		if i == 0 {
			ch <- prometheus.MustNewConstMetric(sheet.requests, prometheus.CounterValue, float64(s.Requests))
		}
		if s.Err != "" || s.Seen() { // else it is not known yet: with many URLs the first look takes its time
			set(sheet.up, truth(s.Err == ""))
		}
		if !s.Asked.IsZero() {
			set(sheet.answered, stamp(s.Asked))
		}
		if s.Log != nil {
			collectLog(s.Log, set)
		}
		if s.Group != nil {
			collectGroup(s.Group, set)
		}
		if s.Lock != nil {
			collectLock(s.Lock, set)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func stamp(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

type setter func(d *prometheus.Desc, v float64, labels ...string)

// collectLog exports the parts that were read.
func collectLog(l *Log, set setter) {
	switch {
	case len(l.Terms) > 0 && l.Terms[0].State != "":
		t := &l.Terms[0]
		set(sheet.leads, truth(t.Leads))
		set(sheet.epoch, float64(t.Epoch))
		set(sheet.leader, 1, machine(t.Holder))
		set(sheet.terms, stamp(t.From))
	case len(l.Terms) == 0 && l.Read.Leader:
		set(sheet.leads, 0)
		set(sheet.epoch, 0)
	}
	if l.Read.Compactor {
		set(sheet.compactorLeads, truth(l.Compactor.Leads))
		set(sheet.compactorEpoch, float64(l.Compactor.Epoch))
	}
	if l.Read.Manifest {
		collectManifest(l, set)
	}
	if l.Read.Pins {
		set(sheet.pins, float64(l.PinCount))
	}
	if l.Read.PinVersions {
		collectOldestPin(l, set)
	}
	if p := l.Published; p != nil && !p.Gone {
		set(sheet.published, float64(p.Version))
		set(sheet.publishedEdits, float64(p.Edits))
		if !p.At.IsZero() {
			set(sheet.publishedAt, stamp(p.At))
		}
	}
}

func collectManifest(l *Log, set setter) {
	set(sheet.records, float64(l.End))
	set(sheet.first, float64(l.First))
	set(sheet.folded, float64(l.FloorOffset))
	set(sheet.unfoldedRecords, float64(l.End-min(l.FloorOffset, l.End)))
	set(sheet.segments, float64(l.Segments))
	set(sheet.files, float64(l.Files))
	set(sheet.seals, float64(l.State.Seals))
	set(sheet.pruneMark, float64(l.PruneMark))
	set(sheet.edits, float64(l.Edits))
	if len(l.Manifests) > 0 {
		set(sheet.manifest, float64(l.Manifests[0].Version))
		set(sheet.manifestWritten, stamp(l.Manifests[0].Written))
	}
	if l.Unfolded == nil {
		return
	}
	set(sheet.unfolded, float64(l.Unfolded.Objects))
	set(sheet.unfoldedMore, truth(l.Unfolded.More))
	if !l.LastAt.IsZero() {
		set(sheet.written, stamp(l.LastAt))
	}
}

func collectOldestPin(l *Log, set setter) {
	oldest := ^uint64(0)
	for _, p := range l.Pins {
		if p.Holder != "" && !p.Expired {
			oldest = min(oldest, p.Version)
		}
	}
	if oldest != ^uint64(0) {
		set(sheet.oldestPin, float64(oldest))
	}
}

func collectLock(l *Lock, set setter) {
	switch {
	case len(l.Terms) > 0 && l.Terms[0].State != "":
		t := &l.Terms[0]
		set(sheet.lockLeads, truth(t.Leads))
		set(sheet.lockEpoch, float64(t.Epoch))
		set(sheet.lockLeader, 1, machine(t.Holder))
		set(sheet.lockTerm, stamp(t.From))
		if t.Leads {
			set(sheet.lockUntil, stamp(t.Until))
		}
	case len(l.Terms) == 0 && l.Complete:
		set(sheet.lockLeads, 0)
		set(sheet.lockEpoch, 0)
	}
}

func collectGroup(g *Group, set setter) {
	set(sheet.partitions, float64(g.Partitions))
	set(sheet.moving, float64(len(g.Moving)))
	set(sheet.givenUp, float64(len(g.GivenUp)))
	set(sheet.assignment, float64(g.Assignment))
	set(sheet.unowned, float64(len(g.Unowned)))
	states := map[string]int{"live": 0, "leaving": 0, "lapsed": 0, "expired": 0}
	owned := map[string]int{}
	for _, m := range g.Members {
		owned[machine(m.Identity)] += m.Owned
		states[m.State]++
	}
	for identity, n := range owned {
		set(sheet.owned, float64(n), identity)
	}
	for state, n := range states {
		set(sheet.members, float64(n), state)
	}
}

// machine is an identity without what differs from one process to the next: a label has few values. The default one is
// host/pid/uuid.
func machine(identity string) string {
	if p := strings.Split(identity, "/"); len(p) == 3 && len(p[2]) == 36 {
		return p[0]
	}
	return identity
}
