package verify

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost/fence"
)

// names are what the newest manifest names, also in the pages of its lists.
type names struct {
	keys  map[string]bool // of segments, pages, and what waits to be deleted
	seals map[fence.Epoch]fence.Position
}

// pages reads all pages that the newest manifest names, and reports each one that is damaged.
func (v *verifier) pages(ctx context.Context) error {
	for {
		was, pages := v.m.Version, v.log.Pages(v.m)
		errs, err := each(ctx, len(pages), func(ctx context.Context, i int) error { return pages[i].Check(ctx) }, func(int) {})
		if err != nil {
			return err
		}
		if slices.IndexFunc(errs, func(err error) bool { return err != nil }) >= 0 {
			// A newer manifest may have replaced the page.
			if err := v.refresh(ctx); err != nil {
				return err
			}
			if v.m.Version != was {
				continue
			}
		}
		for i, p := range pages {
			if errs[i] == nil {
				continue
			}
			if err := v.badPage(ctx, p, errs[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// lists reads the lists of the newest manifest. It returns nil if one is damaged, which
// pages reports: then nobody can tell what is named.
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
