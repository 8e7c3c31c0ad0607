package outside

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Options of a [Hub]. The zero value works.
type Options struct {
	// PerMinute bounds the requests of a hub, for all URLs together; default 12.
	PerMinute int
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Target is a log, group or lock to watch.
type Target struct {
	URL   string
	Store store.Store
}

// Hub watches some logs, groups and locks, once for all that look at them.
type Hub struct {
	budget *Budget
	clock  clock.Clock
	tick   time.Duration
	all    []Target

	mu      sync.Mutex
	states  []State
	changed chan struct{} // closed and replaced at each change
}

// New returns a hub. [Hub.Run] makes it watch.
func New(targets []Target, opts *Options) *Hub {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.PerMinute == 0 {
		o.PerMinute = 12
	}
	o.Clock = clock.Or(o.Clock)
	h := &Hub{budget: NewBudget(o.PerMinute, o.Clock), clock: o.Clock, all: targets, changed: make(chan struct{})}
	// A log takes about 9 requests a minute at this pace, of 12: see followLog.
	h.tick = max(time.Duration(20*12*len(targets))*time.Second/time.Duration(o.PerMinute), 250*time.Millisecond)
	for _, t := range targets {
		h.states = append(h.states, State{URL: t.URL, Now: o.Clock.Wall(), Interval: h.tick.Seconds()})
	}
	return h
}

// States returns what is known now, and a channel that is closed when that changes.
func (h *Hub) States() ([]State, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]State, len(h.states))
	for i, s := range h.states {
		s.Now, s.Requests, s.Silence = h.clock.Wall(), h.budget.Spent(), max(3*h.tick, 2*time.Minute).Seconds()
		if s.Kind == "group" { // with a long validity, only whileGroup asks often
			s.Silence = max(s.Silence, (8*h.tick + time.Minute).Seconds())
		}
		all[i] = s
	}
	return all, h.changed
}

func (h *Hub) update(i int, f func(*State)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.states[i])
	h.tell()
}

func (h *Hub) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Run watches until ctx ends, and returns ctx's cause.
func (h *Hub) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for i, t := range h.all {
		all.Go(func() { h.follow(ctx, i, t) })
	}
	all.Wait()
	return context.Cause(ctx)
}

// follow watches one target, and after an error goes on.
func (h *Hub) follow(ctx context.Context, i int, t Target) {
	st := &frugal{st: t.Store, budget: h.budget, answered: func() { h.answered(i) }, failed: func(err error) {
		h.update(i, func(s *State) {
			if s.Err == "" || s.passing {
				s.Err, s.passing = err.Error(), true
			}
		})
	}}
	for failed := 0; ctx.Err() == nil; {
		kind, log, err := h.kind(ctx, st)
		if err == nil || errors.Is(err, manifest.ErrNotInitialized) {
			h.update(i, func(s *State) { s.become(kind) })
		}
		switch {
		case err != nil:
		case kind == "log":
			h.followLog(ctx, i, st, log)
		case kind == "group":
			var seen bool
			if seen, err = h.followGroup(ctx, i, st); seen {
				failed = 0
			}
		default:
			h.followLock(ctx, i, st)
		}
		if ctx.Err() != nil {
			return
		}
		h.failed(i, err)
		if failed++; err == nil {
			failed = 0
			continue // something else is there: it is looked at now
		}
		_ = clock.Sleep(ctx, h.clock, h.pause(failed))
	}
}

// answered notes that the store has answered.
func (h *Hub) answered(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.states[i]
	if s.Asked = h.clock.Wall(); s.passing {
		s.Err, s.passing = "", false
		h.tell()
	}
}

func (h *Hub) failed(i int, err error) {
	if err != nil {
		h.update(i, func(s *State) { s.Err, s.passing = err.Error(), false })
	}
}

// kind tells whether there is a log, which it opens, or a group, or only a lock. If there is nothing,
// the error is ErrNotInitialized. A log without its format is damaged, and no lock.
func (h *Hub) kind(ctx context.Context, st store.Store) (string, *inspect.Log, error) {
	l, err := inspect.Open(ctx, st, h.settle())
	if err == nil {
		return "log", l, nil
	}
	if !errors.Is(err, manifest.ErrNotInitialized) {
		return "", nil, err
	}
	_, _, gerr := store.Read(ctx, st, group.FormatKey, &store.ReadOptions{Limit: 1 << 20, Settle: h.settle()})
	switch {
	case gerr == nil:
		return "group", nil, nil
	case !errors.Is(gerr, store.ErrNotFound):
		return "", nil, gerr
	}
	if oerr := survey.Orphaned(ctx, st, h.settle()); oerr != nil && !errors.Is(oerr, store.ErrDenied) { // a right to read only the locks suffices
		return "", nil, oerr
	}
	if found, lerr := survey.HasLock(ctx, st, h.settle()); found || lerr != nil {
		return "lock", nil, lerr
	}
	return "", nil, err
}

// settle returns the options of requests: few retries, since the next tick is one. An attempt
// includes the wait for its turn: up to a minute until the budget has room, and then each of the
// other targets may be before it.
func (h *Hub) settle() *store.SettleOptions {
	turns := time.Duration(len(h.all)) * time.Minute / time.Duration(len(h.budget.start))
	return &store.SettleOptions{Reads: 2, Attempt: 90*time.Second + turns, Clock: h.clock}
}
