package faultstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencepost/fencepost/clock"
)

// parked is a late request.
type parked struct {
	n      int // the order in which they were sent
	op     Op
	late   Late
	copies int // how many are still to land
	again  func(context.Context) error

	afterN int           // lands when that many requests have been made; 0 means never by count
	at     clock.Instant // lands then, if timed
	timed  bool
}

func (p *parked) arm(n int, now clock.Instant) {
	if p.late.Ops > 0 {
		p.afterN = n + p.late.Ops
	}
	if p.late.After > 0 {
		p.at, p.timed = now.Add(p.late.After), true
	}
}

func (p *parked) due(n int, now clock.Instant) bool {
	return p.afterN > 0 && n >= p.afterN || p.timed && now >= p.at
}

func (s *Store) park(r *request) {
	now := s.opts.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parks++
	p := &parked{n: s.parks, op: r.op, late: *r.fault.Late, copies: max(r.fault.Late.Copies, 1), again: r.again}
	p.arm(s.n, now)
	s.late = append(s.late, p)
}

// Land applies the late requests that are due, and returns how many there were. Every
// request does so before it is itself applied.
func (sh *shared) Land(ctx context.Context) int {
	now := sh.opts.Clock.Now()
	return sh.land(ctx, func(p *parked) bool { return p.due(sh.n, now) }, 1)
}

// Release applies late requests, due or not, with all their copies, in the order of
// sending. It returns how many landed. A nil which selects all.
func (sh *shared) Release(ctx context.Context, which func(Op) bool) int {
	return sh.land(ctx, func(p *parked) bool { return which == nil || which(p.op) }, -1)
}

// land removes the chosen requests from the list under the lock, and applies them without
// the lock, so that each copy lands once. It takes at most so many copies of each; a
// negative number means all.
func (sh *shared) land(ctx context.Context, chosen func(*parked) bool, copies int) int {
	now := sh.opts.Clock.Now()
	var landing []*parked
	sh.mu.Lock()
	sh.late = slices.DeleteFunc(sh.late, func(p *parked) bool {
		if !chosen(p) {
			return false
		}
		times := p.copies
		if copies >= 0 {
			times = min(times, copies)
		}
		for range times {
			landing = append(landing, p)
		}
		p.copies -= times
		p.arm(sh.n, now)
		return p.copies == 0
	})
	sh.mu.Unlock()
	slices.SortStableFunc(landing, func(a, b *parked) int { return cmp.Compare(a.n, b.n) })
	for _, p := range landing {
		// The sender's context may have ended long ago.
		err := p.again(context.WithoutCancel(ctx))
		sh.mu.Lock()
		sh.log.add(Entry{Op: p.op, Landed: true, Done: true, Err: err})
		sh.mu.Unlock()
	}
	return len(landing)
}
