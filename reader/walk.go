package reader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
)

// walk delivers what is on the chain from a point on. At the tail it waits for more, if
// that is wanted.
func (s *stream) walk(ctx context.Context, at frame.Point) error {
	s.at, s.came = at, s.opts.Clock.Now()
	source := s.chain
	source.Few, source.Thrifty = s.few, true
	// guard:read-junk-seal. A stream delivers what comes after a seal only when a later reading of the
	// manifest shows that the floor has not passed the seal.
	//
	// One reading confirms all seals that were followed since the reading before: it checks the
	// first of them.
	//
	//mutant:replace Confirmed: true => Confirmed: false
	f := chain.Follower{Source: &source, Confirmed: true, Floor: func(ctx context.Context) (fence.Position, error) {
		err := s.refresh(ctx)
		if err != nil {
			return fence.Position{}, err
		}
		return s.m.Floor.Position, nil
	}}
	defer s.push.hush()
	var doubtful fence.Position // an absent slot that a hint says was written
	for {
		found, err := s.advance(ctx, &f)
		if err != nil {
			return err
		}
		// While objects come quickly, ask for as many at once as came last time and one more:
		// a stream that fetches them one by one falls further and further back.
		source.First = max(found+1, source.First/2)
		requests := 1
		idle := s.opts.Clock.Now().Sub(s.refreshed)
		// guard:read-absent. An absent slot is the tail only if the floor has not passed it.
		//
		//mutant:replace f.Tail(ctx, s.at.Position) => s.refresh(ctx)
		if !s.tail || doubtful == s.at.Position || idle >= s.log.Format().Grace/2 {
			requests++
			if err := f.Tail(ctx, s.at.Position); err != nil {
				return err
			}
			// guard:read-missing. A slot before the manifest's hint that is absent twice is damage, and
			// not the tail: it was acknowledged.
			if s.at.Before(s.m.Tail()) {
				if doubtful == s.at.Position {
					return damaged(fmt.Errorf("%w: %s is missing; manifest %d says that the log was acknowledged up to %v",
						ErrCorrupt, layout.DataKey(s.at.Position), s.m.Version, s.m.Tail().Position))
				}
				doubtful = s.at.Position
				continue
			}
		}
		if hook := s.opts.Hooks.Tail; hook != nil && s.told {
			hook(Tail{Position: s.at.Position, Offset: s.at.Offset})
		}
		if !s.tail {
			return nil
		}
		if err := s.wait(ctx, &f, s.pause(requests)); err != nil {
			return err
		}
	}
}

// advance delivers what is on the chain now, and counts the objects.
func (s *stream) advance(ctx context.Context, f *chain.Follower) (found int, err error) {
	for step, err := range f.Walk(ctx, s.at) {
		if errors.Is(err, chain.ErrDamaged) {
			err = fmt.Errorf("reader: %w", err)
		}
		if err == nil {
			err = s.deliver(step.Frame)
		}
		if err != nil {
			return found, err
		}
		s.at, s.came = step.To, s.opts.Clock.Now()
		found++
	}
	return found, nil
}

// calm is how many times longer the silence has lasted than the next pause.
const calm = 8

// pause is how long to wait before the next look at the tail, the longer the longer nothing has
// come: a record that ends a silence is late by at most an eighth of it.
func (s *stream) pause(requests int) time.Duration {
	silence := s.opts.Clock.Now().Sub(s.came)
	d := min(max(silence/calm, pollMin), s.opts.PollMax)
	return min(d, math.MaxInt64/time.Duration(requests)) * time.Duration(requests)
}
