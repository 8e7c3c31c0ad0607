package leader

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
)

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Identity names this candidate, for people and for Handover. Default: host
	// name, process id and a UUID, separated by slashes.
	Identity string
	// Validity is for how long a lock holds without a heartbeat: what a crash
	// costs, at worst, before somebody else leads. Whole milliseconds, 10 ms to
	// 24 h; default 15 s. Candidates may differ: the holder's counts.
	Validity time.Duration
	// Renew is the interval of heartbeats; default 2/5 of Validity, and at least
	// the store's Traits().MinRewrite.
	Renew time.Duration
	// Margin is how long before the end of the validity the leader stops: the
	// time that its work takes to notice, and the difference of the clocks'
	// rates. Default 1/10 of Validity.
	Margin time.Duration
	// ClockRate is the greatest error of a clock's rate, as a share: clocks that
	// are 1 ms a second fast or slow have 0.001, the default. Not their
	// difference in time of day: that does not matter.
	ClockRate float64
	// RequestTimeout bounds one request; default 1/5 of Validity. A heartbeat is
	// further bounded by what is left of the term.
	RequestTimeout time.Duration
	// StallAfter ends the term when [Term.Progress] was not called for so long,
	// so that a heartbeat does not outlive the work. 0 means never.
	StallAfter time.Duration
	// Drain is for how long the work goes on after Resign and Handover have
	// announced the end, so that followers look closely when the lock becomes
	// free; default Renew. Negative means no time at all.
	// It does not apply when Run's context is cancelled: then the work ends and the
	// lock is free at once, and followers find out at their next look, a heartbeat
	// later at most.
	Drain time.Duration
	// MinEpoch is the least epoch to win: one more than the last token that came
	// from elsewhere, when moving from another election to this one. Candidates may
	// differ in it. One that has to leave out numbers first makes a milestone: a lock
	// that nobody holds and that names the number which follows it.
	MinEpoch uint64
	// NoRelease leaves the lock to lapse when the context given to [Elector.Run]
	// is cancelled, as client-go does without ReleaseOnCancel.
	NoRelease bool
	// NoPrune leaves old locks in place. Otherwise the leader deletes those that
	// Prune does not keep, once a term and then daily.
	NoPrune bool
	Prune   PruneOptions
	Logger  *zap.Logger
	Hooks   Hooks
	// Seed makes jitter repeatable; 0 means another one every time.
	Seed uint64
	// Clock is the machine's by default, which counts suspend.
	Clock clock.Clock
}

const (
	minValidity = 10 * time.Millisecond
	maxValidity = 24 * time.Hour
	maxIdentity = 512
)

// withDefaults copies, completes and checks.
func (o *Options) withDefaults(traits store.Traits) (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Identity == "" {
		v.Identity = identity()
	}
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&v.Validity, 15*time.Second)
	def(&v.Renew, max((v.Validity*2/5).Truncate(time.Millisecond), traits.MinRewrite))
	def(&v.Margin, v.Validity/10)
	def(&v.RequestTimeout, v.Validity/5)
	def(&v.Drain, v.Renew)
	if v.ClockRate == 0 {
		v.ClockRate = 0.001
	}
	if v.Logger == nil {
		v.Logger = zap.NewNop()
	}
	v.Clock = clock.Or(v.Clock)
	v.Prune = v.Prune.withDefaults()
	v.Prune.Clock = v.Clock
	return v, v.check(traits)
}

func (o *Options) check(traits store.Traits) error {
	var bad []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	need(validIdentity(o.Identity), "Identity must be 1 to %d bytes of printable UTF-8", maxIdentity)
	whole := o.Validity%time.Millisecond == 0
	need(o.Validity >= minValidity && o.Validity <= maxValidity && whole,
		"Validity %v must be %v to %v in whole milliseconds", o.Validity, minValidity, maxValidity)
	need(o.Renew >= time.Millisecond && o.Renew%time.Millisecond == 0, "Renew %v must be positive and in whole milliseconds", o.Renew)
	need(o.Renew >= traits.MinRewrite, "Renew %v is below %v, the least time between two writes of one key that %s allows",
		o.Renew, traits.MinRewrite, traits.Name)
	need(o.ClockRate > 0 && o.ClockRate < 0.5, "ClockRate %g must be above 0 and below 0.5", o.ClockRate)
	need(o.RequestTimeout > 0, "RequestTimeout %v must be positive", o.RequestTimeout)
	need(o.Margin > 0, "Margin %v must be positive", o.Margin)
	need(o.StallAfter >= 0, "StallAfter %v must not be negative", o.StallAfter)
	if err := o.Prune.Validate(); err != nil {
		bad = append(bad, err)
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	// A leader's clock may be slow and a follower's fast, by ClockRate each.
	drift := time.Duration(2 * o.ClockRate * float64(o.Validity))
	need(o.Margin >= drift, "Margin %v is below 2 × ClockRate %g × Validity %v = %v, which two clocks may drift apart",
		o.Margin, o.ClockRate, o.Validity, drift)
	left := o.Validity - o.Margin
	need(o.Renew+o.RequestTimeout <= left,
		"Renew %v + RequestTimeout %v = %v exceeds Validity %v − Margin %v = %v: a heartbeat that times out once would end the term",
		o.Renew, o.RequestTimeout, o.Renew+o.RequestTimeout, o.Validity, o.Margin, left)
	return errors.Join(bad...)
}

func validIdentity(s string) bool {
	return s != "" && len(s) <= maxIdentity && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func identity() string {
	host, err := os.Hostname()
	if err != nil || !validIdentity(host) || len(host) > 255 {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

func (o *Options) machine(traits store.Traits, random func() float64) lease.Config {
	return lease.Config{
		Identity: o.Identity, Validity: o.Validity, Renew: o.Renew, Margin: o.Margin,
		MinEpoch: o.MinEpoch, MinRewrite: traits.MinRewrite, StallAfter: o.StallAfter, Random: random, Nonce: newNonce,
	}
}
