package promhooks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/ext/rewrite"
)

type rewriteMetrics struct {
	passes                            *prometheus.HistogramVec
	rewrites, replaced, read, written prometheus.Counter
}

func (r *rewriteMetrics) make() []prometheus.Collector {
	r.passes = timesBy("fencepost_rewrite_pass_seconds", "Time of a pass, by outcome: ok, error.", "outcome")
	r.passes.WithLabelValues("ok")
	r.passes.WithLabelValues("error")
	r.rewrites = counter("fencepost_rewrite_rewrites_total", "Rewrites committed.")
	r.replaced = counter("fencepost_rewrite_replaced_files_total", "Files replaced.")
	r.read = counter("fencepost_rewrite_replaced_bytes_total", "Bytes of the files replaced.")
	r.written = counter("fencepost_rewrite_written_bytes_total", "Bytes of the new files.")
	return []prometheus.Collector{r.passes, r.rewrites, r.replaced, r.read, r.written}
}

// Rewriter returns hooks for a rewriter that measure and then call next.
func (m *Metrics) Rewriter(next rewrite.Hooks) rewrite.Hooks {
	r := &m.rewrite
	h := next
	h.Rewritten = func(w rewrite.Rewrite) {
		r.rewrites.Inc()
		r.replaced.Add(float64(len(w.Replaced)))
		for _, f := range w.Replaced {
			r.read.Add(float64(f.Size))
		}
		r.written.Add(float64(w.File.Size))
		if next.Rewritten != nil {
			next.Rewritten(w)
		}
	}
	h.Passed = func(p rewrite.Pass) {
		switch {
		case p.Err == nil:
			r.passes.WithLabelValues("ok").Observe(p.Took.Seconds())
		case !errors.Is(p.Err, context.Canceled): // else the rewriter was told to end
			r.passes.WithLabelValues("error").Observe(p.Took.Seconds())
		}
		if next.Passed != nil {
			next.Passed(p)
		}
	}
	return h
}
