// Package promhooks measures the parts of Fencepost for Prometheus. It fills in their hooks:
//
//	m, err := promhooks.New(registerer, nil)
//	st = m.Store(st)
//	opts := &fencepost.Options{
//		Leader: &leader.Options{Hooks: m.Leader("log", leader.Hooks{})},
//		Writer: &writer.Options{Hooks: m.Writer(writer.Hooks{})},
//	}
//
// Each method takes the hooks that the caller has already, and returns hooks that measure and
// then call those. There are no globals: metrics go to the Registerer that New was given.
// Package promhooks/deltahooks, a module of its own, measures package delta.
//
// # Several logs
//
// Make one [Metrics] for each log, with a label that names it:
//
//	m, err := promhooks.New(prometheus.WrapRegistererWith(prometheus.Labels{"log": "orders"}, reg), nil)
//
// The writers of a group's partitions may share one: what they count adds up.
//
// The lag of a reader counts from when its hooks were made, until it has read something. So make
// the hooks when the reader begins.
//
// # Cost
//
// A hook of the writer takes less than a microsecond and allocates nothing. The metrics are
// listed in docs/metrics.md.
package promhooks
