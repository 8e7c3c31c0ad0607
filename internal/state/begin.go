package state

import (
	"context"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Begin initializes the log in st, if need be, and returns it with its newest manifest.
// It is manifest.Init and [Log.Newest] in one: it reads format.json while it lists the
// manifests, so that two requests take the time of one.
//
// If the log is being created now, the listing may predate it. That is harmless: the call
// might as well have come earlier.
func Begin(ctx context.Context, st store.Store, init *manifest.InitOptions, opts *Options) (*Log, *Manifest, error) {
	l := newLog(st, opts)
	early, cancel := context.WithCancel(ctx)
	var top store.Info
	var high uint64
	var failed error
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		top, high, failed = l.highest(early)
	}()
	f, err := manifest.Init(ctx, st, init)
	if err != nil {
		cancel() // nobody needs the listing
	}
	<-listed
	cancel()
	if err != nil {
		return nil, nil, err
	}
	l.format = f
	m, err := l.newest(ctx, 0, func(context.Context) (store.Info, uint64, error) { return top, high, failed })
	if err != nil {
		return nil, nil, err
	}
	return l, m, nil
}
