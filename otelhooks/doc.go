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
//   - fencepost.append: an object of the log, from sending it to its acknowledgement. It has all
//     appends that shared the object.
//   - fencepost.publish: a checkpoint in the manifest.
//   - fencepost.fold and fencepost.pass: of the compactor.
//
// A hook is told when something has ended, so a span begins in the past, and it has no parent: an
// object has the appends of many callers. The attribute fencepost.epoch connects the spans of a
// term.
package otelhooks
