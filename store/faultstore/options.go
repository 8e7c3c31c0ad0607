package faultstore

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of [New]. The zero value injects nothing: it only counts and logs.
type Options struct {
	// Seed decides the random faults and the order of listings.
	Seed uint64
	// Rates are those of random faults.
	Rates Rates
	// Hook chooses faults first; where it returns the zero Fault, Rates apply.
	Hook Hook
	// Before is called when a request begins, and After when its reply is about
	// to reach the caller, with the error that the caller will see. Both run in
	// the caller's goroutine, without locks: another client may be made to act
	// there. A request made in them through the same client comes here again.
	Before func(context.Context, Op)
	After  func(context.Context, Op, error)
	// DirectoryBucket makes listings come in random order and ignore StartAfter,
	// as in S3's directory buckets. (Their random ETags are what package memstore
	// has anyhow.)
	DirectoryBucket bool
	// LogSize is how many entries [Store.Log] keeps, default 4096.
	LogSize int
	// Clock measures delays; the machine's by default.
	Clock clock.Clock
}

func (o *Options) withDefaults() Options {
	var v Options
	if o != nil {
		v = *o
	}
	if v.LogSize <= 0 {
		v.LogSize = 4096
	}
	v.Clock = clock.Or(v.Clock)
	return v
}

// Rates are probabilities, from 0 to 1, with which a request meets a random
// fault. They are tried in the order of the fields that apply to the request,
// and the first hit decides; so they need not add up to anything.
type Rates struct {
	// Fail: an error, and nothing was applied. The kinds of error that tell no
	// outcome come evenly, 409 for conditional writes only.
	Fail float64
	// LoseReply: a write is applied, the caller hears an error.
	LoseReply float64
	// Echo: a conditional put is applied, the caller hears 412.
	Echo float64
	// Late: the caller hears a timeout, the write lands within LateOps further
	// requests, one time in four twice.
	Late float64
	// Duplicate: a write is applied and answered, and lands again within LateOps
	// further requests.
	Duplicate float64
	// Break: a body or a listing breaks off in the middle with an error.
	Break float64
	// LateOps is 32 by default.
	LateOps int
	// MaxDelay makes every request, also without any other fault, take between
	// nothing and this, half on its way and half on the way back, evenly.
	MaxDelay time.Duration
}

// draw makes up the random fault of a request.
func (r *Rates) draw(op Op, rng *rand.Rand) Fault {
	hit := func(p float64) bool { return p > 0 && rng.Float64() < p }
	write := op.Kind == Put || op.Kind == Upload || op.Kind == Delete
	_, swap := op.Cond.Match()
	conditional := op.Kind == Put && (swap || op.Cond == store.IfAbsent())
	lateOps := r.LateOps
	if lateOps <= 0 {
		lateOps = 32
	}
	noReply := []error{ErrTimeout, ErrReset, ErrInternal, ErrUnavailable, ErrThrottled, ErrConflict}
	if !conditional {
		noReply = noReply[:5]
	}

	var f Fault
	if r.MaxDelay > 0 {
		f.Delay = time.Duration(rng.Int64N(int64(r.MaxDelay)/2 + 1))
		f.ReplyDelay = time.Duration(rng.Int64N(int64(r.MaxDelay)/2 + 1))
	}
	switch {
	case hit(r.Fail):
		f.Drop, f.Err = true, noReply[rng.IntN(len(noReply))]
	case write && hit(r.LoseReply):
		f.Err = noReply[rng.IntN(len(noReply))]
	case conditional && hit(r.Echo):
		f.Err = ErrEcho
	case write && hit(r.Late):
		f.Drop, f.Err = true, ErrTimeout
		f.Late = &Late{Ops: 1 + rng.IntN(lateOps), Copies: 1}
		if rng.IntN(4) == 0 {
			f.Late.Copies = 2
		}
	case write && hit(r.Duplicate):
		f.Late = &Late{Ops: 1 + rng.IntN(lateOps), Copies: 1}
	case op.Kind != Put && op.Kind != Delete && hit(r.Break):
		// A break past the end of a short body or listing is none.
		f.Cut, f.Keep, f.Err = true, rng.IntN(64), ErrReset
	}
	return f
}

// random is the source for one request: it depends on nothing else, so that a
// fault more or less does not shift all that follow.
func (o *Options) random(op Op) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(op.Client))
	return rand.New(rand.NewPCG(o.Seed, h.Sum64()^uint64(op.ClientN)*0x9e3779b97f4a7c15))
}
