package leader

import (
	"cmp"
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
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Identity names this candidate, for people: 1 to 512 bytes of
	// printable UTF-8, another for each process. By default each elector gets a new
	// [DefaultIdentity].
	Identity string
	// Validity is how long a lock holds without a heartbeat. After a crash nobody
	// leads for about so long. Whole milliseconds, 10 ms to 24 h; default 15 s.
	// Candidates may differ: the leader's value counts. The leader itself stops a tenth
	// before the end. That covers the time in which its work notices, and the difference
	// of the clocks' rates.
	Validity time.Duration
	// Renew is the time from one heartbeat to the next, in whole milliseconds. It
	// must be at least the store's Traits().MinRewrite. Default 2/5 of Validity, or
	// MinRewrite if that is more.
	Renew time.Duration
	// Poll is the longest time from one read of a lock that another process holds to the
	// next. If a leader leaves without a drain, since its work has ended, nobody leads until
	// the next read. If one is told to end, its work goes on until then. Default one read
	// for each heartbeat of the holder, some 11 a minute; negative means the same.
	// Otherwise the reads are between half of Poll and Poll apart. fencepost.Run has another
	// default: 1/30 of Validity, at least 100 ms. At 15 s these are some 150 reads a minute,
	// which cost on S3 about what the holder's heartbeats cost.
	Poll time.Duration
	// RequestTimeout bounds one request; default 1/5 of Validity. What is left of the
	// term bounds a heartbeat too.
	RequestTimeout time.Duration
	// StallAfter ends the term if the work does not call [Term.Progress] for so long,
	// so that a leader whose work hangs makes way. 0 means never.
	StallAfter time.Duration
	// Drain is how long at most the work goes on after Resign, and after the end of
	// the context that was given to Run. The lock announces the end meanwhile. As soon as
	// a candidate has seen that, it reads the lock often, and the work's context ends. If
	// no candidate waits, it ends at once. Default Renew + Validity/15, in which each
	// candidate reads the lock; negative means no time, and then candidates learn of the
	// release up to Renew later.
	Drain time.Duration
	// Reclaim takes over at once if the first lock that the elector sees has this
	// Identity: a process that was killed and started again need not wait for its own
	// Validity. Set it only if the one that starts this process makes sure that the one
	// before is dead, as a StatefulSet of Kubernetes does. If two live processes have one
	// Identity, the later one deposes the earlier, which believes that it leads until its
	// next heartbeat. Appends stay safe; other effects need a fence.Gate.
	Reclaim bool
	// MinEpoch is the least epoch to win. Set it to one more than the last token of
	// another election when you move to this one, at most 2⁶². Candidates may differ in it.
	MinEpoch fence.Epoch
	// Announce is what the lock says of its holder besides: any UTF-8 of at most 512 bytes, such as where
	// the holder can be reached. Whoever may read the lock gets it as [Record].Announce.
	Announce string
	// NoPrune keeps old locks. Otherwise the leader deletes the locks that Prune does
	// not keep, once at the beginning of a term and then every day.
	NoPrune bool
	// Prune says which old locks to keep.
	Prune PruneOptions
	// Logger is silent by default.
	Logger *zap.Logger
	// Hooks are called when something happens.
	Hooks Hooks
	// Clock is clock.System by default.
	Clock clock.Clock
}

const (
	minValidity = 10 * time.Millisecond
	maxValidity = 24 * time.Hour
	maxIdentity = 512
	maxAnnounce = 512
)

// Validate reports what is wrong with the options: all faults, each an
// [ErrOptions]. It does not know the store, so it does not check Renew against the
// store's MinRewrite; [New] does.
func (o *Options) Validate() error {
	_, err := o.withDefaults(store.Traits{})
	return err
}

// withDefaults returns a completed copy, and what is wrong with it.
func (o *Options) withDefaults(traits store.Traits) (Options, error) {
	v := *cmp.Or(o, &Options{})
	if v.Identity == "" {
		v.Identity = DefaultIdentity()
	}
	const validity = 15 * time.Second
	v.Validity = cmp.Or(v.Validity, validity)
	base := v.Validity
	if !v.validValidity() {
		base = validity // or check would complain of defaults that nobody set
	}
	v.Renew = cmp.Or(v.Renew, max((base*2/5).Truncate(time.Millisecond), traits.MinRewrite))
	v.RequestTimeout = cmp.Or(v.RequestTimeout, base/5)
	v.Drain = max(cmp.Or(v.Drain, v.Renew+base/15), 0)
	v.Logger = sink.Logger(v.Logger)
	v.Clock = clock.Or(v.Clock)
	err := v.check(traits)
	if o != nil && o.Reclaim && o.Identity == "" {
		err = errors.Join(err, fmt.Errorf("%w: Reclaim needs an Identity: set the name that this process had before", ErrOptions))
	}
	v.Prune = v.Prune.withDefaults()
	return v, err
}

// check looks at completed options.
func (o *Options) check(traits store.Traits) error {
	bad := []error{o.Prune.validate()}
	need := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	need(validIdentity(o.Identity), "Identity %.40q must be 1 to %d bytes of printable UTF-8", o.Identity, maxIdentity)
	need(len(o.Announce) <= maxAnnounce && utf8.ValidString(o.Announce), "Announce %.40q must be at most %d bytes of UTF-8", o.Announce, maxAnnounce)
	need(o.validValidity(), "Validity %v must be %v to %v in whole milliseconds", o.Validity, minValidity, maxValidity)
	need(o.Renew >= time.Millisecond && o.Renew <= maxValidity && o.Renew%time.Millisecond == 0, "Renew %v must be positive, at most %v, and in whole milliseconds", o.Renew, maxValidity)
	need(o.Renew >= traits.MinRewrite, "Renew %v is below %v, the least time between two writes of one key that %s allows",
		o.Renew, traits.MinRewrite, traits.Name)
	need(o.RequestTimeout > 0 && o.RequestTimeout <= maxValidity, "RequestTimeout %v must be positive, and at most %v", o.RequestTimeout, maxValidity)
	need(o.MinEpoch <= layout.MaxMinEpoch, "MinEpoch %d must be at most %d: a greater one leaves no room for the leaders after it", o.MinEpoch, layout.MaxMinEpoch)
	need(o.Poll <= 0 || o.Poll >= time.Millisecond, "Poll %v must be at least 1ms, or 0 for the default", o.Poll)
	need(o.StallAfter == 0 || o.StallAfter >= minValidity, "StallAfter %v must be at least %v, or 0 for never", o.StallAfter, minValidity)
	if err := errors.Join(bad...); err != nil {
		return err // the sums below would only repeat these faults
	}
	left := o.Validity - o.margin()
	need(o.Renew+o.RequestTimeout <= left,
		"Renew %v + RequestTimeout %v = %v exceeds nine tenths of Validity %v = %v: one heartbeat that times out would end the term",
		o.Renew, o.RequestTimeout, o.Renew+o.RequestTimeout, o.Validity, left)
	return errors.Join(bad...)
}

func (o *Options) validValidity() bool {
	return o.Validity >= minValidity && o.Validity <= maxValidity && o.Validity%time.Millisecond == 0
}

// margin is how long before the end of the validity the leader stops.
//
// guard:rate-margin. A leader's term ends a tenth of the validity before a candidate may take over.
//
//mutant:replace o.Validity / 10 => 0
func (o *Options) margin() time.Duration {
	return o.Validity / 10
}

// machine returns the options as the state machine needs them.
func (o *Options) machine(traits store.Traits, random func() float64) lease.Config {
	return lease.Config{
		Identity: o.Identity, Validity: o.Validity, Renew: o.Renew, Margin: o.margin(), Poll: o.Poll,
		MinEpoch: o.MinEpoch, MinRewrite: traits.MinRewrite, StallAfter: o.StallAfter, Random: random, Nonce: newNonce,
	}
}

// DefaultIdentity returns a name for a candidate: the host name, the process id
// and a new UUID, separated by slashes. Call it once and set Options.Identity to
// give several electors of a process one name, or to know the name yourself.
func DefaultIdentity() string {
	host, err := os.Hostname()
	if err != nil || !validIdentity(host) || len(host) > 255 {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), uuid.NewString())
}

func validIdentity(s string) bool {
	return s != "" && len(s) <= maxIdentity && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
