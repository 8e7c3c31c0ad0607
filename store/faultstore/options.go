package faultstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Options of [New]. The zero value injects nothing: it only counts and logs.
type Options struct {
	// Seed decides the random faults.
	Seed uint64
	// Rates are those of random faults.
	Rates Rates
	// Hook chooses faults first; where it returns the zero Fault, Rates apply.
	Hook Hook
	// Before is called when a request begins. After is called when its reply is about to
	// reach the caller, with the error that the caller will see. Both run in the caller's
	// goroutine, without locks, so a test can make another client act there. They are also
	// called for requests that they make themselves.
	Before func(context.Context, Op)
	After  func(context.Context, Op, error)
	// LogSize is how many entries [Store.Log] keeps, default 4096.
	LogSize int
	// Clock measures delays; the machine's by default.
	Clock clock.Clock
}

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var bad []error
	need := func(ok bool, name string, v any, want string) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: faultstore: Options.%s is %v; it must be %s", store.ErrInvalid, name, v, want))
		}
	}
	r := o.Rates
	for name, p := range map[string]float64{"Fail": r.Fail, "LoseReply": r.LoseReply, "Echo": r.Echo, "Late": r.Late, "Duplicate": r.Duplicate, "Break": r.Break} {
		need(p >= 0 && p <= 1, "Rates."+name, p, "from 0 to 1")
	}
	need(r.LateOps >= 0, "Rates.LateOps", r.LateOps, "at least 0")
	need(r.MaxDelay >= 0, "Rates.MaxDelay", r.MaxDelay, "at least 0")
	need(o.LogSize >= 0, "LogSize", o.LogSize, "at least 0")
	return errors.Join(bad...)
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.LogSize = cmp.Or(v.LogSize, 4096)
	v.Clock = clock.Or(v.Clock)
	return v
}

// Rates are the probabilities, from 0 to 1, of random faults. They are tried in the order
// of the fields, and the first hit decides; so they need not add up to 1.
type Rates struct {
	// Fail: an error, and nothing was applied. All errors of unknown outcome are equally
	// likely; 409 comes for conditional writes only.
	Fail float64
	// LoseReply: a write is applied; the caller gets an error.
	LoseReply float64
	// Echo: a conditional put is applied; the caller gets 412.
	Echo float64
	// Late: the caller gets a timeout. The write lands within LateOps further requests, one
	// time in four twice.
	Late float64
	// Duplicate: a write is applied and answered, and lands again within LateOps
	// further requests.
	Duplicate float64
	// Break: a body or a listing ends in the middle with an error.
	Break float64
	// LateOps is 32 by default.
	LateOps int
	// MaxDelay delays every request by a random time up to this, one half on the way to
	// the store and one half on the way back.
	MaxDelay time.Duration
}

// draw returns the random fault of a request.
func (r *Rates) draw(op Op, rng *rand.Rand) Fault {
	hit := func(p float64) bool { return p > 0 && rng.Float64() < p }
	write := op.Kind == Put || op.Kind == Upload || op.Kind == Delete
	_, swap := op.Cond.Match()
	conditional := op.Kind == Put && (swap || op.Cond == store.IfAbsent())
	lateOps := cmp.Or(r.LateOps, 32)
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

// random returns the random numbers for one request. They depend on nothing else, so one
// fault more does not change all later ones.
func (o *Options) random(op Op) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(op.Client))
	return rand.New(rand.NewPCG(o.Seed, h.Sum64()^uint64(op.ClientN)*0x9e3779b97f4a7c15))
}
