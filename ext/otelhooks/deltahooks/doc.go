// Package deltahooks traces package delta for OpenTelemetry, as otelhooks traces the other parts of
// Fencepost:
//
//	t := deltahooks.New(otel.GetTracerProvider())
//	p, err := delta.Open(ctx, table, sources, &delta.Options{Hooks: t.Publisher(delta.Hooks{})})
//
// It is a module of its own. So a program that traces a log does not link Parquet, and a program
// that publishes a table does not link OpenTelemetry.
//
// # Spans
//
// fencepost.delta.round is a round of the publisher that created a version, was overtaken by another
// publisher, or failed. It is the root of a trace. Rounds that found nothing to do have no span: there
// are up to ten in a second.
package deltahooks
