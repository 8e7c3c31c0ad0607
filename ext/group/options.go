package group

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// Options of [Join] and [Observe]. The zero value joins a group that exists, and so does nil.
type Options struct {
	// Name tells this group from others that somebody might put under the same prefix by
	// mistake: up to 128 bytes. Every member gives the same; the default is none.
	Name string
	// Partitions is how many partitions the group has, 1 to 100,000. Join creates a group with so many, and
	// raises the number of one that has fewer. A group with more is [ErrOptions]:
	// partitions are never removed. 0 takes the number that the group has.
	Partitions int
	// Base is what all tokens are above, if the group is created: set it to the highest token
	// that was ever used for one of its partitions.
	Base fence.Epoch
	// Validity is how long a member holds its partitions without a heartbeat. Whole milliseconds, 100 ms to
	// 24 h; default what the group has, or 15 s if it is created. All members have the
	// same, so another than the group's is [ErrOptions].
	Validity time.Duration
	// Identity names this worker, for people: 1 to 512 bytes of printable UTF-8. The default
	// is the host and the process.
	Identity string
	// Weight is this worker's share, relative to the others', up to 10⁹. Default 1. A negative
	// weight means no share: the worker stands by, and may organise.
	Weight int
	// Data is what this worker publishes to others, such as an address: up to 4,096 bytes of UTF-8.
	Data string
	// Renew is the time from one heartbeat to the next, in whole milliseconds. It must be at
	// least the store's Traits().MinRewrite. Default 2/5 of Validity.
	Renew time.Duration
	// Margin is how long before the end of the validity the member stops. It covers the time in which
	// the work notices. Default 1/10 of Validity.
	Margin time.Duration
	// ClockRate is the largest error of a clock's rate, as a share: 0.001, the default, for
	// clocks that run fast or slow by up to 1 ms per second.
	ClockRate float64
	// RequestTimeout bounds one request; default 1/5 of Validity.
	RequestTimeout time.Duration
	// Drain is how long the work on a partition may take to return once its context has ended.
	// Work that takes longer ends the whole session, and Run with [ErrHung]. Default Validity.
	Drain time.Duration
	// StallAfter ends the work on a partition that does not call [Partition.Progress] for so
	// long. It counts as a failure. 0 means never.
	StallAfter time.Duration
	// Probe configures the probe of the store when the group is created. It cannot be left
	// out: on a store that ignores conditions two members would work on one partition.
	Probe *probe.Options
	// Logger is silent by default.
	Logger *zap.Logger
	// Hooks are called when something happens.
	Hooks Hooks
	// Seed makes the jitter repeatable, for tests. 0 draws a random one.
	Seed uint64
	// Clock is clock.System by default.
	Clock clock.Clock
}

const (
	minValidity     = 100 * time.Millisecond
	maxValidity     = 24 * time.Hour
	defaultValidity = 15 * time.Second
	maxName         = 128
	maxIdentity     = 512
	maxData         = 4096
	maxWeight       = 1_000_000_000
)

// Validate reports what is wrong with the options: all faults, each an [ErrOptions]. It does
// no I/O, so it knows neither the store nor the group; [Join] does. nil is valid.
func (o *Options) Validate() error {
	v := *cmp.Or(o, &Options{})
	_, err := v.withDefaults(cmp.Or(v.Validity, defaultValidity), store.Traits{})
	return err
}

// withDefaults returns a completed copy for a group of that validity, and what is wrong with it.
func (o *Options) withDefaults(validity time.Duration, traits store.Traits) (Options, error) {
	v := *cmp.Or(o, &Options{})
	base := validity
	if !validValidity(validity) {
		base = defaultValidity // or check would complain of defaults that nobody set
	}
	v.Validity = validity
	v.Identity = cmp.Or(v.Identity, defaultIdentity())
	v.Weight = cmp.Or(v.Weight, 1)
	v.Renew = cmp.Or(v.Renew, max((base*2/5).Truncate(time.Millisecond), traits.MinRewrite))
	v.Margin = cmp.Or(v.Margin, base/10)
	v.RequestTimeout = cmp.Or(v.RequestTimeout, base/5)
	v.Drain = cmp.Or(v.Drain, base)
	v.ClockRate = cmp.Or(v.ClockRate, 0.001)
	v.Logger = sink.Logger(v.Logger)
	v.Clock = clock.Or(v.Clock)
	return v, v.check(traits)
}

// given checks what a caller gives: nothing is started without a store.
func given(st store.Store, opts *Options) error {
	if store.IsNil(st) {
		return errors.Join(fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions), opts.Validate())
	}
	return opts.Validate()
}

func validValidity(d time.Duration) bool {
	return d >= minValidity && d <= maxValidity && d%time.Millisecond == 0
}

// check looks at completed options.
func (o *Options) check(traits store.Traits) error {
	bad := []error{}
	need := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	need(len(o.Name) <= maxName && printable(o.Name), "Name %.40q must be up to %d bytes of printable UTF-8", o.Name, maxName)
	need(o.Partitions >= 0 && o.Partitions <= assign.MaxPartitions, "Partitions %d must be 1 to %d, or 0 for what the group has", o.Partitions, assign.MaxPartitions)
	need(o.Base <= assign.MaxBase, "Base %d must be at most %d", o.Base, uint64(assign.MaxBase))
	need(len(o.Identity) <= maxIdentity && printable(o.Identity), "Identity %.40q must be 1 to %d bytes of printable UTF-8", o.Identity, maxIdentity)
	need(o.Weight <= maxWeight, "Weight %d must be at most %d; a negative one means no share", o.Weight, maxWeight)
	need(len(o.Data) <= maxData && utf8.ValidString(o.Data), "Data has %d bytes; it must be up to %d bytes of UTF-8", len(o.Data), maxData)
	need(validValidity(o.Validity), "Validity %v must be %v to %v in whole milliseconds", o.Validity, minValidity, maxValidity)
	need(o.Renew >= time.Millisecond && o.Renew <= maxValidity && o.Renew%time.Millisecond == 0, "Renew %v must be positive, at most %v, and in whole milliseconds", o.Renew, maxValidity)
	need(o.Renew >= traits.MinRewrite, "Renew %v is below %v, the least time between two writes of one key that %s allows", o.Renew, traits.MinRewrite, traits.Name)
	need(o.ClockRate > 0 && o.ClockRate < 0.5, "ClockRate %g must be above 0 and below 0.5", o.ClockRate)
	need(o.RequestTimeout > 0 && o.RequestTimeout <= maxValidity, "RequestTimeout %v must be positive, and at most %v", o.RequestTimeout, maxValidity)
	need(o.Margin > 0 && o.Margin <= maxValidity, "Margin %v must be positive, and at most %v", o.Margin, maxValidity)
	need(o.Drain > 0, "Drain %v must be positive", o.Drain)
	need(o.StallAfter == 0 || o.StallAfter >= minValidity, "StallAfter %v must be at least %v, or 0 for never", o.StallAfter, minValidity)
	if err := o.Probe.Validate(); err != nil {
		need(false, "Probe: %v", err)
	}
	if err := errors.Join(bad...); err != nil {
		return err // the sums below would only repeat these faults
	}
	left := o.Validity - o.Margin
	need(o.Renew+o.RequestTimeout <= left,
		"Renew %v + RequestTimeout %v = %v exceeds Validity %v − Margin %v = %v: one heartbeat that times out would end the session",
		o.Renew, o.RequestTimeout, o.Renew+o.RequestTimeout, o.Validity, o.Margin, left)
	return errors.Join(bad...)
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
