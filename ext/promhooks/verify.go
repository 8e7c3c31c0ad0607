package promhooks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/verify"
)

type verifyMetrics struct {
	runs                  *prometheus.CounterVec
	bytes                 prometheus.Counter
	problems, notes, took prometheus.Gauge
	at                    prometheus.Gauge
	clock                 clock.Clock
}

func (v *verifyMetrics) make(c clock.Clock) []prometheus.Collector {
	v.clock = c
	v.runs = counters("fencepost_verify_runs_total", "Verifications that have ended, by outcome: ok, damaged, error.", "outcome")
	for _, outcome := range []string{"ok", "damaged", "error"} {
		v.runs.WithLabelValues(outcome)
	}
	v.bytes = counter("fencepost_verify_read_bytes_total", "Bytes read and checked.")
	v.problems = gauge("fencepost_verify_problems", "Problems of the last complete verification that were not repaired.")
	v.notes = gauge("fencepost_verify_notes", "Notes of the last complete verification.")
	v.took = gauge("fencepost_verify_duration_seconds", "Time of the last complete verification.")
	v.at = gauge("fencepost_verify_ended_timestamp_seconds", "When the last complete verification ended; 0 if none did.")
	return []prometheus.Collector{v.runs, v.bytes, v.problems, v.notes, v.took, v.at}
}

// Verifier returns hooks for a verification that measure and then call next.
func (m *Metrics) Verifier(next verify.Hooks) verify.Hooks {
	h := next
	h.Verified = func(e verify.Verified) {
		m.verify.ended(e.Report, e.Err)
		if next.Verified != nil {
			next.Verified(e)
		}
	}
	return h
}

func (v *verifyMetrics) ended(r *verify.Report, err error) {
	switch {
	case errors.Is(err, context.Canceled): // the program was told to end
		return
	case err != nil:
		v.runs.WithLabelValues("error").Inc()
		return
	case r.OK():
		v.runs.WithLabelValues("ok").Inc()
	default:
		v.runs.WithLabelValues("damaged").Inc()
	}
	problems := r.MoreProblems
	for _, f := range r.Problems {
		if !f.Repaired {
			problems++
		}
	}
	v.bytes.Add(float64(r.Bytes))
	v.problems.Set(float64(problems))
	v.notes.Set(float64(len(r.Notes) + r.MoreNotes))
	v.took.Set(r.Took.Seconds())
	v.at.Set(float64(v.clock.Wall().UnixMilli()) / 1000)
}
