package storetest

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/fencepost/fencepost/store"
)

// try is one writer's part in a race.
type try struct {
	body []byte
	info store.Info
	err  error
}

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
		t.info, t.err = s.clients[i].Put(s.Context(), key, t.body, &store.PutOptions{If: cond})
		return nil
	})
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
}

// swapChain: a counter that many clients increase by swaps ends at the number of swaps.
func swapChain(s *suite) {
	const workers = 8
	each := s.rounds(25, 8)
	const key = "counter"
	s.put(s.st(), key, counter(0), store.IfAbsent())
	var refused atomic.Int64
	s.all(workers, func(i int) error {
		st := s.clients[i]
		for done := 0; done < each; {
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
	if n != workers*each {
		s.Errorf("the counter is at %d after %d successful swaps: updates were lost", n, workers*each)
	}
	s.Logf("%d swaps succeeded, %d were refused", workers*each, refused.Load())
}

const nonce = 16

func counter(n int) []byte { return strconv.AppendInt(newBody(nonce), int64(n), 10) }

func countOf(body []byte) (int, error) {
	if len(body) < nonce {
		return 0, fmt.Errorf("the counter has %d bytes", len(body))
	}
	return strconv.Atoi(string(body[nonce:]))
}
