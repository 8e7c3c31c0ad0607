// Package otelhooks traces the parts of Fencepost for OpenTelemetry. It fills in their hooks, and
// uses only OpenTelemetry's API, so the program chooses the SDK and the exporter:
//
//	t := otelhooks.New(otel.GetTracerProvider())
//	opts := &fencepost.Options{
//		Leader: &leader.Options{Hooks: t.Leader(leader.Hooks{})},
//		Writer: &writer.Options{Hooks: t.Writer(writer.Hooks{})},
//	}
//
// Each method takes the hooks that the caller has already, and returns hooks that trace and then
// call those.
//
// # Spans
//
//   - fencepost.campaign: from the beginning of a campaign to the win.
//   - fencepost.term: from the win to the end of the term, with its cause.
//   - fencepost.open: the opening of an epoch, with what it read.
//   - fencepost.writer: from the opening until all outcomes of the writer were known. It is an
//     error if the writer was fenced or has failed, and not if it was closed.
//   - fencepost.append: an object of the log, from sending it to its acknowledgement. It has all
//     appends that shared the object.
//   - fencepost.publish: a checkpoint in the manifest.
//   - fencepost.fold and fencepost.pass: of the compactor.
//
// Package otelhooks/deltahooks, a module of its own, traces the publisher of a Delta table.
//
// A hook is told when something has ended, so a span begins in the past.
//
// # Parents
//
//   - A campaign is the root of a trace, with the opening, the writer and the term of the same epoch
//     as its children: how a process became the leader, and how that ended.
//   - A pass is the root of a trace, with its folds as its children.
//   - An append and a checkpoint are each the root of a trace, with a link to the opening of their
//     epoch. They are not its children: a term may last for weeks, and no trace should have a
//     million spans.
//
// An append has no parent in the trace of its caller, because an object has the appends of many
// callers, and hooks get no context. To see the wait of one caller, make a span around its Append.
//
// Spans find each other by their epochs. So make one [Tracer] for each log, and another one for an
// elector of the compactor. If two logs share a Tracer, as those of a group's partitions do, and
// have the same epoch, their spans have no parents and no links.
package otelhooks
