package writer

import "errors"

// life is how far a writer is from its end. It only goes on:
//
//   - A writer that lives takes appends, and sends them.
//   - One that is shut takes no more. What waits is still sent.
//   - One that is halted sends nothing more. What is in flight goes on until its outcome is known, or
//     until its requests are cancelled.
//
// Close shuts a writer; an answer that ends the epoch halts it; [Writer.Until] and the end of Close's context
// halt it and cancel its requests. life sends nothing and knows no time: testdata/life has its scripts. It is
// guarded by Writer.mu.
type life struct {
	err     error  // why it was shut, nil while it lives: see Writer.Err
	stop    error  // why it was halted
	closing bool   // Close was called
	void    uint64 // the first slot that can never be part of the history, 0 if none is known
	failed  error  // of the appends that were not acknowledged; ErrUnknown before all others
}

// shut reports whether the writer lived until now. A successor is news also to one that was closed or had
// failed.
func (l *life) shut(err error) (first bool) {
	first = l.err == nil
	if first || !superseded(l.err) && superseded(err) {
		l.err = err
	}
	return first
}

// halt is called after shut. It reports whether the writer has sent until now.
func (l *life) halt(err error) (first bool) {
	if l.stop != nil {
		return false
	}
	l.stop = err
	return true
}

// voidFrom notes that a slot and all after it can never be part of the history; 0 says nothing.
func (l *life) voidFrom(slot uint64) {
	if slot > 0 && (l.void == 0 || slot < l.void) {
		l.void = slot
	}
}

// fail notes the outcome of an append that was not acknowledged.
func (l *life) fail(err error) {
	if l.failed == nil || errors.Is(err, ErrUnknown) {
		l.failed = err
	}
}

// superseded reports whether err says that the log has a successor. The cause of a context that
// ended the writer may be the ErrFenced of another role, such as a compactor's.
func superseded(err error) bool { return errors.Is(err, ErrFenced) && !errors.Is(err, ErrClosed) }
