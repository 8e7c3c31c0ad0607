package cat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/reader"
)

// consumer keeps the position of cat. Without a name it does nothing.
type consumer struct {
	name  string
	epoch fence.Epoch // 0: the next one
	note  func(format string, args ...any)

	c    *reader.Consumer
	stop context.CancelCauseFunc // of cat
	done chan struct{}           // closed when nothing is written in the background any more

	wrote atomic.Uint64 // the buffer of standard output has all records before that offset

	mu        sync.Mutex
	next      uint64 // what is written to standard output ends there
	committed uint64
}

// commitEvery is how often the position is written while records come.
const commitEvery = time.Second

// open takes the position over. From is where to begin: it wins if the user has given it. The
// context that it returns ends when somebody else takes the position over.
func (c *consumer) open(ctx context.Context, r *reader.Reader, from *uint64) (context.Context, error) {
	if c.name == "" {
		return ctx, nil
	}
	var err error
	if c.epoch == 0 {
		c.c, err = r.TakeConsumer(ctx, c.name)
	} else {
		c.c, err = r.Consumer(ctx, c.name, fence.NewToken(c.epoch))
	}
	if err != nil {
		if errors.Is(err, reader.ErrOptions) {
			err = kit.Usage("%w", err)
		}
		return ctx, err
	}
	if next, ok := c.c.Next(); ok && *from == reader.Oldest {
		*from = next
	}
	ctx, c.stop = context.WithCancelCause(ctx)
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		for clock.Sleep(ctx, clock.System(), commitEvery) == nil {
			if err := c.commit(ctx); err != nil && !kit.Passing(err) { // later, or at the end
				c.stop(err)
			}
		}
	}()
	return ctx, nil
}

// flushing is called before standard output is flushed, and returns what to call after that.
func (c *consumer) flushing() (flushed func()) {
	next := c.wrote.Load() // a record that comes during the flush counts at the next one
	return func() { c.printed(next) }
}

// printed takes note that standard output has all records before an offset.
func (c *consumer) printed(next uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = max(c.next, next)
}

func (c *consumer) commit(ctx context.Context) error {
	c.mu.Lock()
	next, due := c.next, c.next != c.committed
	c.mu.Unlock()
	if !due {
		return nil
	}
	if err := c.c.Commit(ctx, next); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.committed = next
	return nil
}

// close writes the position at the end, also after a signal.
func (c *consumer) close(ctx context.Context, err error) error {
	if c.c == nil {
		return err
	}
	_, signalled := errors.AsType[*kit.InterruptedError](context.Cause(ctx))
	c.stop(nil)
	<-c.done
	if errors.Is(err, fence.ErrFenced) {
		return err
	}
	ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), clock.System(), 10*time.Second, errors.New("the store does not answer"))
	defer cancel()
	failed := c.commit(ctx)
	if failed != nil {
		failed = fmt.Errorf("the position of %s is not written: %w", c.name, failed)
		switch { // somebody must be told
		case signalled:
			c.note("%s", kit.Line(failed))
		case errors.Is(err, kit.ErrQuiet):
			return failed
		}
	}
	return errors.Join(err, failed)
}
