package leader

import "context"

// Callbacks in the manner of client-go's leaderelection. Each may be nil.
type Callbacks struct {
	// OnStarted runs the work. Its context is cancelled when the term is over.
	OnStarted func(ctx context.Context, t *Term)
	// OnStopped is called once, after OnStarted has returned, and only if it was
	// called. The lock is not yet released, unless the term was lost.
	OnStopped func()
	// OnNewLeader is called with the identity of each new leader that this
	// candidate learns of, its own included, one at a time and in order.
	OnNewLeader func(identity string)
}

// RunCallbacks campaigns, leads for one term and returns, as client-go's
// RunOrDie does; its error is that of [Elector.Run].
//
//	client-go            here
//	LeaseDuration        Options.Validity
//	RenewDeadline        Options.Validity − Options.Margin
//	RetryPeriod          Options.Renew
//	ReleaseOnCancel      always, unless Options.NoRelease
//	leaderTransitions    Record.Transitions
//
// What differs: OnStopped comes exactly once, and never to one who has not led;
// OnStarted has always returned before it; the lock is never free before that.
func RunCallbacks(ctx context.Context, e *Elector, cb Callbacks) error {
	last := ""
	news := func(rec Record) {
		if !rec.Leads() || cb.OnNewLeader == nil {
			return
		}
		if rec.Holder != last {
			last = rec.Holder
			cb.OnNewLeader(rec.Holder)
		}
	}
	// guard:stopped-once. It is called below, where only a leader comes by.
	//
	//mutant:replace return err => defer cb.OnStopped(); return err
	t, err := e.campaign(ctx, news)
	if err != nil {
		return err
	}
	return e.serve(ctx, t, func(ctx context.Context, t *Term) error {
		if cb.OnStopped != nil {
			defer cb.OnStopped()
		}
		if cb.OnStarted != nil {
			cb.OnStarted(ctx, t)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}
