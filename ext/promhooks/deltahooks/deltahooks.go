package deltahooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
)

// ErrOptions: options that cannot work.
var ErrOptions = errors.New("deltahooks: invalid options")

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Metrics measure the publisher of one table. It is safe for concurrent use.
type Metrics struct {
	rounds                       *prometheus.HistogramVec
	versions, conflicts, foreign prometheus.Counter
	version, files               prometheus.Gauge
	behind, refused              prometheus.Gauge
	lag                          prometheus.GaugeFunc

	clock clock.Clock
	mu    sync.Mutex
	known bool          // a round has ended
	at    clock.Instant // the table has all edits that were committed before it
}

// New makes the metrics and registers them. The error is [ErrOptions], or reg's if a metric is
// registered already.
func New(reg prometheus.Registerer, opts *Options) (*Metrics, error) {
	if reg == nil {
		return nil, fmt.Errorf("%w: the Registerer is nil: pass prometheus.DefaultRegisterer, or a registry of your own", ErrOptions)
	}
	m := &Metrics{clock: clock.Or(cmp.Or(opts, &Options{}).Clock)}
	all := m.make()
	for i, c := range all {
		if err := reg.Register(c); err != nil {
			for _, done := range all[:i] {
				reg.Unregister(done)
			}
			return nil, fmt.Errorf("deltahooks: registering the metrics; another table needs a label of its own, by prometheus.WrapRegistererWith: %w", err)
		}
	}
	return m, nil
}

func (m *Metrics) make() []prometheus.Collector {
	m.rounds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fencepost_delta_round_seconds", Help: "Time of a round, by outcome: ok, error.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}, // as in promhooks
	}, []string{"outcome"})
	m.rounds.WithLabelValues("ok")
	m.rounds.WithLabelValues("error")
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m.versions = count("fencepost_delta_versions_total", "Versions that this publisher has created.")
	m.conflicts = count("fencepost_delta_conflicts_total", "Versions that another publisher created first.")
	m.foreign = count("fencepost_delta_foreign_total", "Objects in the Delta log that another program has written.")
	m.version = gauge("fencepost_delta_version", "Newest version that this publisher has seen.")
	m.files = gauge("fencepost_delta_files", "Active files of the Delta table.")
	m.behind = gauge("fencepost_delta_behind_edits", "Edits that are not in the table, as of the last round.")
	m.refused = gauge("fencepost_delta_refused_sources", "Logs that the last round has left out.")
	m.lag = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fencepost_delta_lag_seconds",
		Help: "How long ago the table had all edits; grows while a log is left out or rounds fail.",
	}, m.late)
	return []prometheus.Collector{m.rounds, m.versions, m.conflicts, m.foreign, m.version, m.files, m.behind, m.refused, m.lag}
}

func (m *Metrics) late() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known {
		return 0
	}
	return max(m.clock.Now().Sub(m.at), 0).Seconds()
}

// Publisher returns hooks for a publisher that measure and then call next.
func (m *Metrics) Publisher(next delta.Hooks) delta.Hooks {
	h := next
	h.Round = func(r delta.Round) {
		m.round(&r)
		if next.Round != nil {
			next.Round(r)
		}
	}
	h.Foreign = func(f delta.Foreign) {
		m.foreign.Inc()
		if next.Foreign != nil {
			next.Foreign(f)
		}
	}
	return h
}

func (m *Metrics) round(r *delta.Round) {
	m.versions.Add(float64(r.Report.Versions))
	m.conflicts.Add(float64(r.Report.Tries))
	begun := m.clock.Now().Add(-r.Took)
	switch {
	case errors.Is(r.Err, context.Canceled): // the publisher was told to end
		return
	case r.Err != nil:
		m.rounds.WithLabelValues("error").Observe(r.Took.Seconds())
		m.begun(begun, false)
		return
	}
	m.rounds.WithLabelValues("ok").Observe(r.Took.Seconds())
	m.version.Set(float64(max(r.Report.Version, 0)))
	m.files.Set(float64(r.Report.Files))
	var behind uint64
	refused := 0
	for _, s := range r.Report.Sources {
		if errors.Is(s.Err, delta.ErrUnpublished) {
			continue // it is not meant to be in the table any more
		}
		behind += s.Edits - min(s.Published, s.Edits)
		if s.Err != nil {
			refused++
		}
	}
	m.behind.Set(float64(behind))
	m.refused.Set(float64(refused))
	m.begun(begun, behind == 0 && refused == 0)
}

// begun notes that a round began then, and whether the table had all edits of that moment when it
// ended. The lag of a publisher that never had them counts from its first round.
func (m *Metrics) begun(at clock.Instant, complete bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if complete || !m.known {
		m.known, m.at = true, at
	}
}
