package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// atOnce is how many small objects are read at the same time.
const atOnce = 16

// danger is what a missing seal means.
const danger = "a leader of epoch %d that slept until now could write there, and be told that its records are safe"

// seals checks that every epoch behind the floor still has its seal. A seal
// stays for ever, so whatever the manifest named once must be there now.
func (v *verifier) seals(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		if errors.Is(err, errNoManifest) {
			return nil
		}
		return err
	}
	var known []state.Seal
	for s, err := range v.log.Seals(ctx, v.m) {
		if errors.Is(err, state.ErrGone) || err != nil && damage(err) {
			return nil // of a list that lists tells about
		}
		if err != nil {
			return err
		}
		known = append(known, s)
	}
	errs := make([]error, len(known))
	var mu sync.Mutex
	done := 0
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, s := range known {
		g.Go(func() error {
			err := v.seal(gctx, s)
			if err != nil && !damage(err) {
				return err
			}
			errs[i] = err
			mu.Lock()
			defer mu.Unlock()
			done++
			v.opts.Progress(Progress{Stage: "seals", Done: int64(done), Total: int64(len(known))})
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, s := range known {
		what := fmt.Sprintf(danger, s.Position.Epoch)
		switch err := errs[i]; {
		case err == nil:
			v.report.Seals++
		case errors.Is(err, store.ErrNotFound):
			v.problem(layout.DataKey(s.Position), restore, "the seal that ended epoch %d is missing: %s", s.Position.Epoch, what)
		default:
			v.problem(layout.DataKey(s.Position), restore, "it is not the seal that ended epoch %d: %s; %s", s.Position.Epoch, about(layout.DataKey(s.Position), err), what)
		}
	}
	return nil
}

// seal compares a slot with the seal that the manifest remembers there.
func (v *verifier) seal(ctx context.Context, s state.Seal) error {
	h, err := v.header(ctx, s.Position)
	switch {
	case err != nil:
		return err
	case h.Kind != frame.Seal:
		return fmt.Errorf("%w: it is %v", fence.ErrCorrupt, h.Kind)
	case h.Nonce != s.Nonce || h.Next != s.Next:
		return fmt.Errorf("%w: it is another seal, to epoch %d with nonce %v; the manifest knows one to epoch %d with nonce %v", fence.ErrCorrupt, h.Next, h.Nonce, s.Next, s.Nonce)
	}
	return nil
}
