package promhooks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/compactor"
)

type compactorMetrics struct {
	passes                  *prometheus.HistogramVec
	folds                   prometheus.Histogram
	objects, records, bytes prometheus.Counter
	merged                  prometheus.Counter
	pruned                  *prometheus.CounterVec
	floor                   prometheus.Gauge
}

func (c *compactorMetrics) make() []prometheus.Collector {
	c.passes = timesBy("fencepost_compactor_pass_seconds", "Time of a pass, by outcome: ok, error.", "outcome")
	c.passes.WithLabelValues("ok")
	c.passes.WithLabelValues("error")
	c.folds = times("fencepost_compactor_fold_seconds", "Time of a fold, until it is published.")
	c.objects = counter("fencepost_compactor_folded_objects_total", "Log objects folded.")
	c.records = counter("fencepost_compactor_folded_records_total", "Records folded.")
	c.bytes = counter("fencepost_compactor_folded_bytes_total", "Bytes of the log objects folded.")
	c.merged = counter("fencepost_compactor_merged_segments_total", "Segments merged into others.")
	c.pruned = counters("fencepost_compactor_pruned_objects_total", "Objects deleted, by kind.", "kind")
	c.floor = gauge("fencepost_compactor_floor_offset", "Number of records before the floor, which are folded.")
	return []prometheus.Collector{c.passes, c.folds, c.objects, c.records, c.bytes, c.merged, c.pruned, c.floor}
}

// Compactor returns hooks for a compactor that measure and then call next. Its election is
// measured by [Metrics.Leader], in compactor.Options.Leader.
func (m *Metrics) Compactor(next compactor.Hooks) compactor.Hooks {
	c := &m.compactor
	h := next
	h.Folded = func(f compactor.Fold) {
		c.folds.Observe(f.Took.Seconds())
		c.objects.Add(float64(f.Objects))
		c.records.Add(float64(f.Records))
		c.bytes.Add(float64(f.Bytes))
		if next.Folded != nil {
			next.Folded(f)
		}
	}
	h.Passed = func(p compactor.Pass) {
		switch {
		case p.Err == nil:
			c.passes.WithLabelValues("ok").Observe(p.Took.Seconds())
		case !errors.Is(p.Err, context.Canceled): // else the compactor was told to end, or its term is over
			c.passes.WithLabelValues("error").Observe(p.Took.Seconds())
		}
		c.merged.Add(float64(p.Report.Merged))
		for kind, n := range p.Report.Pruned {
			c.pruned.WithLabelValues(kind).Add(float64(n))
		}
		if p.Report.Floor.Seq > 0 {
			c.floor.Set(float64(p.Report.FloorOffset))
		}
		if next.Passed != nil {
			next.Passed(p)
		}
	}
	return h
}
