package promhooks

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/rewrite"
)

type rewriteMetrics struct {
	rewrites, replaced, read, written prometheus.Counter
}

func (r *rewriteMetrics) make() []prometheus.Collector {
	r.rewrites = counter("fencepost_rewrite_rewrites_total", "Rewrites of files of the table that were committed.")
	r.replaced = counter("fencepost_rewrite_replaced_files_total", "Files of the table that rewrites have replaced.")
	r.read = counter("fencepost_rewrite_replaced_bytes_total", "Bytes of the files that rewrites have replaced.")
	r.written = counter("fencepost_rewrite_written_bytes_total", "Bytes of the files that rewrites have made.")
	return []prometheus.Collector{r.rewrites, r.replaced, r.read, r.written}
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
	return h
}
