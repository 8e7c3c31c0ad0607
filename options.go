package fencepost

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// Options of [Run]. The zero value works, and so does nil.
type Options struct {
	// Leader configures the election. A leader prunes old locks only if Leader.Prune
	// is set; without it the log's compactor prunes them.
	Leader *leader.Options
	// Writer configures the writer.
	Writer *writer.Options
	// Compactor runs a compactor in this process for as long as Run runs. Of several, one
	// works and the others wait, wherever the leader is. nil: none; then something else has
	// to compact the log. Its Files are the Writer's by default.
	Compactor *compactor.Options
	// Contact is how long Run tries to reach the store before its first request is answered.
	// Then it returns store.ErrUnreachable. Default 0: until ctx ends. Every 5 s the log says
	// what Run waits for.
	Contact time.Duration
	// Clock serves all parts that have no Clock of their own. Default: the machine's. Tests pass clock.Go.
	Clock clock.Clock
	// Logger also serves the election, the writer and the compactor if they have no Logger of
	// their own. Default: that of Slog, or warnings and errors go to slog.Default; zap.NewNop logs nothing.
	Logger *zap.Logger
	// Slog is for programs that log with log/slog: who leads, who waits for whom, what fails. It goes without
	// Logger. Options of other packages get a Logger from sink.FromSlog.
	Slog *slog.Logger
}

// Validate returns all faults of the options, each an [ErrOptions], or nil. Run calls
// it before its first request. It does no I/O, so it knows neither the limits of an
// existing log nor those of the store. nil is valid.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var all faults
	all.add("Leader", o.Leader.Validate())
	all.add("Writer", o.Writer.Validate())
	if o.Compactor != nil {
		all.add("Compactor", o.Compactor.Validate())
	}
	if o.Contact < 0 {
		all.add("Contact", fmt.Errorf("%v must not be negative", o.Contact))
	}
	if o.Logger != nil && o.Slog != nil {
		all.add("Slog", errors.New("it goes without Logger, and both are set"))
	}
	return errors.Join(all...)
}

// settings are complete options.
type settings struct {
	leader    leader.Options
	writer    writer.Options
	compactor *compactor.Options // nil: none
	contact   time.Duration
	logger    *zap.Logger
	clock     clock.Clock
	// renew is the interval of heartbeats, and so the longest time after which
	// another candidate notices that the lock is free.
	renew time.Duration
	// validity is that of the leader's lock. No Check can promise more.
	validity time.Duration
	// patience is how long a leader whose term is over lets its work go on for a successor.
	patience time.Duration
	// drain is how long Run waits for the writer to close.
	drain time.Duration
}

func (o *Options) settings(traits store.Traits) settings {
	v := *cmp.Or(o, &Options{})
	s := settings{
		logger:  logging(v.Logger, v.Slog),
		contact: v.Contact,
		leader:  *cmp.Or(v.Leader, &leader.Options{}),
		writer:  *cmp.Or(v.Writer, &writer.Options{}),
	}
	if s.leader.Identity == "" {
		// One name for all terms: a candidate that finds its own name in an expired lock
		// lets others go first.
		s.leader.Identity = leader.DefaultIdentity()
	}
	s.leader.NoPrune = s.leader.NoPrune || s.leader.Prune == leader.PruneOptions{}
	s.leader.Logger = cmp.Or(s.leader.Logger, s.logger.Named("leader"))
	s.writer.Logger = cmp.Or(s.writer.Logger, s.logger.Named("writer"))
	// One that is set for a part only, and forgotten for the others, is meant for all.
	s.clock = clock.Or(cmp.Or(v.Clock, s.leader.Clock, s.writer.Clock))
	s.leader.Clock, s.writer.Clock = cmp.Or(s.leader.Clock, s.clock), cmp.Or(s.writer.Clock, s.clock)
	const validity = 15 * time.Second // the election's default
	if s.renew = s.leader.Renew; s.renew == 0 {
		s.renew = max(cmp.Or(s.leader.Validity, validity)*2/5, traits.MinRewrite)
	}
	s.validity = cmp.Or(s.leader.Validity, validity)
	s.leader.Poll = cmp.Or(s.leader.Poll, lease.Often(s.validity))
	if v.Compactor != nil {
		c := *v.Compactor
		l := *cmp.Or(c.Leader, &leader.Options{})
		l.Identity = cmp.Or(l.Identity, s.leader.Identity)
		if store.IsNil(c.Files) {
			c.Files = s.writer.Files
		}
		c.Leader, c.Clock, c.Logger = &l, cmp.Or(c.Clock, s.clock), cmp.Or(c.Logger, s.logger)
		s.compactor = &c
	}
	s.patience = s.validity / 5
	s.drain = max(s.leader.Validity, validity)
	return s
}

// logging is what Run logs to. A process whose user has set no Logger still says what is wrong.
func logging(l *zap.Logger, s *slog.Logger) *zap.Logger {
	switch {
	case l != nil:
	case s != nil:
		l = sink.FromSlog(s.Handler())
	default:
		l = sink.Warnings()
	}
	return sink.Logger(l)
}
