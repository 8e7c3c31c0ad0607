package storetest

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/chase"
)

// try is one writer's part in a race.
type try struct {
	body []byte
	info store.Info
	err  error
	took time.Duration
}

// system is for how long something takes, which decides only how often it is done.
var system = clock.System()

// race lets every client write to key under cond, all at once.
func (s *suite) race(key string, cond store.Condition) []try {
	s.Helper()
	tries := make([]try, len(s.clients))
	start := make(chan struct{})
	ready := make(chan struct{}, len(tries))
	go func() {
		for range tries {
			<-ready
		}
		close(start)
	}()
	s.all(len(tries), func(i int) error {
		t := &tries[i]
		t.body = newBody(200)
		ready <- struct{}{}
		<-start
		begun := system.Now()
		t.info, t.err = s.clients[i].Put(s.Context(), key, t.body, &store.PutOptions{If: cond})
		t.took = system.Now().Sub(begun)
		return nil
	})
	if s.quickest == 0 {
		s.quickest = tries[0].took
	}
	for _, t := range tries {
		s.quickest = min(s.quickest, t.took)
	}
	return tries
}

// judge checks that a race had exactly one winner and that its object is stored. It
// returns the stored object's Info.
func (s *suite) judge(key string, tries []try) store.Info {
	s.Helper()
	winners, winner := 0, -1
	var unsure []int
	for i, t := range tries {
		switch store.OutcomeOf(t.err) {
		case store.Applied:
			winners++
			winner = i
		case store.Refused:
			s.wantError(fmt.Sprintf("loser %d of the race for %s", i, key), t.err, store.ErrPrecondition)
		case store.Unknown:
			unsure = append(unsure, i)
			if !s.opts.UnsureLosers {
				s.Errorf("writer %d of the race for %s: %v, want success or %v", i, key, t.err, store.ErrPrecondition)
			}
		default:
			s.Errorf("writer %d of the race for %s: %v", i, key, t.err)
		}
	}
	if winners > 1 || winners == 0 && len(unsure) == 0 {
		s.Fatalf("the race for %s has %d winners, want exactly 1", key, winners)
	}
	got, info, err := s.read(s.client(winner+1), key, nil)
	if err != nil {
		s.Fatalf("after the race for %s: %v", key, err)
	}
	if winners == 1 {
		if !bytes.Equal(got, tries[winner].body) {
			s.Fatalf("the race for %s: what is stored is not the winner's", key)
		}
		if info.Version != tries[winner].info.Version {
			s.Errorf("the race for %s: the winner was told version %q, stored is %q", key, tries[winner].info.Version, info.Version)
		}
		return info
	}
	for _, i := range unsure {
		if bytes.Equal(got, tries[i].body) {
			return info
		}
	}
	s.Fatalf("the race for %s: what is stored is nobody's who could have won", key)
	return info
}

// chase lets all clients write as fast as they can, if the store answers within microseconds:
// otherwise the writes of a race do not overlap. Begin is called before each part, which ends
// after some thousand steps; it returns the version to begin with.
func (s *suite) chase(what string, begin func() store.Version, write func(st store.Store, n int, v store.Version) (store.Info, error)) {
	s.Helper()
	if s.quickest >= chase.Swift {
		return // its writes overlap by themselves
	}
	const part = 5000
	more := s.until(time.Duration(s.rounds(1000, 250)) * time.Millisecond)
	won, lost := 0, 0
	for more() {
		r := chase.Run(len(s.clients), part, begin(), more, func(i int, at *chase.Step) (store.Info, error) {
			return write(s.clients[i], at.N, at.Version)
		})
		won, lost = won+r.Won, lost+r.Lost
		switch {
		case r.Twice != nil && r.Twice.Version != "":
			s.Fatalf("%d clients chased each other with %s: two of them replaced version %q, the %d. that there was; does the driver check first and write afterwards?", len(s.clients), what, r.Twice.Version, won)
		case r.Twice != nil:
			s.Fatalf("%d clients chased each other with %s: two of them created the same key, the %d. of this check; does the driver check first and write afterwards?", len(s.clients), what, won)
		case s.opts.UnsureLosers && store.OutcomeOf(r.Err) == store.Unknown:
			return // that has been tested above
		case r.Err != nil:
			s.Fatalf("chase with %s: %v", what, r.Err)
		}
	}
	s.Logf("chase with %s: %d succeeded, %d were refused", what, won, lost)
	s.overlap(what, lost)
}

// overlap says so if no two writes have overlapped.
func (s *suite) overlap(what string, refused int) {
	s.Helper()
	if refused == 0 {
		s.Logf("no two %s overlapped, so this race has tested nothing: run the suite again on a machine with two free processors, and GOMAXPROCS of 2 or more", what)
	}
}

// until returns a function that is true for some time.
func (s *suite) until(d time.Duration) func() bool {
	end := system.Now().Add(d)
	return func() bool { return system.Now().Sub(end) < 0 }
}

// createRace: of many clients that create one key at once, one succeeds and the others are
// refused.
func createRace(s *suite) {
	for r := range s.rounds(40, 12) {
		key := fmt.Sprintf("create/%d", r)
		tries := s.race(key, store.IfAbsent())
		info := s.judge(key, tries)
		if r%4 != 0 {
			continue
		}
		// One more create, too late, changes nothing.
		_, err := s.st().Put(s.Context(), key, newBody(10), &store.PutOptions{If: store.IfAbsent()})
		if !s.opts.UnsureLosers || store.OutcomeOf(err) != store.Unknown {
			s.wantError("late create of "+key, err, store.ErrPrecondition)
		}
		if _, again, err := s.read(s.st(), key, nil); err != nil || again.Version != info.Version {
			s.Errorf("after a late create of %s: version %q, %v; want %q", key, again.Version, err, info.Version)
		}
	}
	part := 0
	body := newBody(50)
	s.chase("creates", func() store.Version {
		s.sweep() // the keys of the part before
		part++
		return ""
	}, func(st store.Store, n int, _ store.Version) (store.Info, error) {
		info, err := st.Put(s.Context(), fmt.Sprintf("chase/%d/%d", part, n), body, &store.PutOptions{If: store.IfAbsent()})
		info.Version = "" // the next step is another key
		return info, err
	})
}

// swapRace: of many clients that swap one version at once, one succeeds.
func swapRace(s *suite) {
	current := s.put(s.st(), "swap", newBody(200), store.IfAbsent())
	for range s.rounds(40, 12) {
		next := s.judge("swap", s.race("swap", store.IfMatch(current.Version)))
		if next.Version == current.Version {
			s.Fatalf("after a swap the version is the same, %q", next.Version)
		}
		current = next
	}
	s.chase("swaps", func() store.Version {
		return s.put(s.st(), "swap", newBody(50), store.Condition{}).Version
	}, func(st store.Store, _ int, v store.Version) (store.Info, error) {
		return st.Put(s.Context(), "swap", newBody(50), &store.PutOptions{If: store.IfMatch(v)})
	})
}

// swapChain: a counter that many clients increase by swaps ends at the number of swaps.
func swapChain(s *suite) {
	const workers = 8
	each := s.rounds(25, 8)
	const key = "counter"
	s.put(s.st(), key, counter(0), store.IfAbsent())
	var refused, all atomic.Int64
	more := s.until(time.Second) // until two have overlapped; on most stores they do at once
	s.all(workers, func(i int) error {
		st := s.clients[i]
		for done := 0; done < each || refused.Load() == 0 && more(); {
			body, info, err := s.read(st, key, nil)
			if err != nil {
				return fmt.Errorf("Get(%q) by worker %d: %w", key, i, err)
			}
			n, err := countOf(body)
			if err != nil {
				return err
			}
			next := counter(n + 1)
			_, err = st.Put(s.Context(), key, next, &store.PutOptions{If: store.IfMatch(info.Version)})
			if store.OutcomeOf(err) == store.Unknown && s.opts.UnsureLosers {
				_, err = store.Swap(s.Context(), st, key, next, info.Version, nil)
			}
			switch store.OutcomeOf(err) {
			case store.Applied:
				done++
				all.Add(1)
			case store.Refused:
				refused.Add(1)
			default:
				return fmt.Errorf("swap of %q by worker %d: %w", key, i, err)
			}
		}
		return nil
	})
	body, _, err := s.read(s.st(), key, nil)
	if err != nil {
		s.Fatalf("Get(%q): %v", key, err)
	}
	n, err := countOf(body)
	if err != nil {
		s.Fatalf("%v", err)
	}
	if n != int(all.Load()) {
		s.Errorf("the counter is at %d after %d successful swaps: updates were lost", n, all.Load())
	}
	s.Logf("%d swaps succeeded, %d were refused", all.Load(), refused.Load())
	s.overlap("swaps", int(refused.Load()))
}

const nonce = 16

func counter(n int) []byte { return strconv.AppendInt(newBody(nonce), int64(n), 10) }

func countOf(body []byte) (int, error) {
	if len(body) < nonce {
		return 0, fmt.Errorf("the counter has %d bytes", len(body))
	}
	return strconv.Atoi(string(body[nonce:]))
}
