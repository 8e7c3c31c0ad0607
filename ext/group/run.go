package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/writer"
)

// RunOptions are the options of [Run]. The zero value joins a group that exists, and so does nil.
type RunOptions struct {
	// Group configures the membership.
	Group *Options
	// Writer configures the writer of each partition's log. MaxBytes and Concurrency are for each log.
	Writer *writer.Options
	// Opens is how many logs are opened at once, 1 to 1,024, default 16. Of the others the next is the one whose
	// partition has been without an owner for longest.
	Opens int
	// Contact is how long Run tries to reach the store before its first request is answered.
	// Then it returns store.ErrUnreachable. Default 0: until ctx ends. Every 5 s the log says
	// what Run waits for.
	Contact time.Duration
	// Logger also serves the group and the writers if they have no Logger of their own. Default:
	// warnings and errors go to slog.Default, as in fencepost.Options.
	Logger *zap.Logger
}

// Validate returns all faults of the options, each an [ErrOptions], or nil. Run calls it before its
// first request. It does no I/O. nil is valid.
func (o *RunOptions) Validate() error {
	if o == nil {
		return nil
	}
	var all faults
	all.add("Group", o.Group.Validate())
	all.add("Writer", o.Writer.Validate())
	if o.Opens < 0 || o.Opens > 1024 {
		all.add("Opens", fmt.Errorf("%d must be 1 to 1024", o.Opens))
	}
	if o.Contact < 0 {
		all.add("Contact", fmt.Errorf("%v must not be negative", o.Contact))
	}
	return errors.Join(all...)
}

// Session is one ownership of a partition of a group: an open writer of the partition's log,
// and the ownership that it writes under. [Run] passes one to each call of the work. It is safe
// for concurrent use.
type Session struct {
	*writer.Writer
	// Partition has the number and the token, and Check for side effects outside the log.
	Partition *Partition
}

// Run makes this process a member of the group in st, and calls work for each partition that it owns, with an
// open writer of the partition's log. If the session is lost, Run ends the contexts of all work, waits
// for it to return, and joins again. So work is called many times, each time where the
// history of the log ends, and never twice at once for one partition. After each call Run
// flushes and closes the writer, and then gives the partition free. The group has probed
// the store for all logs. When that is 30 days ago, or the probe has another version, Run probes once before it makes a log.
//
// If work, or the opening of its log, fails, it is called again, later each time. After three failures another
// member tries: see [Group.Run]. So one damaged log does not stop the others. Work that returns nil is
// done until the partition comes back another time.
//
// When ctx ends, the member leaves in good order: the work on each partition goes on until its new
// owner is ready, and only then its context ends. Run returns
//
//   - nil if ctx ended, or somebody has drained this member: see [Drain];
//   - ctx's cause with the reason, or [ErrLeft] with it if somebody has drained this member, if the outcome of an
//     append was unknown then, or one failed for which work that returned nil did not wait;
//   - an [ErrOptions] at once, before any request, if the options are wrong, or work or st is nil;
//   - ErrHung if some work did not return in time after its context had ended. It still
//     runs, and a later call of Run in this process waits for it;
//   - the error of the group if it will not pass, such as store.ErrDenied.
func Run(ctx context.Context, st store.Store, opts *RunOptions, work func(ctx context.Context, s *Session) error) error {
	faults := []error{opts.Validate()}
	if work == nil {
		faults = append(faults, fmt.Errorf("%w: work is nil: pass the function that Run is to call", ErrOptions))
	}
	if store.IsNil(st) {
		faults = append(faults, fmt.Errorf("%w: the store is nil: open one with store.Open", ErrOptions))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	r := newRunning(st, opts, work)
	r.told = ctx.Done()
	if err := r.reach(ctx, cmp.Or(opts, &RunOptions{}).Contact); err != nil {
		return err
	}
	err := memberships(ctx, r.clock, r.logger, func() error {
		g, err := Join(ctx, st, &r.group)
		if err != nil {
			return err
		}
		if report := g.Probe(); report.Current(r.clock.Wall()) {
			r.probed.Store(report)
		}
		return g.Run(ctx, r.partition)
	})
	if owed := r.owed.Load(); err == nil && owed != nil {
		err = fmt.Errorf("%w, and not all that was appended is in the logs: %w", cmp.Or(context.Cause(ctx), ErrLeft), *owed)
	}
	return err
}

// memberships joins a group, and again when the session is lost.
func memberships(ctx context.Context, c clock.Clock, logger *zap.Logger, membership func() error) error {
	for {
		err := membership()
		switch {
		case err == nil, errors.Is(err, ErrHung):
			return err
		case ctx.Err() != nil:
			return nil //nolint:nilerr // ctx has ended, which is no failure
		case final(err):
			return err
		}
		logger.Info("joining again", zap.Error(err))
		if clock.Sleep(ctx, c, minPause) != nil {
			return nil //nolint:nilerr // likewise
		}
	}
}

// final tells whether a group's error will not pass.
func final(err error) bool {
	for _, kind := range []error{ErrOptions, ErrNoGroup, probe.ErrRefused, fence.ErrCorrupt, fence.ErrFormat} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return store.Permanent(err)
}

// minPause is between two sessions.
const minPause = 100 * time.Millisecond

// running is one call of Run.
type running struct {
	st     store.Store // slows down when the store asks for it
	work   func(ctx context.Context, s *Session) error
	group  Options
	writer writer.Options
	logger *zap.Logger
	clock  clock.Clock
	drain  time.Duration
	opens  turns
	probed atomic.Pointer[probe.Report] // the newest that is known
	// probing is held by the one that probes the store for all, since no report counts any more.
	probing chan struct{}
	opened  sync.Map // numbers of partitions whose logs exist
	// first is held by the log that is opened first, if there is a second store for files:
	// it probes that store for all.
	first      chan struct{}
	filesKnown atomic.Bool
	told       <-chan struct{}       // closed when Run is told to end
	owed       atomic.Pointer[error] // why not all that was appended is in a log, although this member leaves; one of them
}

func newRunning(st store.Store, opts *RunOptions, work func(ctx context.Context, s *Session) error) *running {
	v := *cmp.Or(opts, &RunOptions{})
	r := &running{
		work: work, logger: v.Logger, group: *cmp.Or(v.Group, &Options{}), writer: *cmp.Or(v.Writer, &writer.Options{}),
		opens: turns{free: cmp.Or(v.Opens, 16)}, first: make(chan struct{}, 1), probing: make(chan struct{}, 1),
	}
	if r.logger == nil {
		r.logger = sink.Warnings()
	}
	r.logger = sink.Logger(r.logger)
	r.filesKnown.Store(store.IsNil(r.writer.Files))
	r.group.Logger = cmp.Or(r.group.Logger, r.logger.Named("group"))
	r.writer.Logger = cmp.Or(r.writer.Logger, r.logger.Named("writer"))
	r.clock = clock.Or(r.group.Clock)
	r.writer.Clock = cmp.Or(r.writer.Clock, r.clock)
	r.st = &calm{Store: st, clock: r.clock}
	const validity = 15 * time.Second
	// The group waits for the work, and the closing is a part of it.
	r.drain = cmp.Or(r.group.Drain, r.group.Validity, validity) * 3 / 4
	return r
}

// reach waits until the store answers, for patience at most; 0 is for ever. Without it the first sign of a wrong address
// would be a group that never answers.
func (r *running) reach(ctx context.Context, patience time.Duration) error {
	if patience == 0 {
		patience = -1
	}
	return contact.Reach(ctx, r.st, FormatKey, &contact.Options{Timeout: patience, Clock: r.clock, Waiting: func(w contact.Waiting) {
		fields := []zap.Field{zap.String("store", w.Store), zap.Duration("for", w.For.Round(time.Millisecond))}
		if w.Left > 0 {
			fields = append(fields, zap.Duration("giving_up_in", w.Left.Round(time.Millisecond)))
		}
		if w.Err != nil {
			fields = append(fields, zap.String("error", contact.Brief(w.Err)))
		}
		r.logger.Warn("waiting for the store", fields...)
	}})
}

// partition is the work that the group calls.
func (r *running) partition(ctx context.Context, p *Partition) error {
	// An owner that gives its partition up may settle its appends. One that has lost it is cut off.
	until, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); lost(cause) {
			cut(cause)
		}
	})
	defer stop()
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	opened := r.vouch(p)
	w, err := r.openInTurn(ctx, until, p, end)
	opened()
	if err != nil {
		return err
	}
	err = r.work(working, &Session{Writer: w, Partition: p})
	end(nil)
	defer r.vouch(p)()
	drain, cancel := clock.WithTimeout(until, r.clock, r.drain, errDrain)
	defer cancel()
	closed := w.Close(drain)
	// Nobody calls the work again here, to see what is missing.
	if r.leaves(p) && closed != nil && (err == nil || !errors.Is(closed, writer.ErrNotCommitted)) {
		owed := fmt.Errorf("partition %d: %w", p.Number(), closed)
		r.owed.CompareAndSwap(nil, &owed)
	}
	if err == nil || errors.Is(err, context.Cause(ctx)) || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = cmp.Or(closed, err)
	}
	return err
}

// leaves reports whether Run is told to end, or somebody drains this member.
func (r *running) leaves(p *Partition) bool {
	select {
	case <-r.told: // also if the session was lost meanwhile
		return true
	default:
		return p.g.leaving()
	}
}

// vouch says for the work that all is well while a log is opened or closed, until stop is called: the store may be
// slow, and that is no stall.
func (r *running) vouch(p *Partition) (stop func()) {
	p.Progress()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	if every := r.group.StallAfter / 2; every > 0 {
		all.Go(func() {
			for clock.Sleep(ctx, r.clock, every) == nil {
				p.Progress()
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		p.Progress()
	}
}

// lost tells whether an ownership ended against its owner's will.
func lost(cause error) bool {
	for _, kind := range []error{ErrMoved, ErrLeft, ErrStalled} {
		if errors.Is(cause, kind) {
			return false
		}
	}
	return true
}

// openInTurn opens the log of a partition, when it is its turn.
func (r *running) openInTurn(ctx, until context.Context, p *Partition, end context.CancelCauseFunc) (w *writer.Writer, err error) {
	if err := r.opens.take(ctx, p.Number(), r.clock.Now().Add(-p.Idle())); err != nil {
		return nil, err
	}
	defer r.opens.give()
	// In a goroutine of its own: the stack of an opening is deep, and that of a goroutine that lives on would stay so
	// for long. There may be thousands.
	done := make(chan struct{})
	err = errHook // if a hook of the writer ends this goroutine
	go func() {
		defer close(done)
		w, err = r.open(ctx, until, p, end)
	}()
	<-done
	return w, err
}

// open opens the log of a partition. Its writer calls end when it has failed. A goroutine for each writer that waits
// for its Done would take memory: there may be thousands.
func (r *running) open(ctx, until context.Context, p *Partition, end context.CancelCauseFunc) (*writer.Writer, error) {
	st, err := PartitionStore(r.st, p.Number())
	if err != nil {
		return nil, err
	}
	opts := r.writer
	opts.Hooks.Ended = func(e writer.Ending) {
		if !errors.Is(e.Err, writer.ErrClosed) { // the work may close the writer and go on
			end(fmt.Errorf("group: %w", e.Err))
		}
		if also := r.writer.Hooks.Ended; also != nil {
			also(e)
		}
	}
	init := *cmp.Or(opts.Init, &manifest.InitOptions{})
	init.Clock = cmp.Or(init.Clock, r.clock)
	if init.Probed, err = r.probe(ctx, st, p.Number(), &init); err != nil {
		return nil, err
	}
	opts.Init = &init
	if !r.filesKnown.Load() {
		select {
		case r.first <- struct{}{}:
			defer func() { <-r.first }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	w, err := writer.Open(ctx, st, p.Token(), &opts)
	if err == nil {
		w.Until(until)
		r.filesKnown.Store(true)
		r.opened.Store(p.Number(), true)
	}
	return w, err
}

// probe returns a report that counts, for the log of a partition that may have to be made. That is
// the one of the options, or of the group. If neither counts any more, the first new log probes the
// store for all.
func (r *running) probe(ctx context.Context, st store.Store, partition int, o *manifest.InitOptions) (*probe.Report, error) {
	current := func() *probe.Report {
		for _, report := range []*probe.Report{o.Probed, r.probed.Load()} {
			if report.Current(r.clock.Wall()) {
				return report
			}
		}
		return nil
	}
	if _, known := r.opened.Load(partition); known {
		return current(), nil
	}
	if report := current(); report != nil {
		return report, nil
	}
	_, err := manifest.ReadFormat(ctx, st, cmp.Or(o.Settle, r.writer.Settle))
	if !errors.Is(err, manifest.ErrNotInitialized) {
		return nil, nil //nolint:nilnil // there is a log, so nobody probes; the writer says what is wrong with it
	}
	select {
	case r.probing <- struct{}{}:
		defer func() { <-r.probing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if report := current(); report != nil {
		return report, nil
	}
	report, err := probe.Run(ctx, st, o.Probe)
	if err != nil {
		return nil, err
	}
	r.probed.Store(report)
	return report, nil
}
