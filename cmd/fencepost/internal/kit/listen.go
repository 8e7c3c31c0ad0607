package kit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/ext/promhooks/deltahooks"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// Gauges are the metrics of a verb and its address to serve them at. Without --listen they do
// nothing.
type Gauges struct {
	addr   string
	prices pricesValue
	m      *promhooks.Metrics // nil if there is no --listen
	reg    *prometheus.Registry

	mu      sync.Mutex
	leads   bool
	epoch   fence.Epoch
	answer  time.Time // the last request that the store has answered
	failing time.Time // since when no request was answered; zero if the last one was
}

// ListenFlag adds --listen to a verb that runs for long.
func (k *Kit) ListenFlag(c *cobra.Command) { k.MetricsFlag(c, "listen") }

// MetricsFlag is ListenFlag with another name, for a verb that serves something else at --listen.
func (k *Kit) MetricsFlag(c *cobra.Command, name string) {
	g := &k.Gauges
	c.Flags().StringVar(&g.addr, name, "", "address for /metrics, /healthz and /readyz, such as :9464 (default none)")
	c.Flags().Var(&g.prices, "prices", "with --"+name+": dollars for 1,000 requests, as put=0.005,get=0.0004")
	Needs(c, name, "prices")
	c.PreRunE = func(*cobra.Command, []string) error { return g.start(k) }
}

// pricesValue is what the flag --prices is set to.
type pricesValue struct{ *promhooks.Prices }

func (p *pricesValue) String() string { return "" }

func (p *pricesValue) Type() string { return "prices" }

func (p *pricesValue) Set(text string) error {
	all := &promhooks.Prices{}
	known := map[string]*float64{"put": &all.Put, "get": &all.Get, "list": &all.List, "delete": &all.Delete}
	for _, part := range strings.Split(text, ",") {
		op, dollars, _ := strings.Cut(part, "=")
		price := known[op]
		if price == nil {
			return fmt.Errorf("there is no price of %q; write some of put, get, list and delete, as in put=0.005,get=0.0004,list=0.005", op)
		}
		var err error
		if *price, err = strconv.ParseFloat(dollars, 64); err != nil {
			return fmt.Errorf("%q is no number of dollars", dollars)
		}
	}
	p.Prices = all
	return (&promhooks.Options{Prices: all}).Validate()
}

// start serves the metrics until the verb ends.
func (g *Gauges) start(k *Kit) (err error) {
	if g.addr == "" {
		return nil
	}
	g.reg = Registry()
	if g.m, err = promhooks.New(g.reg, &promhooks.Options{Prices: g.prices.Prices}); err != nil {
		return err
	}
	k.stop, err = k.Listen(g.addr, Operations(g.reg, g.ready), func(addr net.Addr) { k.Console.Note("metrics are at http://%v/metrics", addr) })
	return err
}

// Registry returns a registry with the metrics of the process.
func Registry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Operations serves /metrics, /healthz and /readyz. A process that answers is alive: if the
// store is away, a restart would not help.
func Operations(reg prometheus.Gatherer, ready func() (bool, any)) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, says := ready()
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(says)
	})
	return mux
}

const maxScrapes = 20 // at once

// MaxConnections is how many connections there are at once; more wait. Serve has at most 100 streams.
const MaxConnections = 500

// RequestTime bounds how long a client may take to send a request. Without it a client that announces a body and
// never sends it keeps a connection for ever.
const RequestTime = 15 * time.Second

// answerTime bounds how long a client may take to read an answer. A stream of events sets its own bound for each event.
const answerTime = 30 * time.Second

// Listen serves h until stop is called.
func (k *Kit) Listen(addr string, h http.Handler, at func(net.Addr)) (stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, Usage("--listen %s: %v; write an address of this machine, such as :9464 or 127.0.0.1:9464", addr, err)
	}
	at(l.Addr())
	return k.Serve(netutil.LimitListener(l, MaxConnections), h), nil
}

// Serve serves h at l until stop is called.
func (k *Kit) Serve(l net.Listener, h http.Handler) (stop func()) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: RequestTime, WriteTimeout: answerTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			k.Console.Note("no longer serving at %v: %v", l.Addr(), err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		<-done
	}
}

// patience is how long the store may be away until the process is not ready.
const patience = 30 * time.Second

// ready tells whether the store answers. A candidate that waits is ready too.
func (g *Gauges) ready() (bool, any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ok := !g.answer.IsZero() && (g.failing.IsZero() || time.Since(g.failing) < patience)
	return ok, struct {
		Ready  bool        `json:"ready"`
		Leads  bool        `json:"leads"`
		Epoch  fence.Epoch `json:"epoch,omitempty"`
		Answer time.Time   `json:"store_answered,omitzero"`
	}{ok, g.leads, g.epoch, g.answer}
}

// store returns st with its requests measured.
func (g *Gauges) store(st store.Store) store.Store {
	if g.m == nil {
		return st
	}
	return g.m.Store(store.Hooked(st, store.Hooks{Answered: g.answered}, nil))
}

func (g *Gauges) answered(a store.Answer) {
	e := (*store.Error)(nil)
	answered := a.Err == nil || errors.As(a.Err, &e) && e.Kind != nil && !errors.Is(e, store.ErrDenied)
	if !answered && errors.Is(a.Err, context.Canceled) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch now := time.Now(); {
	case answered:
		g.answer, g.failing = now, time.Time{}
	case g.failing.IsZero():
		g.failing = now
	}
}

// measured returns hooks that are measured too, if anything is.
func measured[H any](g *Gauges, next H, measure func(*promhooks.Metrics, H) H) H {
	if g.m == nil {
		return next
	}
	return measure(g.m, next)
}

// before returns a hook that calls first, and then next if there is one.
func before[E any](next, first func(E)) func(E) {
	return func(e E) {
		first(e)
		if next != nil {
			next(e)
		}
	}
}

// Leader returns hooks that are measured too; so do the functions below.
func (g *Gauges) Leader(election string, next leader.Hooks) leader.Hooks {
	if g.m == nil {
		return next
	}
	noted := next
	noted.Elected = before(next.Elected, func(e leader.Election) { g.Note(true, e.Epoch) })
	noted.Ended = before(next.Ended, func(e leader.End) { g.Note(false, e.Epoch) })
	return g.m.Leader(election, noted)
}

// Note records who leads, for /metrics and /healthz.
func (g *Gauges) Note(leads bool, epoch fence.Epoch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leads, g.epoch = leads, epoch
}

// Writer measures a writer.
func (g *Gauges) Writer(next writer.Hooks) writer.Hooks {
	return measured(g, next, (*promhooks.Metrics).Writer)
}

// Compactor measures a compactor.
func (g *Gauges) Compactor(next compactor.Hooks) compactor.Hooks {
	return measured(g, next, (*promhooks.Metrics).Compactor)
}

// Group measures a group.
func (g *Gauges) Group(next group.Hooks) group.Hooks {
	if g.m == nil {
		return next
	}
	noted := next
	noted.Assigned = before(next.Assigned, func(e group.Assigned) { g.Note(e.Owned > 0, 0) })
	noted.Ended = before(next.Ended, func(group.End) { g.Note(false, 0) })
	return g.m.Group(noted)
}

// Publisher measures a publisher.
func (g *Gauges) Publisher(next delta.Hooks) (delta.Hooks, error) {
	if g.m == nil {
		return next, nil
	}
	m, err := deltahooks.New(g.reg, nil)
	if err != nil {
		return next, err
	}
	return m.Publisher(next), nil
}

// Compactors are the hooks of the compactors of many logs. What they count adds up, but each log has
// a floor of its own, so there is no floor.
func (g *Gauges) Compactors() compactor.Hooks {
	h := g.Compactor(compactor.Hooks{})
	if passed := h.Passed; passed != nil {
		h.Passed = func(p compactor.Pass) {
			p.Report.Floor = fence.Position{}
			passed(p)
		}
	}
	return h
}

// Verify measures a check.
func (g *Gauges) Verify(next verify.Hooks) verify.Hooks {
	return measured(g, next, (*promhooks.Metrics).Verifier)
}

func (g *Gauges) reader(next reader.Hooks) reader.Hooks {
	return measured(g, next, (*promhooks.Metrics).Reader)
}
