package promhooks

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost/clock"
)

// ErrOptions: options that cannot work. The error names all that is wrong.
var ErrOptions = errors.New("promhooks: invalid options")

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Prices of requests, for fencepost_store_dollars_total. Nil: there is no such metric.
	Prices *Prices
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Prices of a store, in dollars for 1,000 requests.
type Prices struct {
	// Put is the price of a PUT, and of each part of an upload. List is that of a page of
	// 1,000 keys.
	Put, Get, List, Delete float64
}

// Validate returns an error that joins all faults of o; each is [ErrOptions]. [New] calls it.
func (o *Options) Validate() error {
	if o == nil || o.Prices == nil {
		return nil
	}
	var bad []error
	for name, price := range map[string]float64{"Put": o.Prices.Put, "Get": o.Prices.Get, "List": o.Prices.List, "Delete": o.Prices.Delete} {
		if price < 0 || math.IsNaN(price) || math.IsInf(price, 0) {
			bad = append(bad, fmt.Errorf("%w: Prices.%s is %v; it must be dollars for 1,000 requests, from 0 on", ErrOptions, name, price))
		}
	}
	return errors.Join(bad...)
}

// Metrics measure the parts of one log, or of one group. It is safe for concurrent use.
type Metrics struct {
	reg    prometheus.Registerer
	clock  clock.Clock
	prices *Prices

	leader    leaderMetrics
	writer    writerMetrics
	reader    readerMetrics
	compactor compactorMetrics
	group     groupMetrics
	store     storeMetrics
	rewrite   rewriteMetrics
	verify    verifyMetrics
}

// New makes the metrics and registers them. The error is [ErrOptions], or reg's if a metric is
// registered already: for another log give it a label, see the package's comment.
func New(reg prometheus.Registerer, opts *Options) (*Metrics, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if reg == nil {
		return nil, fmt.Errorf("%w: the Registerer is nil: pass prometheus.DefaultRegisterer, or a registry of your own", ErrOptions)
	}
	o := *cmp.Or(opts, &Options{})
	m := &Metrics{reg: reg, clock: clock.Or(o.Clock), prices: o.Prices}
	var all []prometheus.Collector
	for _, part := range [][]prometheus.Collector{
		m.leader.make(m.clock), m.writer.make(), m.reader.make(m.clock), m.compactor.make(), m.group.make(m.clock), m.store.make(m.prices),
		m.rewrite.make(), m.verify.make(m.clock),
	} {
		all = append(all, part...)
	}
	for i, c := range all {
		if err := reg.Register(c); err != nil {
			for _, done := range all[:i] {
				reg.Unregister(done)
			}
			return nil, fmt.Errorf("promhooks: registering the metrics; another log needs a label of its own, by prometheus.WrapRegistererWith: %w", err)
		}
	}
	return m, nil
}

// seconds are the bounds of all histograms of times: from 1 ms, on a disk, to 1 min.
func seconds() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func times(name, help string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds()})
}

func timesBy(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds()}, labels)
}
