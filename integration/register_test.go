//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
)

// watched is what the owners of one register have done and seen.
type watched struct {
	t     *testing.T
	token atomic.Uint64 // the newest that was given out

	mu     sync.Mutex
	newest mark                      // the greatest that was acknowledged
	states map[uint64]register.State // by Writes
	acked  int
	opened int
}

// mark is a value: the epoch that has set it, and its number in that epoch. So values have
// an order.
type mark struct {
	epoch fence.Epoch
	n     int
}

func (v mark) before(o mark) bool { return v.epoch < o.epoch || v.epoch == o.epoch && v.n < o.n }

func parse(b []byte) (v mark) {
	_, _ = fmt.Sscanf(string(b), "%d/%d", &v.epoch, &v.n) // zero if there is none yet
	return v
}

func (w *watched) now() mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// read reads the register. What it holds must not be before what was acknowledged before the
// read, and no two writes may have the same number: then two were accepted on top of one.
func (w *watched) read(st store.Store) (register.State, error) {
	acked := w.now()
	s, err := register.Read(context.WithoutCancel(w.t.Context()), st, "latest.json", nil)
	if err != nil {
		return s, err
	}
	if got := parse(s.Value); got.before(acked) {
		w.t.Errorf("%+v was acknowledged, and then %+v was read", acked, got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.states[s.Writes]; ok && (before.Epoch != s.Epoch || string(before.Value) != string(s.Value)) {
		w.t.Errorf("two writes have one number: %+v and %+v", before, s)
	}
	w.states[s.Writes] = s
	return s, nil
}

// own takes new tokens, opens the register, and sets values until a later owner fences it. Some
// of its requests are given up early, so that they arrive late or not at all.
func (w *watched) own(st store.Store, seed uint64, until uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	for w.t.Context().Err() == nil {
		time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond)))) // so that others set values meanwhile
		token := w.token.Add(1)
		if token > until {
			return
		}
		acked := w.now()
		r, err := register.Open(w.t.Context(), st, "latest.json", fence.NewToken(fence.Epoch(token)), nil)
		if err == nil {
			if got := parse(r.Value()); got.before(acked) {
				w.t.Errorf("%+v was acknowledged, and then epoch %d found %+v", acked, token, got)
			}
			w.mu.Lock()
			w.opened++
			w.mu.Unlock()
			err = w.set(r, st, rng)
		}
		if err != nil && !errors.Is(err, fence.ErrFenced) {
			w.t.Errorf("epoch %d: %v", token, err)
			return
		}
	}
}

// set sets up to ten values. It returns the error that ended it.
func (w *watched) set(r *register.Register, st store.Store, rng *rand.Rand) error {
	for n := range 10 {
		v := mark{r.Epoch(), n}
		ctx, cancel := w.t.Context(), context.CancelFunc(func() {})
		if rng.IntN(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(5*time.Millisecond))))
		}
		err := r.Set(ctx, fmt.Appendf(nil, "%d/%d", v.epoch, v.n))
		cancel()
		switch {
		case errors.Is(err, store.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
			continue // it may be there, or come later; the next one wins
		case err != nil:
			return err
		}
		w.mu.Lock()
		w.acked++
		if w.newest.before(v) {
			w.newest = v
		}
		w.mu.Unlock()
		s, err := w.read(st)
		if err != nil {
			return err
		}
		if got := parse(s.Value); s.Epoch == v.epoch && got != v {
			w.t.Errorf("epoch %d has set %+v, still owns the register, and reads %+v", v.epoch, v, got)
		}
	}
	return nil
}

// Eight owners with rising tokens take one register from each other, on a real server. No value of
// an earlier epoch comes after one of a later epoch, and a value that was acknowledged is read
// until a later one.
func TestRegisterOnRealServers(t *testing.T) {
	onEach(t, servers.Conforming, func(t *testing.T, s *servers.Server) {
		w := &watched{t: t, states: map[uint64]register.State{}}
		const tokens = 200
		over := make(chan struct{})
		var owners, readers sync.WaitGroup
		for seed := range uint64(8) {
			st := open(t, s.URL("register")) // connections of its own
			owners.Go(func() { w.own(st, seed, tokens) })
		}
		for range 2 {
			st := open(t, s.URL("register"))
			readers.Go(func() { w.watch(st, over) })
		}
		owners.Wait()
		close(over)
		readers.Wait()
		last, err := w.read(open(t, s.URL("register")))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d of %d tokens owned the register; %d values were acknowledged; %d of %d writes were seen", w.opened, tokens, w.acked, len(w.states), last.Writes)
		if w.opened < tokens/10 || w.acked == 0 {
			t.Error("that is no race")
		}
	})
}

// watch reads the register until it is over. Neither epoch nor writes nor values go back.
func (w *watched) watch(st store.Store, over <-chan struct{}) {
	var last register.State
	for {
		select {
		case <-over:
			return
		default:
		}
		s, err := w.read(st)
		switch {
		case errors.Is(err, store.ErrNotFound) && last.Writes == 0: // nobody has opened it yet
			continue
		case err != nil:
			w.t.Error(err)
			return
		case s.Epoch < last.Epoch, s.Writes < last.Writes, parse(s.Value).before(parse(last.Value)):
			w.t.Errorf("%+v was read, and then %+v", last, s)
		}
		last = s
	}
}
