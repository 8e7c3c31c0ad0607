package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/test/s3stub"
)

// requests counts the requests per commit, at the server.
func requests(ctx context.Context, r *report) error {
	return with(ctx, func(e *endpoint) error {
		const commits, size = 2000, 4 << 10
		opts := pipeline(16, size)
		opts.Hedge = -1 // 5 % more at most, counted by latency
		w, err := e.open(ctx, opts)
		if err != nil {
			return err
		}
		e.delays.set(s3stub.Fixed(2 * time.Millisecond))
		if err := appendAll(ctx, w, size, commits); err != nil {
			return err
		}
		data, other := 0, 0
		var kinds []string
		for op, n := range e.Counts() {
			if op == s3stub.PutObject {
				data = n
				continue
			}
			other += n
			kinds = append(kinds, fmt.Sprintf("%d %s", n, op))
		}
		r.add(
			Row{Name: "PUT requests per commit", Value: float64(data) / commits, Goal: 1, Ratio: true},
			Row{Name: "GET, HEAD, LIST requests per commit", Value: float64(other) / commits, Goal: 0, Ratio: true, Note: strings.Join(kinds, ", ")},
		)
		return nil
	})
}
