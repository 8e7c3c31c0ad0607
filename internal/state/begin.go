package state

import (
	"context"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Begin is [Init] and the first [Log.Newest] in one: format.json is read while the
// manifests are listed, so that two requests take the time of one. It returns the
// log and its newest manifest.
//
// The listing may be older than the log, if somebody creates it just now: that is
// what one sees who comes a little earlier.
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
		cancel() // the listing is of no use any more
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
