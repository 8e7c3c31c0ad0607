package promhooks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/writer"
)

type writerMetrics struct {
	appends, requests       prometheus.Histogram
	records, bytes, payload prometheus.Counter
	offset                  prometheus.Gauge
	opens, checkpoints      *prometheus.HistogramVec
	read                    prometheus.Counter
	ends                    *prometheus.CounterVec
}

func (w *writerMetrics) make() []prometheus.Collector {
	w.appends = times("fencepost_writer_commit_seconds", "Time from sending a log object to its acknowledgement.")
	w.requests = times("fencepost_writer_request_seconds", "Time from sending a log object to the answer of its own request.")
	w.records = counter("fencepost_writer_records_total", "Records acknowledged.")
	w.bytes = counter("fencepost_writer_stored_bytes_total", "Bytes of acknowledged objects, as they are stored.")
	w.payload = counter("fencepost_writer_payload_bytes_total", "Bytes of acknowledged objects before compression.")
	w.offset = gauge("fencepost_writer_offset", "Offset of the next record to be acknowledged.")
	w.opens = timesBy("fencepost_writer_open_seconds", "Time of an opening, by outcome: ok, fenced, error.", "outcome")
	w.read = counter("fencepost_writer_open_objects_total", "Log objects that openings have read.")
	w.checkpoints = timesBy("fencepost_writer_checkpoint_seconds", "Time to publish a checkpoint, by outcome: ok, fenced, stopped, error.", "outcome")
	for _, outcome := range []string{"ok", "fenced", "error"} {
		w.opens.WithLabelValues(outcome)
		w.checkpoints.WithLabelValues(outcome)
	}
	w.checkpoints.WithLabelValues("stopped")
	w.ends = counters("fencepost_writer_ends_total", "Writers that have ended, by outcome: closed, fenced, error.", "outcome")
	for _, outcome := range []string{"closed", "fenced", "error"} {
		w.ends.WithLabelValues(outcome)
	}
	return []prometheus.Collector{w.appends, w.requests, w.records, w.bytes, w.payload, w.offset, w.opens, w.read, w.checkpoints, w.ends}
}

// Writer returns hooks for a writer that measure and then call next.
func (m *Metrics) Writer(next writer.Hooks) writer.Hooks {
	w := &m.writer
	h := next
	h.Acknowledged = func(a writer.Acknowledgement) {
		w.appends.Observe(a.Took.Seconds())
		w.requests.Observe(a.Answered.Seconds())
		w.records.Add(float64(a.Records))
		w.bytes.Add(float64(a.Bytes))
		w.payload.Add(float64(a.Payload))
		w.offset.Set(float64(a.First) + float64(a.Records))
		if next.Acknowledged != nil {
			next.Acknowledged(a)
		}
	}
	h.Opened = func(o writer.Opening) {
		w.opens.WithLabelValues(published(o.Err)).Observe(o.Took.Seconds())
		w.read.Add(float64(o.Read.Objects))
		if o.Err == nil {
			w.offset.Set(float64(o.Offset))
		}
		if next.Opened != nil {
			next.Opened(o)
		}
	}
	h.Checkpoint = func(c writer.Checkpoint) {
		outcome := published(c.Err)
		if errors.Is(c.Err, context.Canceled) || errors.Is(c.Err, writer.ErrClosed) {
			outcome = "stopped"
		}
		w.checkpoints.WithLabelValues(outcome).Observe(c.Took.Seconds())
		if next.Checkpoint != nil {
			next.Checkpoint(c)
		}
	}
	h.Ended = func(e writer.Ending) {
		outcome := published(e.Err)
		if errors.Is(e.Err, writer.ErrClosed) { // also if another role's ErrFenced is its cause
			outcome = "closed"
		}
		w.ends.WithLabelValues(outcome).Inc()
		if next.Ended != nil {
			next.Ended(e)
		}
	}
	return h
}

func published(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, writer.ErrFenced):
		return "fenced"
	}
	return "error"
}
