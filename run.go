package fencepost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
	_ "github.com/fencepost/fencepost/store/dirstore" // file://
	_ "github.com/fencepost/fencepost/store/memstore" // mem://
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store" // s3://
	"github.com/fencepost/fencepost/writer"
)

// LockPrefix begins the keys of the election's lock objects: "lock/". Pass it to
// leader.New to take part in the election without [Run], or to observe it.
const LockPrefix = layout.LockPrefix

// Run waits until this process leads the log in st, opens a writer, and calls work.
// If the term is lost, Run ends work's context, waits for work to return, and contends
// again. So work may be called several times, one at a time. Each call begins where the
// history ends: see writer.Recovered. While Run waits, Leader.Hooks.Leader tells who
// leads instead, and the Logger gets a line for each leader. After each call Run flushes and
// closes the writer; work may close the writer itself.
//
// If ctx ends, Run hands over: the work goes on until another process has taken over the
// log, as after [Session.Resign]. If no other process waits, work's context ends at once.
// Let a second signal end the process: call the stop function of signal.NotifyContext when
// ctx is done. If work returns by itself, nobody appends until another process has read the
// lock: Options.Leader.Poll, at most 500 ms by default. To avoid that gap, call Resign some seconds
// before the end, and work on while Check(0) returns nil.
//
// Run returns nil if it is done:
//
//   - work returned nil and everything that it appended is in the history;
//   - ctx ended, and work obeyed: it returned the end of its context, or an append that the
//     successor's seal has stopped; or it never led.
//
// Otherwise it returns:
//
//   - work's error if work failed while the term lasted;
//   - the reason if work returned nil and an append failed for another reason than
//     the loss of the term;
//   - ctx's cause, with the reason, if ctx ended while something failed: work, an append whose outcome
//     is unknown or that work did not wait for, or the store, which did not answer. Or before work that had
//     returned nil, and not all of whose appends are in the history, was called again;
//   - an [ErrOptions] at once, before any request, if the options are wrong, or work or
//     st is nil;
//   - the error of the election or of the opening if it will not pass, such as
//     store.ErrDenied.
//
// Run contends again after [Session.Resign], and after a failure of the store during the
// opening that may pass. After a lost term or a fenced writer it contends again, whatever error
// work returned, and also if work returned nil and not all that it appended is in the history.
func Run(ctx context.Context, st store.Store, opts *Options, work func(ctx context.Context, s *Session) error) error {
	// All faults are found now and not when an epoch has been won, hours later.
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
	s := opts.settings(st.Traits())
	stop, err := s.compact(ctx, st)
	if err != nil {
		return err
	}
	defer stop()
	if err := reach(ctx, st, layout.FormatKey, s.contact, s.clock, s.logger); err != nil {
		return err
	}
	// Before an election leaves its lock there. The writer reads the format again: all other errors are its.
	switch f, err := manifest.ReadFormat(ctx, st, s.writer.Settle); {
	case errors.Is(err, manifest.ErrRestoring):
		return err
	case err == nil && f.Backup:
		return fmt.Errorf("%w: %s", manifest.ErrBackup, st.Traits().Name)
	}
	fenced := 0     // terms in a row that ended by a fenced writer and not by the election
	var owed result // of the last round that called the work
	for {
		e, err := leader.New(st, LockPrefix, &s.leader)
		if err != nil {
			return &fieldError{"Leader", err} // the store sets limits too
		}
		l := &leadership{settings: &s, st: st, work: work, elector: e, freed: make(chan struct{}), held: make(chan error, 1)}
		end := l.run(ctx)
		if l.session != nil {
			owed = l.result
		} else if !end.again && end.err == nil {
			return owed.never(ctx)
		}
		if !end.again {
			return end.err
		}
		// A lock of this name that is found later is that of another live process.
		s.leader.Reclaim = false
		if errors.Is(end.err, writer.ErrFenced) && !errors.Is(end.err, leader.ErrLost) {
			fenced++
		} else {
			fenced = 0
		}
		s.again(end, fenced)
		if by, ok := errors.AsType[*fence.FencedError](end.err); ok {
			// The log may know later epochs than the election, because the lock objects
			// were lost or a token came from elsewhere. The election continues after
			// them. Otherwise the writer of every new term would be fenced at once.
			// After the greatest number the election says that there is no room.
			s.leader.MinEpoch = max(s.leader.MinEpoch, min(by.By, math.MaxUint64-1)+1)
		}
		if clock.Sleep(ctx, s.clock, max(minPause, l.standBack())) != nil {
			return owed.never(ctx)
		}
	}
}

// reach waits until the store answers, for patience at most; 0 is for ever. Without it the first sign
// of a wrong address would be an election, or a group, that never answers.
func reach(ctx context.Context, st store.Store, key string, patience time.Duration, c clock.Clock, logger *zap.Logger) error {
	if patience == 0 {
		patience = -1
	}
	return contact.Reach(ctx, st, key, &contact.Options{Timeout: patience, Clock: c, Waiting: func(w contact.Waiting) {
		fields := []zap.Field{zap.String("store", w.Store), zap.Duration("for", w.For.Round(time.Millisecond))}
		if w.Left > 0 {
			fields = append(fields, zap.Duration("giving_up_in", w.Left.Round(time.Millisecond)))
		}
		if w.Err != nil {
			fields = append(fields, zap.String("error", contact.Brief(w.Err)))
		}
		logger.Warn("waiting for the store", fields...)
	}})
}

// compact runs the compactor until stop is called or ctx ends. If it ends by itself, the log
// is written all the same.
func (s *settings) compact(ctx context.Context, st store.Store) (stop func(), err error) {
	if s.compactor == nil {
		return func() {}, nil
	}
	c, err := compactor.New(st, s.compactor)
	if err != nil {
		return nil, &fieldError{"Compactor", err}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Run(ctx); ctx.Err() == nil {
			s.logger.Error("nothing is compacted any more; the log is written all the same", zap.Error(err))
		}
	}()
	return func() {
		cancel()
		<-ended
	}, nil
}

// again says that Run contends again. The election, or the writer, has logged already how a
// term ended. Without this line, a process that writes past the election would keep Run
// going round silently.
func (s *settings) again(end ending, fenced int) {
	switch {
	case end.err == nil:
		if end.failed != nil {
			s.logger.Warn("what was appended last may be missing in the log", zap.Error(end.failed))
		}
		s.logger.Info("resigned; contending again")
	case fenced > 1:
		s.logger.Warn("the writer was fenced although this process held the lock: does something else open epochs of this log, work itself perhaps? contending again",
			zap.Int("terms_in_a_row", fenced), zap.Error(end.err))
	case errors.Is(end.err, leader.ErrLost), errors.Is(end.err, writer.ErrFenced):
		s.logger.Info("contending again")
	default:
		s.logger.Warn("the log could not be opened; contending again", zap.Error(end.err))
	}
}

// minPause keeps a candidate that is fenced at each opening from spinning.
const minPause = 100 * time.Millisecond

// leadership is one round of Run. It goes through these states, each a method:
//
//	contend   waits until the election is won
//	open      takes the log over, and opens the writer
//	lead      calls the work
//	handOver  if the term ends during the work: lets the work go on until the successor has the log
//	close     settles what was appended, frees the lock, and closes the writer
//
// It has two goroutines. The election's is hold: it owns the lock until the lock may be freed. Run's own
// owns the writer and goes through the states. What they leave behind is a result. Nothing but
// result.ending decides what Run does next.
type leadership struct {
	settings *settings
	st       store.Store
	work     func(ctx context.Context, s *Session) error
	elector  *leader.Elector

	freed chan struct{} // closed when the lock may be freed
	held  chan error    // gets what the election says when the lock is free

	term     *leader.Term            // since contend
	until    context.Context         //nolint:containedctx // the writer's life, since contend
	cut      context.CancelCauseFunc // ends until
	session  *Session                // since open
	promised atomic.Int64            // until when the session's Checks have promised the term
	result   result
}

// run goes through the states.
func (l *leadership) run(ctx context.Context) (end ending) {
	l.promised.Store(int64(l.settings.clock.Now()))
	if err := l.contend(ctx); err != nil {
		l.result.contended = err
		return l.result.ending(ctx)
	}
	defer func() { // also if work panics or ends its goroutine
		l.free()
		l.result.held = <-l.held
		end = l.result.ending(ctx)
	}()
	// The writer may go on after the term: until its successor seals the log, and until its
	// appends are settled. A term that is lost without a successor cuts it off.
	l.until, l.cut = context.WithCancelCause(context.WithoutCancel(l.term.Context()))
	defer l.cut(nil)
	defer context.AfterFunc(l.term.Context(), func() {
		if over := context.Cause(l.term.Context()); !errors.Is(over, leader.ErrResigned) && !errors.Is(over, leader.ErrDeposed) {
			l.cut(over)
		}
	})()
	if l.result.opened = l.open(); l.result.opened == nil {
		l.result.worked = l.lead()
		l.close()
	}
	l.result.term, l.result.cut = context.Cause(l.term.Context()), l.until.Err() != nil
	return end
}

// contend waits until this process leads. From then on hold keeps the lock until free is called.
func (l *leadership) contend(ctx context.Context) error {
	terms := make(chan *leader.Term, 1)
	go func() {
		held := errHook // if a hook of the election ends this goroutine
		defer func() { l.held <- held }()
		held = l.elector.Run(ctx, func(ctx context.Context, t *leader.Term) error {
			terms <- t
			l.hold(ctx)
			return context.Cause(ctx)
		})
	}()
	select {
	case l.term = <-terms:
		return nil
	case err := <-l.held:
		return cmp.Or(err, context.Cause(ctx)) // nil: ctx has ended first
	}
}

// hold keeps the lock until it may be freed. If a successor is to be expected, it keeps the lock only
// as long as the session's Checks have promised.
//
// guard:check-kept. A leader that ends its term early, with a candidate close, keeps its lock until its work has
// returned, but no longer than Session.Check has promised.
//
//mutant:replace clock.Instant(l.promised.Load()).Sub(l.settings.clock.Now()) => time.Duration(0)
func (l *leadership) hold(term context.Context) {
	select {
	case <-l.freed:
		return
	case <-term.Done():
	}
	if !followed(context.Cause(term)) {
		<-l.freed
		return
	}
	left := clock.Instant(l.promised.Load()).Sub(l.settings.clock.Now())
	ctx, cancel := clock.WithTimeout(context.Background(), l.settings.clock, max(left, 0), errSuccessor)
	defer cancel()
	select {
	case <-l.freed:
	case <-ctx.Done():
	}
}

// free lets hold free the lock. Only Run's goroutine calls it.
func (l *leadership) free() {
	select {
	case <-l.freed:
	default:
		l.result.late = l.term.Context().Err() != nil
		close(l.freed)
	}
}

// followed reports whether another process is about to open the log after a term that ended
// like this.
func followed(over error) bool {
	term, ok := errors.AsType[*leader.TermError](over)
	// Its cause may be the end of another election's term, which says nothing of this one.
	return ok && (term.Successor != "" || errors.Is(term.Kind, leader.ErrDeposed))
}

// open takes the log over, and opens the writer.
func (l *leadership) open() error {
	defer l.vouch(l.term.Context())()
	w, err := writer.Open(l.term.Context(), l.st, l.term.Token(), &l.settings.writer)
	if err != nil {
		return err
	}
	w.Until(l.until)
	l.session = &Session{Writer: w, term: l.term, clock: l.settings.clock, promised: &l.promised, most: l.settings.validity}
	return nil
}

// lead calls the work, with a context that ends when the writer fails, or when the term is over
// and handed over.
func (l *leadership) lead() error {
	ctx, cancel := context.WithCancelCause(l.until)
	var watchers sync.WaitGroup
	watchers.Go(func() {
		select {
		case <-l.session.Done():
			// The work may close the writer and go on.
			err := l.session.Err()
			switch over := context.Cause(l.term.Context()); {
			case errors.Is(err, writer.ErrClosed):
			case over != nil:
				cancel(fmt.Errorf("fencepost: %w: %w", over, err))
			default:
				cancel(fmt.Errorf("fencepost: %w", err))
			}
		case <-ctx.Done():
		}
	})
	watchers.Go(func() {
		select {
		case <-l.term.Context().Done():
			cancel(l.handOver(ctx))
		case <-ctx.Done():
		}
	})
	defer func() {
		l.session.close()
		cancel(nil)
		watchers.Wait()
	}()
	return l.work(ctx, l.session)
}

// handOver lets the work go on until the successor's writer is open, if a successor is to be expected. It
// returns why the term is over. ctx ends when the work has returned.
func (l *leadership) handOver(ctx context.Context) error {
	over := context.Cause(l.term.Context())
	if followed(over) {
		wait, cancel := clock.WithTimeout(ctx, l.settings.clock, l.settings.patience, errSuccessor)
		defer cancel()
		log := state.With(l.st, l.session.Format(), &state.Options{Settle: l.settings.writer.Settle, Clock: l.settings.clock})
		for clock.Sleep(wait, l.settings.clock, l.settings.patience/16) == nil {
			m, err := log.Newest(wait)
			if err == nil && m.Roles[layout.Writer].Epoch > l.session.Epoch() {
				break
			}
		}
	}
	// If the work has returned meanwhile, close settles first what it appended.
	if ctx.Err() == nil && !errors.Is(over, leader.ErrResigned) {
		l.cut(over)
	}
	return over
}

// close settles what was appended, and closes the writer. If the work is done, the lock is free as soon
// as all that was appended is in the history. What Close does besides, such as to note the tail for the
// successor, takes three requests and more: nobody has to wait for it. The writer takes no more appends
// before that, also not from a goroutine that has outlived the work: the successor's seal would
// stop them, and Close would fail.
func (l *leadership) close() {
	defer l.vouch(l.until)()
	ctx, cancel := clock.WithTimeout(l.until, l.settings.clock, l.settings.drain, errDrain)
	defer cancel()
	w := l.session.Writer
	var closing sync.WaitGroup
	closing.Go(func() { l.result.closed = w.Close(ctx) })
	<-w.Done()
	if l.result.worked == nil && w.Flush(ctx) == nil {
		l.free()
	}
	closing.Wait()
	l.result.writer = w.Err()
}

// vouch tells the election of progress now, when it is stopped, and twice in each StallAfter until then:
// while the writer opens and closes, the work cannot call Progress, and StallAfter
// must not end what it holds. No call is under way once stop has returned.
func (l *leadership) vouch(ctx context.Context) (stop func()) {
	l.term.Progress()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	if every := l.settings.leader.StallAfter / 2; every > 0 {
		running.Go(func() {
			for clock.Sleep(ctx, l.settings.clock, every) == nil {
				l.term.Progress()
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
		l.term.Progress()
	}
}

// standBack is how long this process must wait after Resign before it contends again. Other
// candidates read the lock once in a heartbeat interval until they see the announcement.
func (l *leadership) standBack() time.Duration {
	if l.session == nil {
		return 0
	}
	at := l.session.resigned.Load()
	if at == nil {
		return 0
	}
	return at.Add(l.settings.renew).Sub(l.settings.clock.Now())
}

// result is what a leadership leaves behind.
type result struct {
	contended error // why the election was not won
	opened    error // why the writer was not opened
	worked    error // what the work returned
	closed    error // why not all that was appended is in the history
	writer    error // why the writer took no more appends
	cut       bool  // the writer was cut off: the term was lost, and no successor was expected
	term      error // why the term was over after that; nil if it lasted
	late      bool  // the term was over before the lock was freed
	held      error // what the election said of the term
}

// ending is what Run does after a leadership.
type ending struct {
	again  bool  // contend again
	err    error // why; if Run does not contend again, what it returns
	failed error // of the work or of closing the writer, unless that only followed the term's end
}

// ending decides what Run does next. ctx is Run's.
func (r *result) ending(ctx context.Context) ending {
	var e ending
	fenced := func(err error) bool { return errors.Is(err, writer.ErrFenced) }
	lost := r.cut // so what the work says is not the reason to return
	switch {
	case r.contended != nil:
		e.err = r.contended
	case r.opened != nil:
		e.err, lost = r.opened, r.term != nil || passing(r.opened)
	case r.worked == nil && r.closed == nil:
		return ending{}
	default:
		if !lost && !fenced(r.closed) {
			e.failed = r.closed
		}
		if e.err = r.worked; e.err == nil {
			e.err = r.closed
		}
		for _, why := range []error{r.writer, r.closed} {
			if fenced(why) && !errors.Is(r.term, leader.ErrResigned) {
				lost, e.err = true, why // this error names the epoch that fenced it
			}
		}
	}
	cause := context.Cause(ctx)
	stopped := e.err == nil || errors.Is(e.err, context.Canceled) || errors.Is(e.err, leader.ErrLost) || fenced(e.err)
	if _, over := errors.AsType[*leader.TermError](e.err); !stopped && !over && !errors.Is(e.err, cause) && (r.opened == nil || !passing(e.err)) {
		e.failed = e.err
	}
	if r.late {
		switch {
		case stopped:
			e.err = r.held
		case errors.Is(r.held, leader.ErrLost):
			e.err = fmt.Errorf("%w; the work: %w", r.held, e.err)
		}
	}
	if cause != nil {
		return ending{err: r.stopped(cause, e)}
	}
	e.again = e.err == nil || lost || errors.Is(e.err, leader.ErrLost) || fenced(e.err)
	return e
}

// stopped is what Run returns after its ctx has ended, with this cause.
func (r *result) stopped(cause error, e ending) error {
	waited, ok := errors.AsType[*outage.Error](e.err)
	switch {
	case ok && (r.contended != nil || r.opened != nil):
		return waited // the store did not work
	case e.failed != nil:
		return fmt.Errorf("%w, and besides: %w", cause, e.failed)
	case r.closed != nil && (r.worked == nil || !errors.Is(r.closed, writer.ErrNotCommitted)):
		return missing(cause, r.closed)
	}
	return nil
}

func missing(cause, reason error) error {
	return fmt.Errorf("%w, and not all that was appended is in the log: %w", cause, reason)
}

// never is what Run returns if its ctx has ended, and the work of this last round is not called again.
//
// guard:run-owed. Work that says that it is done, and is not, is called again; if it is not, Run does not return nil.
//
//mutant:replace r.worked == nil && r.closed != nil => false
func (r *result) never(ctx context.Context) error {
	if r.worked == nil && r.closed != nil {
		return missing(context.Cause(ctx), r.closed)
	}
	return nil
}

// passing tells whether err is a failure of the store that may pass. The token is
// spent all the same, so another term has to open the writer.
func passing(err error) bool {
	if errors.Is(err, probe.ErrRefused) {
		return false // the store broke a promise, whatever error it answered with
	}
	var answer *store.Error
	return errors.Is(err, store.ErrUnknown) || errors.As(err, &answer) && answer.Kind == nil
}
