package verify

import (
	"context"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

// names are what the newest manifest names, also in the pages of its lists.
type names struct {
	keys  map[string]bool // of segments, pages, and what waits to be deleted
	seals map[fence.Epoch]fence.Position
}

// lists reads all lists of the newest manifest. It returns nil if one is damaged, which
// it reports: then nobody can tell what is named.
func (v *verifier) lists(ctx context.Context) (*names, error) {
	for {
		was := v.m.Version
		n, err := v.names(ctx)
		if err == nil {
			v.report.Lists = len(v.log.Lists(v.m))
			return n, nil
		}
		if !unreadable(err) {
			return nil, err
		}
		// A newer manifest may have replaced the list.
		if err := v.refresh(ctx); err != nil {
			return nil, err
		}
		if v.m.Version == was {
			v.problem(layout.ManifestKey(was), restore+"; "+keep, "a list that it names cannot be read: %s", about(layout.ManifestKey(was), err))
			return nil, nil
		}
	}
}

func (v *verifier) names(ctx context.Context) (*names, error) {
	n := names{keys: map[string]bool{}, seals: map[fence.Epoch]fence.Position{}}
	for s, err := range v.log.Segments(ctx, v.m, 0) {
		if err != nil {
			return nil, err
		}
		n.keys[s.Key] = true
	}
	for d, err := range v.log.Dropped(ctx, v.m) {
		if err != nil {
			return nil, err
		}
		n.keys[d.Key] = true
	}
	for s, err := range v.log.Seals(ctx, v.m) {
		if err != nil {
			return nil, err
		}
		n.seals[s.Position.Epoch] = s.Position
	}
	for _, key := range v.log.Lists(v.m) {
		n.keys[key] = true
	}
	return &n, nil
}
