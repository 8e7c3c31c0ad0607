package fencepost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/dirstore" // file://
	_ "github.com/fencepost/fencepost/store/memstore" // mem://
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store" // s3://
	"github.com/fencepost/fencepost/writer"
)

// LockPrefix is where the election's lock files are, below the log's root.
const LockPrefix = "lock"

// Options of [Run]. The zero value works.
type Options struct {
	// Leader configures the election. The log's compactor prunes old locks; the leader
	// does so as well if Leader.Prune says how many to keep.
	Leader *leader.Options
	// Writer configures the writer. Its Until is set by Run.
	Writer *writer.Options
	// Logger is silent by default. It is the election's and the writer's too,
	// where they have none.
	Logger *zap.Logger
}

func (o *Options) withDefaults() (lo leader.Options, wo writer.Options, logger *zap.Logger) {
	logger = zap.NewNop()
	lo.NoPrune = true
	if o == nil {
		return lo, wo, logger
	}
	if o.Logger != nil {
		logger = o.Logger
	}
	if o.Leader != nil {
		lo = *o.Leader
		lo.NoPrune = lo.NoPrune || lo.Prune == leader.PruneOptions{}
	}
	if o.Writer != nil {
		wo = *o.Writer
	}
	if lo.Logger == nil {
		lo.Logger = logger.Named("leader")
	}
	if wo.Logger == nil {
		wo.Logger = logger.Named("writer")
	}
	return lo, wo, logger
}

// Run waits until this process leads the log in st, opens a writer, and calls
// work with it. When the term is lost it cancels work's context, waits for work
// to return, and contends again; so work may be called several times, one at a
// time, and each time it begins where the history ends: see
// writer.Writer.Recovered.
//
// It ends in one of these ways, and always resigns after work has returned:
//
//   - work returns nil and everything it appended is part of the history: nil.
//   - work returns an error while the term stands: that error.
//   - work returns nil, but something it appended failed for another reason than
//     the loss of the term: that reason.
//   - ctx ends: its cause.
//   - the options are wrong, or work is nil: that, at once and before any request.
//   - the election or the opening fails for good, such as store.ErrDenied: that
//     error.
//
// A term that was lost, a writer that was fenced, or a store that failed for a
// while as the writer was opened, is none of these: Run contends again. Run
// flushes and closes the writer; work may do so itself.
func Run(ctx context.Context, st store.Store, opts *Options, work func(ctx context.Context, w *writer.Writer) error) error {
	lo, wo, logger := opts.withDefaults()
	// Now, not when an epoch has been won for it, perhaps in the middle of the night.
	if work == nil {
		return errors.New("fencepost: there is no work: the function that Run is to call is nil")
	}
	if err := wo.Validate(); err != nil {
		return fmt.Errorf("fencepost: %w", err)
	}
	for {
		e, err := leader.New(st, LockPrefix, &lo)
		if err != nil {
			return err
		}
		r := &run{st: st, opts: wo, logger: logger, validity: lo.Validity, work: work}
		err = e.Run(ctx, r.term)
		switch {
		case r.finished:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, leader.ErrLost), errors.Is(err, writer.ErrFenced), r.lost:
			logger.Info("contending again", zap.Error(err))
		default:
			return err
		}
		var by *fence.FencedError
		if errors.As(err, &by) {
			// The log may know later epochs than the election, because tokens came
			// from elsewhere or the lock files were lost. The election goes on behind
			// them; otherwise every term would be fenced at once.
			lo.MinEpoch = max(lo.MinEpoch, uint64(by.By)+1)
		}
		if err := clock.Sleep(ctx, clock.Or(lo.Clock), pause); err != nil {
			return err
		}
	}
}

// pause keeps a candidate that is fenced each time it opens from spinning.
const pause = 100 * time.Millisecond

// run is one term.
type run struct {
	st       store.Store
	opts     writer.Options
	logger   *zap.Logger
	validity time.Duration
	work     func(ctx context.Context, w *writer.Writer) error

	finished bool // the work is done and all of it is part of the history
	lost     bool // the term was lost, the writer fenced, or not opened for now
}

func (r *run) term(ctx context.Context, t *leader.Term) error {
	// Leaving in good order, the lock is held until the writer is closed, so it may
	// drain. Only a term that is lost cuts the writer off.
	until, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, leader.ErrLost) && !errors.Is(cause, leader.ErrResigned) {
			cut(cause)
		}
	})
	defer stop()
	opts := r.opts
	opts.Until = until
	w, err := writer.Open(ctx, r.st, t.Token(), &opts)
	if err != nil {
		r.lost = errors.Is(err, writer.ErrFenced) || until.Err() != nil || passing(err)
		return err
	}
	err = r.lead(ctx, w)
	drain, cancel := clock.WithTimeout(until, clock.Or(r.opts.Clock), max(r.validity, 15*time.Second), errDrain)
	defer cancel()
	closed := w.Close(drain)
	if err == nil && closed == nil {
		r.finished = true
		return nil
	}
	r.lost = until.Err() != nil
	if err == nil {
		err = closed
	}
	for _, why := range []error{w.Err(), closed} {
		if errors.Is(why, writer.ErrFenced) {
			r.lost, err = true, why // it says by whom
		}
	}
	return err
}

// passing tells whether err is a failure of the store that may pass. The token is
// spent all the same, so another term has to open the writer.
func passing(err error) bool {
	if errors.Is(err, probe.ErrRefused) {
		return false // whatever the store answered as it broke its promise
	}
	var answer *store.Error
	return errors.Is(err, store.ErrUnknown) || errors.As(err, &answer) && answer.Kind == nil
}

var errDrain = errors.New("fencepost: what was appended could not be settled in time")

// lead calls the work, with a context that also ends when the writer fails.
func (r *run) lead(ctx context.Context, w *writer.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-w.Done():
			// Closing it is the work's right, and no reason to stop the work.
			if err := w.Err(); !errors.Is(err, writer.ErrClosed) {
				cancel(fmt.Errorf("fencepost: %w", err))
			}
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	return r.work(ctx, w)
}
