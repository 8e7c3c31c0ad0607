package main

import (
	"context"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
)

// publisher opens a publisher of the tables of all partitions' logs: together they are one Delta table.
// A log that is not there yet is published when it comes.
func publisher(ctx context.Context, logs, table store.Store, partitions int, opts *delta.Options) (*delta.Publisher, error) {
	var sources []delta.Source
	for p := range partitions {
		log, err := group.PartitionStore(logs, p)
		if err != nil {
			return nil, err
		}
		sources = append(sources, delta.Source{Log: log})
	}
	return delta.Open(ctx, table, sources, opts)
}
