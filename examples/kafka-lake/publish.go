package main

import (
	"context"
	"errors"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/delta"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// publisher opens a publisher of the tables of all partitions' logs: together they are one Delta table.
// It waits until each log is there.
func publisher(ctx context.Context, logs, table store.Store, partitions int, opts *delta.Options) (*delta.Publisher, error) {
	var sources []delta.Source
	for p := range partitions {
		log, err := fencepost.PartitionStore(logs, p)
		if err != nil {
			return nil, err
		}
		sources = append(sources, delta.Source{Log: log})
	}
	for {
		p, err := delta.Open(ctx, table, sources, opts)
		if !errors.Is(err, manifest.ErrNotInitialized) {
			return p, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
