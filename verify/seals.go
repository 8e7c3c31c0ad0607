package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// danger is what a missing seal means.
const danger = "a leader of epoch %d that slept until now could write there, and be told that its records are safe"

// again is how a seal is repaired.
const again = "create the seal again, from what the manifest says; look for lifecycle rules and people that delete below the log"

// seals checks that every epoch before the floor still has its seal. No seal is ever
// deleted, so each one that the manifest names must be there.
func (v *verifier) seals(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		return err
	}
	var due []state.Seal
	v.undue = map[string]state.Seal{}
	for s, err := range v.log.Seals(ctx, v.m) {
		if err != nil && unreadable(err) {
			return nil // a list, which lists reports
		}
		if err != nil {
			return err
		}
		if key := layout.DataKey(s.Position); v.opts.due(key) {
			due = append(due, s)
		} else {
			v.undue[key] = s
		}
	}
	return v.checkSeals(ctx, due)
}

// listedSeal takes a seal that this part does not read for sound, if the listing has it with the size of a seal.
func (v *verifier) listedSeal(info store.Info) {
	if info.Size == frame.HeaderSize {
		delete(v.undue, info.Key)
	}
}

// unlistedSeals reads the seals that this part would not have read, but the listing lacks.
func (v *verifier) unlistedSeals(ctx context.Context) error {
	return v.checkSeals(ctx, slices.SortedFunc(maps.Values(v.undue), func(a, b state.Seal) int { return bySlot(a.Position, b.Position) }))
}

func (v *verifier) checkSeals(ctx context.Context, known []state.Seal) error {
	errs, err := each(ctx, len(known), func(ctx context.Context, i int) error { return v.seal(ctx, known[i]) }, func(n int) {
		v.opts.Hooks.Progress(Progress{Stage: "seals", Done: int64(n), Total: int64(len(known))})
	})
	if err != nil {
		return err
	}
	for i, s := range known {
		key, what := layout.DataKey(s.Position), fmt.Sprintf(danger, s.Position.Epoch)
		switch err := errs[i]; {
		case err == nil:
			v.report.Seals++
		case errors.Is(err, store.ErrNotFound):
			v.repairable(ctx, key, repair{again, func(ctx context.Context) error { return v.reseal(ctx, s) }},
				"the seal that ended epoch %d is missing: %s", s.Position.Epoch, what)
		default:
			v.repairable(ctx, key, repair{again, func(ctx context.Context) error { return v.reseal(ctx, s) }},
				"it is not the seal that ended epoch %d: %s; %s", s.Position.Epoch, about(key, err), what)
		}
	}
	return nil
}

// seal compares a slot with the seal that the manifest names there.
func (v *verifier) seal(ctx context.Context, s state.Seal) error {
	h, err := v.header(ctx, s.Position)
	switch {
	case err != nil:
		return err
	case h.Kind != frame.Seal:
		return fmt.Errorf("%w: it is %v", fence.ErrCorrupt, h.Kind)
	case h.Nonce != s.Nonce || h.Next != s.Next:
		return fmt.Errorf("%w: it is another seal, to epoch %d with nonce %v; the manifest names one to epoch %d with nonce %v", fence.ErrCorrupt, h.Next, h.Nonce, s.Next, s.Nonce)
	}
	return nil
}
