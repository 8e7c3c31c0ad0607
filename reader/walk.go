package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
)

// walk delivers what is on the chain from a point on, and waits at the tail.
func (c *cursor) walk(ctx context.Context, at frame.Point) error {
	c.at = at
	chain := c.chain
	news := c.opts.Clock.Now()  // when something came last
	var doubtful fence.Position // was absent although the manifest says that it was written
	for {
		found := 0
		for step, err := range chain.Walk(ctx, c.at) {
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, fence.ErrLimit) {
					return err
				}
				// Junk that a zombie left in a pruned hole, or damage.
				if overtaken := c.overtaken(ctx, step.From); overtaken != nil {
					return overtaken
				}
				return fmt.Errorf("reader: %w; run `fencepost verify` to see the extent", err)
			}
			if step.Frame.Kind == frame.Seal {
				// guard:read-junk-seal. A seal counts only if the floor has not passed it: in a pruned
				// hole it is a zombie opener's junk and leads nowhere.
				if err := c.overtaken(ctx, step.From); err != nil {
					return err
				}
			}
			if err := c.take(step.Frame); err != nil {
				return err
			}
			c.at, news = step.To, c.opts.Clock.Now()
			found++
		}
		// While objects come quickly, as many are asked for at once as came last time,
		// and one more: one by one a reader would fall behind.
		chain.First = max(found+1, chain.First/2)
		asked := 1
		grace := time.Duration(c.log.Format().Grace)
		// guard:read-absent. Absent: the tail, unless it was pruned. A complete read asks the manifest
		// once; a tailing one asks often enough to notice within the grace period.
		//
		//mutant:replace c.overtaken(ctx, c.at) => c.refresh(ctx)
		if !c.follow || doubtful == c.at.Position || c.opts.Clock.Now().Sub(c.refreshed) >= grace/2 {
			asked++
			if err := c.overtaken(ctx, c.at); err != nil {
				return err
			}
			// guard:read-missing. The hint of a manifest is behind acknowledged objects, so a
			// slot before it is not the tail. It may have been written since we looked: look
			// again. Absent a second time, and not overtaken by then either, it is lost.
			if c.at.Before(c.m.Tail()) {
				if doubtful == c.at.Position {
					return fmt.Errorf("reader: %w: %s is missing; manifest %d says that the log was acknowledged up to %v; run `fencepost verify` to see the extent",
						ErrCorrupt, layout.DataKey(c.at.Position), c.m.Version, c.m.Tail().Position)
				}
				doubtful = c.at.Position
				continue
			}
		}
		if !c.follow {
			return nil
		}
		if err := c.pause(ctx, c.opts.Clock.Now().Sub(news), asked); err != nil {
			return err
		}
	}
}

// overtaken reads the newest manifest and tells whether its floor has passed p.
func (c *cursor) overtaken(ctx context.Context, p frame.Point) error {
	if err := c.refresh(ctx); err != nil {
		return err
	}
	if c.m.Past(p.Position) {
		return errOvertaken
	}
	return nil
}

// calm is how many times longer the silence has lasted than the next pause.
const calm = 8

// pause waits before the next look at the tail: the longer, the longer nothing
// has come, and not at all if somebody calls Wake. So a record that ends a silence
// comes later by an eighth of it at most.
func (c *cursor) pause(ctx context.Context, silence time.Duration, asked int) error {
	d := min(max(silence/calm, c.opts.PollMin), c.opts.PollMax)
	tick := make(chan struct{})
	t := c.opts.Clock.AfterFunc(d*time.Duration(asked), func() { close(tick) })
	defer t.Stop()
	select {
	case <-tick:
	case <-c.wake:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
