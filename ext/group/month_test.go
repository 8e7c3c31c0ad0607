package group_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
)

const month = 30 * 24 * time.Hour

// A worker is frozen for a month while a write of it is in flight. Others take its partitions, the group goes
// through hundreds of assignments, everything that the worker knows is pruned, N is raised, and all other
// workers are replaced. Then it wakes, and its writes land.
func TestAwayForAMonth(t *testing.T) {
	const (
		beat, assignment = "group/member/", "group/assign/"
		joins            = 3 // the worker with this number joins when the others share everything
	)
	landings := []fixture.Landing{fixture.Answered, fixture.Applied, fixture.Late}
	tried := test.Square(8, len(landings), 2)
	for i, s := range []struct {
		name string
		who  int      // the number of the worker
		at   string   // what it writes when it is frozen
		also []string // what else is in flight
		// act lets the worker write.
		act func(w *world, all []*worker)
		// never: no later session is possible.
		never bool
		// given: it waits until it may start.
		given bool
	}{
		{name: "an owner, at a heartbeat", who: 2, at: beat},
		{name: "the organiser, at an assignment", who: 0, at: beat, also: []string{assignment}, act: func(w *world, _ []*worker) { w.raise(9) }},
		{name: "the organiser, at the hint", who: 0, at: "group/head.json", act: func(_ *world, all []*worker) { all[1].cancel(errStop) }},
		{name: "an owner, at an acknowledgement", who: 2, at: "group/ack/", act: func(w *world, _ []*worker) { time.AfterFunc(time.Minute, w.worker("more").stop) }},
		{name: "one that joins, at its object", who: joins, at: beat},
		{name: "one that joins, at its call", who: joins, at: "group/call/"},
		{name: "one that joins, when it is about to start", who: joins, at: "group/ready/", given: true},
		{name: "one that raises N", who: joins, at: "group/group.json", never: true},
	} {
		for j, landing := range landings {
			for k, how := range []string{"process", "machine"} {
				if !tried(i, j, k) {
					continue
				}
				stops := how == "machine"
				t.Run(fmt.Sprintf("%s/%s/%s", s.name, landing, how), func(t *testing.T) {
					inWorld(t, 6, func(w *world) {
						b := &beliefs{T: t}
						a := &absentee{w: w, given: s.given}
						a.Client, a.Stops, a.Landing, a.At, a.Also = fmt.Sprint("w", s.who), stops, landing, s.at, s.also
						start := func(i int) *worker {
							return w.worker(fmt.Sprint("w", i), b.watch, func(x *worker) {
								if i != s.who {
									return
								}
								a.x, a.Store, x.opts.Clock = x, x.st, &a.Clock
								if s.never {
									x.opts.Partitions = 8
								}
							})
						}
						var all []*worker
						for i := range joins {
							all = append(all, start(i))
							w.whole(time.Minute, all...)
						}
						time.Sleep(time.Minute)
						w.faulty.SetHook(a.Hook())
						if s.who == joins {
							start(joins)
						}
						if s.act != nil {
							s.act(w, all)
						}
						a.leaves()
						others := slices.DeleteFunc(all, func(x *worker) bool { return x == a.x })
						guests := 12 // each makes two assignments
						if s.also != nil {
							guests = test.Of(guests, 100)
						}
						w.aMonth(b, guests, others)
						e, f := w.worker("e", b.watch), w.worker("f", b.watch)
						w.whole(time.Minute, e, f)

						before := w.objects(assignment)
						session := a.x.session()
						a.Return(w)
						for key, version := range w.objects(assignment) {
							if old, ok := before[key]; ok && old != version {
								t.Errorf("it has changed %s", key)
							}
						}
						b.once(a, session)
						if !s.never {
							w.whole(time.Minute, a.x, e, f)
						} else {
							w.whole(time.Minute, e, f)
						}
						a.ended(session, s.never)
						// What has landed is found and deleted.
						time.Sleep(15 * time.Minute)
						if n := len(w.objects(assignment)); n != 1 {
							t.Errorf("%d assignments are left", n)
						}
						a.x.stop()
						w.end(e, f)
					})
				})
			}
		}
	}
}

// absentee is a worker that is frozen in the middle of writes.
type absentee struct {
	fixture.Absentee
	w     *world
	x     *worker
	given bool // it may own partitions by then
}

// leaves waits until it is frozen.
func (a *absentee) leaves() {
	w := a.w
	w.Helper()
	a.Await(w)
	if !a.Stops {
		return
	}
	// What it believes from now on is no promise.
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.owns, func(_ int, o *ownership) bool { return o.who == a.x.name })
	if a.given {
		a.x.stale = a.x.session()
	}
}

// ended fails the test unless the session has ended and said why.
func (a *absentee) ended(session string, never bool) {
	w := a.w
	w.Helper()
	a.x.mu.Lock()
	defer a.x.mu.Unlock()
	want := []error{}
	switch {
	case never:
		want = a.x.errs
		if len(want) == 0 || !errors.Is(want[0], group.ErrOptions) || !strings.Contains(want[0].Error(), "Partitions is 8, but the group has 10") {
			w.Errorf("it ended with %v", want)
		}
	case a.Stops && (session != "" || strings.HasPrefix(a.At, "group/member/") && a.Landing == fixture.Applied):
		want = []error{group.ErrDeposed}
	case session != "":
		want = []error{group.ErrExpired}
	}
	for i, err := range a.x.errs {
		if i >= len(want) || !errors.Is(err, want[i]) {
			w.Errorf("it ended with %v, want %v", a.x.errs, want)
		}
	}
	if !never && a.x.g.Member() == session {
		w.Error("its session goes on")
	}
}

// aMonth lets a month pass, at whose end nobody is there.
func (w *world) aMonth(b *beliefs, guests int, others []*worker) {
	w.Helper()
	start := time.Now()
	for i := range guests {
		if i == guests/2 {
			w.raise(10)
		}
		x := w.worker(fmt.Sprint("guest", i), b.watch)
		time.Sleep(20 * time.Second)
		x.stop()
		time.Sleep(10 * time.Second)
	}
	if s := slices.Sorted(maps.Keys(w.objects("group/assign/"))); len(s) > 12 || s[0] < fmt.Sprintf("group/assign/%020d", guests*3/2) {
		w.Errorf("assignments are not pruned: %v", s)
	}
	for _, x := range others {
		x.stop()
	}
	time.Sleep(month - time.Since(start))
}

// raise adds partitions.
func (w *world) raise(n int) {
	if err := group.Create(w.Context(), w.mem, &group.Options{Partitions: n, Clock: clock.Go()}); err != nil {
		w.Fatal(err)
	}
	w.partitions = n
}

// objects are the versions of what is in the store.
func (w *world) objects(prefix string) map[string]store.Version {
	w.Helper()
	all := map[string]store.Version{}
	for info, err := range store.ListAll(w.Context(), w.mem, prefix, nil, &store.SettleOptions{Clock: clock.Go()}) {
		if err != nil {
			w.Fatal(err)
		}
		all[info.Key] = info.Version
	}
	return all
}

// beliefs are what workers believe that they own.
type beliefs struct {
	*testing.T
	mu  sync.Mutex
	all []belief
}

type belief struct {
	x       *worker
	session string
	p       *group.Partition
}

// watch notes what a worker owns.
func (b *beliefs) watch(x *worker) {
	work := x.work
	x.work = func(ctx context.Context, p *group.Partition) error {
		x.mu.Lock()
		me := belief{x, x.g.Member(), p}
		x.mu.Unlock()
		b.mu.Lock()
		b.all = append(b.all, me)
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.all = slices.DeleteFunc(b.all, func(o belief) bool { return o == me })
		}()
		return work(ctx, p)
	}
}

// once watches for two minutes that nobody believes to own what somebody else does. What a session believes whose
// clock has stopped is no promise, but it must end soon, and own nothing more.
func (b *beliefs) once(a *absentee, session string) {
	b.Helper()
	for start := time.Now(); time.Since(start) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
		owners := map[int]string{}
		b.mu.Lock()
		for _, o := range b.all {
			n := o.p.Number()
			switch {
			case o.p.Remaining() == 0:
			case a.Stops && o.session == session:
				if time.Since(start) > validity {
					b.Errorf("session %s goes on", session)
				}
			case owners[n] != "":
				b.Errorf("%s and %s own partition %d", owners[n], o.x.name, n)
			default:
				owners[n] = o.x.name
			}
		}
		b.mu.Unlock()
		if b.Failed() {
			return
		}
	}
}

// The times of day of the workers and of the store jump by a month, forward and backward. Nothing moves, and no
// session ends. When a worker crashes, its partitions move as always.
func TestTimesOfDayJump(t *testing.T) {
	inWorld(t, 12, func(w *world) {
		b := &beliefs{T: t}
		clocks := []*fixture.Freezable{w.clock}
		var all []*worker
		for i := range 3 {
			c := &fixture.Freezable{}
			clocks = append(clocks, c)
			all = append(all, w.worker(fmt.Sprint("w", i), b.watch, func(x *worker) { x.opts.Clock = c }))
		}
		w.whole(time.Minute, all...)
		time.Sleep(time.Minute)
		newest := func() string { return slices.Max(slices.Collect(maps.Keys(w.objects("group/assign/")))) }
		opens, before := w.opens, newest()
		for i := range 24 {
			clocks[i%4].SetDay([]time.Duration{month, -month, 0}[i/4%3])
			time.Sleep(20 * time.Second)
		}
		for i, c := range clocks {
			c.SetDay(month * time.Duration(i*i-4))
		}
		b.once(&absentee{}, "")
		if after := newest(); w.opens != opens || after != before {
			t.Errorf("%d partitions were opened; the newest assignment was %s, and is %s", w.opens-opens, before, after)
		}
		w.end(all[1:]...)
		for _, x := range all[1:] {
			if len(x.errs) != 1 || x.errs[0] != nil {
				t.Errorf("%s ended with %v", x.name, x.errs)
			}
		}
		x := w.worker("late", b.watch)
		w.whole(time.Minute, all[0], x)
		all[0].crash()
		w.whole(2*validity, x)
		w.end(x)
	})
}
