package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
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
	var known []manifest.Seal
	for s, err := range v.log.Seals(ctx, v.m) {
		if errors.Is(err, manifest.ErrGone) || err != nil && damage(err) {
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
			v.problem(s.Position.Key(), restore, "the seal that ended epoch %d is missing: %s", s.Position.Epoch, what)
		default:
			v.problem(s.Position.Key(), restore, "it is not the seal that ended epoch %d: %s; %s", s.Position.Epoch, about(s.Position.Key(), err), what)
		}
	}
	if len(known) > 0 && known[0].Position.Epoch > 0 {
		return v.forgotten(ctx, known[0].Position.Epoch)
	}
	return nil
}

// seal compares a slot with the seal that the manifest remembers there.
func (v *verifier) seal(ctx context.Context, s manifest.Seal) error {
	h, err := v.header(ctx, s.Position)
	switch {
	case err != nil:
		return err
	case h.Kind != fence.Seal:
		return fmt.Errorf("%w: it is %v", fence.ErrCorrupt, h.Kind)
	case h.Nonce != s.Nonce || h.Next != s.Next:
		return fmt.Errorf("%w: it is another seal, to epoch %d with nonce %v; the manifest knows one to epoch %d with nonce %v", fence.ErrCorrupt, h.Next, h.Nonce, s.Next, s.Nonce)
	}
	return nil
}

// forgotten checks the epochs before the first one whose seal the manifest
// remembers. Each that has left anything must have a seal, and the seals must
// lead from the beginning to that epoch. There may be junk seals beside them, so
// only a way that is missing altogether is certain damage.
func (v *verifier) forgotten(ctx context.Context, until fence.Epoch) error {
	slots := map[fence.Epoch][]fence.Position{}
	for info, err := range store.ListAll(ctx, v.st, fence.DataPrefix, nil, v.opts.Settle) {
		if err != nil {
			return err
		}
		if p, ok := fence.ParseKey(info.Key); ok && p.Epoch < until {
			have := slots[p.Epoch]
			// What is larger than a header is no seal, and waits to be pruned. Of seals
			// a few are enough.
			if info.Size == fence.HeaderSize && len(have) < 64 {
				have = append(have, p)
			}
			slots[p.Epoch] = have
		}
	}
	epochs := slices.Sorted(maps.Keys(slots))
	leads := make([][]fence.Epoch, len(epochs)) // where the seals of each lead
	done := 0
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, e := range epochs {
		g.Go(func() error {
			for _, p := range slots[e] {
				h, err := v.header(gctx, p)
				switch {
				case err == nil && h.Kind == fence.Seal:
					leads[i] = append(leads[i], h.Next)
				case err != nil && !damage(err):
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			done++
			v.opts.Progress(Progress{Stage: "seals", Done: int64(done), Total: int64(len(epochs))})
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	reached := map[fence.Epoch]bool{0: true}
	whole := true
	for i, e := range epochs {
		if len(leads[i]) == 0 {
			whole = false
			v.problem(fence.Position{Epoch: e, Seq: 1}.Key(), restore, "epoch %d has no seal any more, at this slot or behind it: "+danger, e, e)
			continue
		}
		v.report.Seals++
		for _, next := range leads[i] {
			reached[next] = reached[next] || reached[e]
		}
	}
	if reached[until] || !whole {
		return nil
	}
	for _, e := range slices.Sorted(maps.Keys(reached)) {
		if _, left := slots[e]; reached[e] && !left && e < until {
			v.problem(fence.Position{Epoch: e, Seq: 1}.Key(), restore, "nothing is left of epoch %d, not even its seal, at this slot or behind it: "+danger, e, e)
		}
	}
	return nil
}
