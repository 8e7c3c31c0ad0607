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
	bounded   func() bool // --requests-per-minute was given
}

func (a *app) watching(c *cobra.Command) *watching {
	w := &watching{app: a}
	const flag = "requests-per-minute"
	countVar(c.Flags(), &w.perMinute, flag, 12, "most requests to the store in a minute, for all URLs together")
	w.bounded = func() bool { return c.Flags().Changed(flag) }
	return w
}

// hub opens the stores and returns a hub that watches them, or looks at them once.
func (w *watching) hub(ctx context.Context, urls []string, once bool) (*outside.Hub, error) {
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
	if once && !w.bounded() {
		w.perMinute = 0
	}
	return outside.New(targets, &outside.Options{PerMinute: w.perMinute, Once: once}), nil
}
