package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
)

// watching is what serve, top and exporter have in common.
type watching struct {
	*app
	perMinute int
}

func (a *app) watching(c *cobra.Command) *watching {
	w := &watching{app: a}
	countVar(c.Flags(), &w.perMinute, "requests-per-minute", 12, "most requests to the store in a minute, for all URLs together")
	return w
}

// hub opens the stores and returns a hub that watches them.
func (w *watching) hub(ctx context.Context, urls []string) (*outside.Hub, error) {
	if w.perMinute > 6000 {
		return nil, usage("--requests-per-minute is %d; it must be at most 6000", w.perMinute)
	}
	var targets []outside.Target
	for i, url := range urls {
		if slices.Contains(urls[:i], url) {
			return nil, usage("the URL %s is given twice", url)
		}
		st, err := w.store(ctx, url, false)
		if err != nil {
			return nil, err
		}
		name := st.Traits().Name
		same := func(t outside.Target) bool { return t.URL == name }
		if slices.ContainsFunc(targets, same) {
			name += " at " + st.Traits().Endpoint
		}
		if slices.ContainsFunc(targets, same) {
			return nil, usage("%s is given twice", name)
		}
		targets = append(targets, outside.Target{URL: name, Store: unwatched(st)})
	}
	return outside.New(targets, &outside.Options{PerMinute: w.perMinute}), nil
}
