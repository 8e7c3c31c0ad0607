package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// CompactOptions are the options of [Compact]. The zero value works, and so does nil.
type CompactOptions struct {
	// Group configures the membership in the group of compactors. Compact sets Partitions to
	// what the group of the logs has, so it must be 0 here. Probe.Open opens what is st to Compact.
	Group *Options
	// Compactor configures the compactor of each log. Compact sets Token and Budget, so they must not be set
	// here; Leader is not used. Interval is 1 min by default here, and IdleInterval 15 min.
	Compactor *compactor.Options
	// RequestsPerSecond and BytesPerSecond bound what this process asks of the store for all logs
	// together, on average. 0 is no bound.
	RequestsPerSecond int
	BytesPerSecond    int64
	// Concurrency is how many logs this process compacts at once, 1 to 1,024, default 4. Each may
	// take some 100 MiB of memory while it uploads a segment.
	Concurrency int
	// Logger also serves the group and the compactors if they have no Logger of their own. Default: no
	// logging.
	Logger *zap.Logger
}

// Validate returns all faults of the options, each an [ErrOptions], or nil. Compact calls it before
// its first request. It does no I/O. nil is valid.
func (o *CompactOptions) Validate() error {
	if o == nil {
		return nil
	}
	var all faults
	all.add("Group", o.Group.Validate())
	if o.Group != nil && o.Group.Partitions != 0 {
		all.add("Group", errors.New("the field Partitions must be 0, because Compact takes it from the group of the logs"))
	}
	c := cmp.Or(o.Compactor, &compactor.Options{})
	all.add("Compactor", c.Validate())
	if c.Token.Valid() || c.Budget != nil {
		all.add("Compactor", errors.New("the fields Token and Budget must not be set, because Compact sets them"))
	}
	if o.RequestsPerSecond < 0 {
		all.add("RequestsPerSecond", fmt.Errorf("%d must not be negative", o.RequestsPerSecond))
	}
	if o.BytesPerSecond < 0 {
		all.add("BytesPerSecond", fmt.Errorf("%d must not be negative", o.BytesPerSecond))
	}
	if o.Concurrency < 0 || o.Concurrency > 1024 {
		all.add("Concurrency", fmt.Errorf("%d must be 1 to 1024", o.Concurrency))
	}
	return errors.Join(all...)
}

// Compact compacts the logs of the partitions of the group in st, until ctx ends: see [Run]. The processes
// that call it share the logs as the workers of a group share partitions, in a group of their own, whose keys
// begin with "compactors/". So no log costs a heartbeat, each is compacted by one process, and another
// takes over when that one ends. The token of the ownership is the compactor's, so the log has no election.
//
// A log that no worker has opened yet is looked for again later. If the compaction of a log fails for good,
// it is retried later and later, and then by another process: see [Group.Run]. The others go on. Compact
// follows when the number of partitions is raised.
//
// It returns nil if ctx ended, or somebody has drained this member; an [ErrOptions] at once
// if the options are wrong; [ErrNoGroup] if there is no group in st; and the other errors of [Run].
func Compact(ctx context.Context, st store.Store, opts *CompactOptions) error {
	faults := []error{opts.Validate()}
	if store.IsNil(st) {
		faults = append(faults, fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	r := newCompaction(st, opts)
	own, err := store.Sub(st, compactors)
	if err != nil {
		return err
	}
	return memberships(ctx, r.clock, r.logger, func() error { return r.membership(ctx, own) })
}

// compaction is one call of Compact.
type compaction struct {
	st        store.Store
	calm      store.Store // slows down when the store asks for it
	group     Options
	compactor compactor.Options
	logger    *zap.Logger
	clock     clock.Clock
}

func newCompaction(st store.Store, opts *CompactOptions) *compaction {
	v := *cmp.Or(opts, &CompactOptions{})
	r := &compaction{
		st: st, logger: sink.Logger(v.Logger), group: *cmp.Or(v.Group, &Options{}), compactor: *cmp.Or(v.Compactor, &compactor.Options{}),
	}
	r.clock = clock.Or(r.group.Clock)
	r.calm = &calm{Store: st, clock: r.clock}
	r.group.Logger = cmp.Or(r.group.Logger, r.logger.Named("group"))
	if p := r.group.Probe; p != nil && p.Open != nil {
		below := *p
		below.Open = func(ctx context.Context) (store.Store, error) {
			st, err := p.Open(ctx)
			if err != nil {
				return nil, err
			}
			return store.Sub(st, compactors)
		}
		r.group.Probe = &below
	}
	c := &r.compactor
	c.Interval = cmp.Or(c.Interval, time.Minute)
	c.IdleInterval = cmp.Or(c.IdleInterval, max(15*time.Minute, c.Interval))
	c.Budget = &compactor.Budget{RequestsPerSecond: v.RequestsPerSecond, BytesPerSecond: v.BytesPerSecond, Concurrency: cmp.Or(v.Concurrency, 4)}
	c.Clock = cmp.Or(c.Clock, r.clock)
	c.Logger = cmp.Or(c.Logger, r.logger)
	return r
}

// membership joins the group of compactors in own, until the session is lost.
func (r *compaction) membership(ctx context.Context, own store.Store) error {
	if err := r.count(ctx); err != nil {
		return err
	}
	g, err := Join(ctx, own, &r.group)
	if err != nil {
		return err
	}
	over, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		r.follow(over, own)
	}()
	err = g.Run(ctx, r.partition)
	stop()
	<-followed
	return err
}

// count reads how many partitions there are. They are never removed.
func (r *compaction) count(ctx context.Context) error {
	n, err := Partitions(ctx, r.st)
	r.group.Partitions = max(n, r.group.Partitions)
	return err
}

// follow raises the number of partitions of the compactors' group when that of the logs' group is raised.
func (r *compaction) follow(ctx context.Context, own store.Store) {
	for clock.Sleep(ctx, r.clock, r.compactor.Interval) == nil {
		had := r.group.Partitions
		err := r.count(ctx)
		if err == nil && r.group.Partitions > had {
			err = Create(ctx, own, &r.group)
		}
		if err != nil && ctx.Err() == nil {
			r.group.Partitions = had
			r.logger.Warn("cannot follow the number of partitions; retrying", zap.Error(err))
		}
	}
}

// partition is the work that the group calls.
func (r *compaction) partition(ctx context.Context, p *Partition) error {
	st, err := PartitionStore(r.calm, p.Number())
	if err != nil {
		return err
	}
	opts := r.compactor
	opts.Token = p.Token()
	c, err := compactor.New(st, &opts)
	if err != nil {
		return err
	}
	return c.Run(ctx) // it waits for a log that no worker has opened yet
}
