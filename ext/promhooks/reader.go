package promhooks

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/reader"
)

type readerMetrics struct {
	records, bytes prometheus.Counter
	offset         prometheus.Gauge
	lag            prometheus.GaugeFunc

	clock clock.Clock
	mu    sync.Mutex
	known bool          // there is a reader
	at    clock.Instant // the reader has all that was written before it, or has read nothing and was made then
}

func (r *readerMetrics) make(c clock.Clock) []prometheus.Collector {
	r.clock = c
	r.records = counter("fencepost_reader_records_total", "Records delivered.")
	r.bytes = counter("fencepost_reader_bytes_total", "Bytes of the records delivered.")
	r.offset = gauge("fencepost_reader_offset", "Offset of the next record to be delivered.")
	r.lag = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fencepost_reader_lag_seconds",
		Help: "Near 0 at the tail, otherwise the age of the last record delivered. Before the first record: since the start.",
	}, r.behind)
	return []prometheus.Collector{r.records, r.bytes, r.offset, r.lag}
}

func (r *readerMetrics) behind() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		return 0
	}
	return max(r.clock.Now().Sub(r.at), 0).Seconds()
}

// begin lets the lag grow, if nothing was read yet.
func (r *readerMetrics) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.known {
		r.known, r.at = true, r.clock.Now()
	}
}

// complete notes that the reader has all that was written up to so long ago.
func (r *readerMetrics) complete(ago time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.at = true, r.clock.Now().Add(-max(ago, 0))
}

// Reader returns hooks for a reader that measure and then call next. It is for one loop that
// follows the log, such as that of reader.Tail: the lag is that of the last loop. It grows from this
// call on until something was read, so a reader that never can read lags too.
func (m *Metrics) Reader(next reader.Hooks) reader.Hooks {
	r := &m.reader
	r.begin()
	h := next
	h.Delivered = func(d reader.Delivery) {
		r.records.Add(float64(d.Records))
		r.bytes.Add(float64(d.Bytes))
		r.offset.Set(float64(d.Next))
		r.complete(r.clock.Wall().Sub(d.Time))
		if next.Delivered != nil {
			next.Delivered(d)
		}
	}
	h.Tail = func(t reader.Tail) {
		r.offset.Set(float64(t.Offset))
		r.complete(0)
		if next.Tail != nil {
			next.Tail(t)
		}
	}
	return h
}
