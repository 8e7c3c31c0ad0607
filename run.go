package fencepost

import (
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
// Run returns:
//
//   - nil if work returned nil and everything that it appended is in the history;
//   - work's error if work failed while the term lasted;
//   - the reason if work returned nil and an append failed for another reason than
//     the loss of the term;
//   - ctx's cause if ctx ended, with what the store has answered if it did not work, and with
//     what failed meanwhile: work, or an append that work did not wait for;
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
	fenced := 0 // terms in a row that ended by a fenced writer and not by the election
	for {
		e, err := leader.New(st, LockPrefix, &s.leader)
		if err != nil {
			return &fieldError{"Leader", err} // the store sets limits too
		}
		r := &run{settings: s, st: st, work: work}
		r.promised.Store(int64(s.clock.Now()))
		err = r.contend(ctx, e)
		// A lock of this name that is found later is that of another live process.
		s.leader.Reclaim = false
		switch {
		case r.finished:
			return nil
		case ctx.Err() != nil:
			if waited, ok := errors.AsType[*outage.Error](err); ok && r.session == nil {
				return waited // the store did not work
			}
			if r.failed != nil {
				return fmt.Errorf("%w, and besides: %w", context.Cause(ctx), r.failed)
			}
			return context.Cause(ctx)
		case errors.Is(err, leader.ErrLost), errors.Is(err, writer.ErrFenced), r.lost:
			if errors.Is(err, writer.ErrFenced) && !errors.Is(err, leader.ErrLost) {
				fenced++
			} else {
				fenced = 0
			}
			s.again(err, fenced)
		case err == nil: // work has stopped because it resigned
			if r.failed != nil {
				s.logger.Warn("what was appended last may be missing in the log", zap.Error(r.failed))
			}
			s.logger.Info("resigned; contending again")
		default:
			return err
		}
		if by, ok := errors.AsType[*fence.FencedError](err); ok {
			// The log may know later epochs than the election, because the lock objects
			// were lost or a token came from elsewhere. The election continues after
			// them. Otherwise the writer of every new term would be fenced at once.
			// After the greatest number the election says that there is no room.
			s.leader.MinEpoch = max(s.leader.MinEpoch, min(uint64(by.By), math.MaxUint64-1)+1)
		}
		if err := clock.Sleep(ctx, s.clock, max(minPause, r.standBack())); err != nil {
			return err
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
func (s *settings) again(err error, fenced int) {
	switch {
	case fenced > 1:
		s.logger.Warn("the writer was fenced although this process held the lock: does something else open epochs of this log, work itself perhaps? contending again",
			zap.Int("terms_in_a_row", fenced), zap.Error(err))
		return
	case errors.Is(err, leader.ErrLost), errors.Is(err, writer.ErrFenced):
		s.logger.Info("contending again")
		return
	}
	s.logger.Warn("the log could not be opened; contending again", zap.Error(err))
}

// minPause keeps a candidate that is fenced at each opening from spinning.
const minPause = 100 * time.Millisecond

// run is one term.
type run struct {
	settings
	st   store.Store
	work func(ctx context.Context, s *Session) error

	session  *Session     // nil until the writer is open
	promised atomic.Int64 // of the session's Checks
	finished bool         // work is done and everything it appended is in the history
	lost     bool         // the term was lost, the writer was fenced, or its opening may succeed later
	failed   error        // of the work, or of closing the writer, unless that has only obeyed the end of the term
}

// standBack is how long this process must wait after Resign before it contends again. Other
// candidates read the lock once in a heartbeat interval until they see the announcement.
func (r *run) standBack() time.Duration {
	if r.session == nil {
		return 0
	}
	at := r.session.resigned.Load()
	if at == nil {
		return 0
	}
	return at.Add(r.renew).Sub(r.clock.Now())
}

// contend waits for a term and calls the work. The elector has a goroutine of its own, so
// that it frees the lock when a successor is to be expected, and the work goes on until
// that one seals the log. Otherwise the lock is freed after the work.
func (r *run) contend(ctx context.Context, e *leader.Elector) (err error) {
	terms, worked, ended := make(chan *leader.Term, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		held := errHook // if a hook of the election ends this goroutine
		defer func() { ended <- held }()
		held = e.Run(ctx, func(ctx context.Context, t *leader.Term) error {
			terms <- t
			select {
			case <-worked: // and the writer is closed
			case <-ctx.Done():
				r.keep(context.Cause(ctx), worked)
			}
			return context.Cause(ctx)
		})
	}()
	select {
	case t := <-terms:
		var over bool
		free := sync.OnceFunc(func() {
			over = t.Context().Err() != nil
			close(worked)
		})
		defer func() { // also if work panics or ends its goroutine
			free()
			held := <-ended
			stopped := err == nil || errors.Is(err, context.Canceled) || errors.Is(err, leader.ErrLost) || errors.Is(err, writer.ErrFenced)
			if _, ends := errors.AsType[*leader.TermError](err); !stopped && !ends && r.session != nil && !errors.Is(err, context.Cause(ctx)) {
				r.failed = err
			}
			switch {
			case !over:
			case stopped:
				err = held
			case errors.Is(held, leader.ErrLost):
				err = fmt.Errorf("%w; the work: %w", held, err)
			}
		}()
		return r.term(t, free)
	case err := <-ended:
		return err
	}
}

// keep waits for the work to return, unless a successor is to be expected. Then it waits only
// as long as the session's Checks have promised.
//
// guard:check-kept. A leader that ends its term early, with a candidate close, keeps its lock
// until its work has returned. It does not wait longer than Session.Check has promised. Without
// this wait: A's work gets nil from Check(5s), and begins an effect that takes 4 s; A is told to
// end, and its lock is released at once; candidate B leads, gets nil from Check(5s), and does
// the same effect beside A.
//
//mutant:replace clock.Instant(r.promised.Load()).Sub(r.clock.Now()) => time.Duration(0)
func (r *run) keep(over error, worked <-chan struct{}) {
	if !followed(over) {
		<-worked
		return
	}
	left := clock.Instant(r.promised.Load()).Sub(r.clock.Now())
	ctx, cancel := clock.WithTimeout(context.Background(), r.clock, max(left, 0), errSuccessor)
	defer cancel()
	select {
	case <-worked:
	case <-ctx.Done():
	}
}

// term opens the log, calls the work, and closes the writer. It calls free as soon as the lock
// may be freed.
func (r *run) term(t *leader.Term, free func()) error {
	// The writer may go on after the term: until its successor seals the log, and until its
	// appends are settled. A term that is lost without a successor cuts it off.
	until, cut := context.WithCancelCause(context.WithoutCancel(t.Context()))
	defer cut(nil)
	stop := context.AfterFunc(t.Context(), func() {
		if over := context.Cause(t.Context()); !errors.Is(over, leader.ErrResigned) && !errors.Is(over, leader.ErrDeposed) {
			cut(over)
		}
	})
	defer stop()
	opts := r.writer
	opts.Until = until
	opened := vouch(t.Context(), r.clock, r.leader.StallAfter, t.Progress)
	w, err := writer.Open(t.Context(), r.st, t.Token(), &opts)
	opened()
	if err != nil {
		r.lost = errors.Is(err, writer.ErrFenced) || t.Context().Err() != nil || passing(err)
		return err
	}
	r.session = &Session{Writer: w, term: t, clock: r.clock, promised: &r.promised, most: r.validity}
	err = r.lead(until, t, cut)
	defer vouch(until, r.clock, r.leader.StallAfter, t.Progress)()
	drain, cancel := clock.WithTimeout(until, r.clock, r.drain, errDrain)
	defer cancel()
	closed := closing(drain, w, err == nil, free)
	if err == nil && closed == nil {
		r.finished = true
		return nil
	}
	r.lost = until.Err() != nil
	if !r.lost && !errors.Is(closed, writer.ErrFenced) {
		r.failed = closed
	}
	if err == nil {
		err = closed
	}
	for _, why := range []error{w.Err(), closed} {
		if errors.Is(why, writer.ErrFenced) && !errors.Is(context.Cause(t.Context()), leader.ErrResigned) {
			r.lost, err = true, why // this error names the epoch that fenced it
		}
	}
	return err
}

// closing closes the writer. If the work is done, it calls free as soon as all that was appended is in the
// history. What Close does besides, such as to note the tail for the successor, takes three requests
// and more: nobody has to wait for it. The writer takes no more appends before that, also not from
// a goroutine that has outlived the work: the successor's seal would stop them, and Close would fail.
func closing(ctx context.Context, w *writer.Writer, done bool, free func()) (err error) {
	var closing sync.WaitGroup
	closing.Go(func() { err = w.Close(ctx) })
	<-w.Done()
	if done && w.Flush(ctx) == nil {
		free()
	}
	closing.Wait()
	return err
}

// vouch calls progress now, when it is stopped, and twice in each stall until then, unless
// stall is 0: while the writer opens and closes, the work cannot call Progress, and StallAfter
// must not end what it holds. No call is under way once stop has returned.
func vouch(ctx context.Context, clk clock.Clock, stall time.Duration, progress func()) (stop func()) {
	progress()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	if every := stall / 2; every > 0 {
		running.Go(func() {
			for clock.Sleep(ctx, clk, every) == nil {
				progress()
			}
		})
	}
	return func() {
		cancel()
		running.Wait()
		progress()
	}
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

// lead calls the work, with a context that ends when the writer fails, or the term is over
// and no successor needs to be waited for.
func (r *run) lead(ctx context.Context, t *leader.Term, cut context.CancelCauseFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() {
		select {
		case <-r.session.Done():
			// The work may close the writer and go on.
			err := r.session.Err()
			switch over := context.Cause(t.Context()); {
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
		case <-t.Context().Done():
			over := context.Cause(t.Context())
			r.linger(ctx, over)
			// If the work has returned meanwhile, what it appended is settled first: see term.
			if ctx.Err() == nil && !errors.Is(over, leader.ErrResigned) {
				cut(over)
			}
			cancel(over)
		case <-ctx.Done():
		}
	})
	defer func() {
		r.session.close()
		cancel(nil)
		watchers.Wait()
	}()
	return r.work(ctx, r.session)
}

// followed reports whether another process is about to open the log after a term that ended
// like this.
func followed(over error) bool {
	term, ok := errors.AsType[*leader.TermError](over)
	// Its cause may be the end of another election's term, which says nothing of this one.
	return ok && (term.Successor != "" || errors.Is(term.Kind, leader.ErrDeposed))
}

// linger waits until the successor's writer is open, if one is to be expected.
func (r *run) linger(ctx context.Context, over error) {
	if !followed(over) {
		return
	}
	ctx, cancel := clock.WithTimeout(ctx, r.clock, r.patience, errSuccessor)
	defer cancel()
	log := state.With(r.st, r.session.Format(), &state.Options{Settle: r.writer.Settle, Clock: r.clock})
	for clock.Sleep(ctx, r.clock, r.patience/16) == nil {
		m, err := log.Newest(ctx)
		if err == nil && m.Roles[layout.Writer].Epoch > r.session.Epoch() {
			return
		}
	}
}
