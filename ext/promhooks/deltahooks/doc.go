// Package deltahooks measures package delta for Prometheus, as promhooks measures the other parts
// of Fencepost:
//
//	m, err := deltahooks.New(registerer, nil)
//	p, err := delta.Open(ctx, table, sources, &delta.Options{Hooks: m.Publisher(delta.Hooks{})})
//
// It is a module of its own. So a program that measures a log does not link Parquet, and a program
// that publishes a table does not link Prometheus.
//
// Make one [Metrics] for each table. For several tables in a program give each a label, by
// prometheus.WrapRegistererWith. The metrics are listed in docs/metrics.md.
package deltahooks
