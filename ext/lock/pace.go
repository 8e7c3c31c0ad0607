package lock

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
)

// pace decides when to read a name again, and who takes it first when it is free. Nothing depends on it but time, cost and
// turns.
//
// Nobody queues, because that would cost a write. A token is a count, so each waiter knows how many have held a name of the
// bucket since it came: its age. Winners leave in the bucket about how old they were: the share, which is how many wait.
// Who is about that old is near: it reads often, and takes the name when it is free. The others read seldom, and leave a
// free name to those for a moment.
type pace struct {
	came    fence.Epoch // the bucket's token at the first read; see known
	known   bool
	begun   clock.Instant
	age     uint64
	share   uint64
	last    fence.Epoch // the bucket's token when it was last read
	free    bool        // the name was free then
	stale   bool        // it was left to others, and nobody has taken it
	round   time.Duration
	elapsed time.Duration

	budget float64 // how many reads may be made at once
	filled clock.Instant
}

const (
	// perMinute is how many reads a waiter makes for long, and burst how many more in a row. Together they are 150.
	perMinute, burst = 75, 75
	quickest         = 60 * time.Millisecond
	slowest          = 2 * time.Second
)

// saw notes a read of the bucket.
func (w *waiter) saw(now clock.Instant, round time.Duration, b *bucket, held bool) {
	p := &w.pace
	if !p.known {
		p.known, p.came, p.begun, p.budget, p.filled = true, b.Token, now, burst, now
	}
	p.stale = !held && p.free && p.last == b.Token
	p.age, p.share, p.last, p.free = uint64(b.Token-min(p.came, b.Token)), b.Share, b.Token, !held
	p.round, p.elapsed = round, now.Sub(p.begun)
	w.spend()
}

// spend takes one read from the budget.
func (w *waiter) spend() {
	now := w.now()
	w.budget = min(burst, w.budget+now.Sub(w.filled).Minutes()*perMinute) - 1
	w.filled = now
}

// near reports whether it is about this waiter's turn.
func (p *pace) near() bool { return p.age*64 >= p.share*7 }

// defers reports whether to leave a free name to those who came earlier.
func (p *pace) defers() bool { return p.share >= 4 && !p.near() && !p.stale }

// nextShare is what the bucket says when this waiter has won.
func (p *pace) nextShare(b *bucket) uint64 {
	if p.stale && !p.near() {
		return b.Share / 2 // nobody of those is left
	}
	if now := 8 * p.age; now > b.Share {
		return b.Share + (now-b.Share+3)/4 // learn soon that many wait
	}
	return b.Share - b.Share/8 + p.age
}

// pause waits until the next read.
func (w *waiter) pause(ctx context.Context, err error) error {
	d := quickest
	switch {
	case err != nil && !errors.Is(err, ErrHeld): // the store fails
		d = w.l.opts.Validity / 16
	case w.free && err == nil && w.near(): // lost a race
	case w.free && err == nil:
		d = max(6*w.round, quickest)
	case !w.near():
		// Half of the time until this waiter is near.
		each := w.elapsed / time.Duration(max(w.age, 1))
		d = min(max(time.Duration(w.share*7/64-w.age)*each/2, quickest), slowest)
	}
	if w.near() && w.age*16 >= w.share*3 {
		d /= 3 // overdue by half
	}
	if w.budget < 0 {
		d = max(d, time.Duration(-w.budget/perMinute*float64(time.Minute)))
	}
	if w.session != (fence.ID{}) && !w.free && w.budget >= 0 {
		d = min(d, max(w.watch.next.Sub(w.now()), time.Millisecond))
	}
	return w.l.pause(ctx, d*4/3)
}
