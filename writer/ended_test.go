package writer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// ending is what Hooks.Ended is told of one writer.
type ending struct {
	*env
	*writer.Writer

	opts writer.Options

	mu                      sync.Mutex
	ends                    []writer.Ending
	opened                  bool
	acknowledged, published int // objects and checkpoints that were told before
}

func (x *ending) told() []writer.Ending {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.ends)
}

// watch opens a writer, as "a" in epoch 1, whose ending is watched.
func (e *env) watch(opts *writer.Options) *ending {
	e.Helper()
	x := &ending{env: e}
	x.opts = *options(opts)
	x.opts.Hooks = writer.Hooks{
		Opened: func(writer.Opening) {
			synctest.Wait() // whatever can happen now has happened
			x.mu.Lock()
			defer x.mu.Unlock()
			x.opened = true
		},
		Acknowledged: func(writer.Acknowledgement) { x.early("an acknowledgement", &x.acknowledged) },
		Checkpoint:   func(writer.Checkpoint) { x.early("a checkpoint", &x.published) },
		Ended: func(end writer.Ending) {
			x.mu.Lock()
			defer x.mu.Unlock()
			if !x.opened {
				x.Error("the end was told before the opening")
			}
			if x.Writer != nil && !errors.Is(x.Err(), end.Err) { // it would hang if a lock were held
				x.Errorf("told %v while Err is %v", end.Err, x.Err())
			}
			x.ends = append(x.ends, end)
		},
	}
	x.Writer = e.open("a", 1, &x.opts)
	return x
}

// early counts what must not be told after the end.
func (x *ending) early(what string, n *int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if *n++; len(x.ends) > 0 {
		x.Errorf("%s was told after the end", what)
	}
}

// none fails the test if the hook was called already.
func (x *ending) none() {
	x.Helper()
	synctest.Wait()
	if told := x.told(); len(told) > 0 {
		x.Fatalf("told %+v too early", told)
	}
}

// once wants the hook to have been called once, with what Err says, which is want. It also
// closes the writer, which must not call the hook again.
func (x *ending) once(want error, lasted time.Duration) {
	x.Helper()
	synctest.Wait()
	for _, when := range []string{"at the end", "after Close"} {
		if told := x.told(); len(told) != 1 {
			x.Fatalf("%s: told %+v", when, told)
		}
		_ = x.Close(x.Context())
	}
	got := x.told()[0]
	if got.Epoch != 1 || !errors.Is(got.Err, want) || fmt.Sprint(got.Err) != fmt.Sprint(x.Err()) || got.Lasted != lasted {
		x.Errorf("told %+v, want %v after %v; Err is %v", got, want, lasted, x.Err())
	}
	if by := (*fence.FencedError)(nil); errors.Is(want, writer.ErrFenced) && (!errors.As(got.Err, &by) || by.By != 2) {
		x.Errorf("told %v, which does not name epoch 2", got.Err)
	}
}

// Each way in which a writer ends is told once, when nothing changes any more, and not before.
func TestEndedIsTold(t *testing.T) {
	for name, f := range map[string]func(e *env){
		"closed": func(e *env) {
			x := e.watch(nil)
			e.append(x.Writer, "0")
			time.Sleep(time.Minute)
			x.none()
			if err := x.Close(e.Context()); err != nil {
				e.Error(err)
			}
			if len(x.told()) != 1 || x.acknowledged != 1 || x.published != 2 {
				e.Errorf("when Close has returned, told %d times, after %d acknowledgements and %d checkpoints", len(x.told()), x.acknowledged, x.published)
			}
			x.once(writer.ErrClosed, time.Minute)
		},
		"closed, and nothing was appended": func(e *env) {
			x := e.watch(nil)
			time.Sleep(time.Hour) // it rests
			x.none()
			_ = x.Close(e.Context())
			x.once(writer.ErrClosed, time.Hour)
		},
		"fenced by an append": func(e *env) {
			x := e.watch(nil)
			e.open("b", 2, nil)
			x.none()
			time.Sleep(time.Second)
			e.outcomes(e.several(x.Writer, "0"), "not")
			x.once(writer.ErrFenced, time.Second) // although nobody has closed it
		},
		"fenced by a checkpoint": func(e *env) {
			x := e.watch(&writer.Options{Checkpoint: time.Minute})
			e.append(x.Writer, "0")
			e.open("b", 2, nil)
			time.Sleep(59 * time.Second)
			x.none()
			time.Sleep(time.Second)
			x.once(writer.ErrFenced, time.Minute)
		},
		"fenced, and never learnt of it": func(e *env) {
			x := e.watch(nil)
			e.open("b", 2, nil)
			time.Sleep(24 * time.Hour)
			x.none()
			_ = x.Close(e.Context())
			x.once(writer.ErrClosed, 24*time.Hour)
		},
		"fenced while it closes": func(e *env) {
			x := e.watch(nil)
			release := e.hold("a", faultstore.Put, layout.DataPrefix)
			e.async(x.Writer, "0")
			closed := make(chan error)
			go func() { closed <- x.Close(e.Context()) }()
			x.none() // Err is ErrClosed, and that is not the last word
			e.seal(at(1, 1), 2)
			release()
			if err := <-closed; !errors.Is(err, writer.ErrFenced) {
				e.Errorf("Close: %v", err)
			}
			x.once(writer.ErrFenced, 0)
		},
		"fenced by its last checkpoint": func(e *env) {
			x := e.watch(nil)
			e.append(x.Writer, "0")
			e.open("b", 2, nil)
			if err := x.Close(e.Context()); err != nil {
				e.Errorf("Close: %v", err)
			}
			x.once(writer.ErrFenced, 0)
		},
		"the context of Close ends": func(e *env) {
			x := e.watch(nil)
			e.hold("a", faultstore.Put, layout.DataPrefix)
			e.async(x.Writer, "0")
			ctx, cancel := context.WithTimeout(e.Context(), time.Minute)
			defer cancel()
			time.Sleep(time.Second)
			if err := x.Close(ctx); kind(err) != "unknown" {
				e.Errorf("Close: %v", err)
			}
			x.once(writer.ErrClosed, time.Minute)
		},
		"a compactor's successor ends Close's context, twice": func(e *env) {
			x := e.watch(nil)
			ctx, cancel := context.WithCancelCause(e.Context())
			if err := x.Close(e.Context()); err != nil {
				e.Error(err)
			}
			cancel(&fence.FencedError{Role: "compactor", Epoch: 3, By: 9})
			_ = x.Close(ctx)
			if err := x.Err(); errors.Is(err, writer.ErrFenced) {
				e.Errorf("Err is %v after the end", err)
			}
			x.once(writer.ErrClosed, 0)
		},
		"the term ends": func(e *env) {
			over := errors.New("term over")
			until, cancel := context.WithCancelCause(e.Context())
			x := e.watch(nil)
			x.Until(until)
			e.hold("a", faultstore.Put, layout.DataPrefix)
			f := e.async(x.Writer, "0")
			time.Sleep(time.Second)
			x.none()
			cancel(over)
			<-f.Done()
			x.once(over, time.Second)
			if !errors.Is(x.told()[0].Err, writer.ErrClosed) {
				e.Errorf("told %v", x.told()[0].Err)
			}
		},
		"the term ends while the writer rests": func(e *env) {
			over := errors.New("term over")
			until, cancel := context.WithCancelCause(e.Context())
			x := e.watch(nil)
			x.Until(until)
			time.Sleep(time.Hour)
			cancel(over)
			x.once(over, time.Hour)
		},
		"the term was over before": func(e *env) {
			over := errors.New("term over")
			until, cancel := context.WithCancelCause(e.Context())
			cancel(over)
			x := e.watch(nil)
			x.Until(until)
			x.once(over, 0)
		},
		"the store refuses": func(e *env) {
			x := e.watch(nil)
			e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataPrefix, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
			e.outcomes(e.several(x.Writer, "0"), "not")
			x.once(store.ErrDenied, 0)
		},
		"the store refuses, and a successor is met after that": func(e *env) {
			x := e.watch(single)
			release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
			e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, 2)), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
			fs := e.several(x.Writer, "0", "1")
			x.none()
			if !errors.Is(x.Err(), store.ErrDenied) {
				e.Fatalf("Err is %v", x.Err())
			}
			e.seal(at(1, 1), 2)
			release()
			e.outcomes(fs, "not", "not")
			x.once(writer.ErrFenced, 0)
		},
	} {
		t.Run(name, bubbled(func(_ *testing.T, e *env) { f(e) }))
	}
}

// Of an opening that fails Opened tells, and Ended does not.
func TestNoEndWithoutAnOpening(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.open("b", 2, nil)
		hooks := writer.Hooks{Ended: func(end writer.Ending) { t.Errorf("told %+v", end) }}
		if _, err := e.try("a", 1, &writer.Options{Hooks: hooks}); !errors.Is(err, writer.ErrFenced) {
			t.Error(err)
		}
	})
}
