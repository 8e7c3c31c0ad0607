package promhooks

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/store"
)

type storeMetrics struct {
	seconds        *prometheus.HistogramVec
	sent, received *prometheus.CounterVec
	dollars        *prometheus.CounterVec
}

func (s *storeMetrics) make(prices *Prices) []prometheus.Collector {
	s.seconds = timesBy("fencepost_store_request_seconds",
		"Time of a request to the store, by op and outcome: ok, not_found, not_modified, refused, denied, unknown, error, canceled.", "op", "outcome")
	s.sent = counters("fencepost_store_sent_bytes_total", "Bytes of bodies sent, by op.", "op")
	s.received = counters("fencepost_store_received_bytes_total", "Bytes of bodies received, by op.", "op")
	all := []prometheus.Collector{s.seconds, s.sent, s.received}
	if prices != nil {
		s.dollars = counters("fencepost_store_dollars_total", "Price of the requests, by op; without storage and traffic.", "op")
		all = append(all, s.dollars)
	}
	return all
}

// Store returns st with its requests measured. Retries and hedges are requests of their own.
func (m *Metrics) Store(st store.Store) store.Store {
	s := &m.store
	return store.Hooked(st, store.Hooks{Answered: func(a store.Answer) {
		s.seconds.WithLabelValues(a.Op, outcome(a)).Observe(a.Took.Seconds())
		if a.Sent > 0 {
			s.sent.WithLabelValues(a.Op).Add(float64(a.Sent))
		}
		if a.Received > 0 {
			s.received.WithLabelValues(a.Op).Add(float64(a.Received))
		}
		if s.dollars != nil {
			s.dollars.WithLabelValues(a.Op).Add(m.prices.of(a))
		}
	}}, m.clock)
}

// outcome of a request. A write without an answer is unknown, a read an error. A request that the
// caller has given up is neither: of a hedged write the slower copy is canceled, which is no fault
// of the store.
func outcome(a store.Answer) string {
	err := a.Err
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, store.ErrNotFound):
		return "not_found"
	case errors.Is(err, store.ErrNotModified):
		return "not_modified"
	case errors.Is(err, store.ErrPrecondition):
		return "refused"
	case errors.Is(err, store.ErrDenied):
		return "denied"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case (a.Op == "put" || a.Op == "upload") && store.OutcomeOf(err) == store.Unknown:
		return "unknown"
	}
	return "error"
}

const (
	partBytes = 8 << 20 // of an upload on S3
	pageKeys  = 1000    // of a listing
)

// of returns the price of a request in dollars.
func (p *Prices) of(a store.Answer) float64 {
	price := 0.0
	switch a.Op {
	case "put":
		price = p.Put
	case "upload":
		price = p.Put
		if parts := (a.Sent + partBytes - 1) / partBytes; parts > 1 {
			price *= float64(parts + 2) // the beginning and the completion
		}
	case "get", "expiries":
		price = p.Get
	case "list":
		price = p.List * float64(max(1, (a.Objects+pageKeys-1)/pageKeys))
	case "delete":
		price = p.Delete * float64(max(1, (a.Objects+pageKeys-1)/pageKeys))
	case "abort":
		price = p.List + p.Delete*float64(a.Objects)
	}
	return price / 1000
}
