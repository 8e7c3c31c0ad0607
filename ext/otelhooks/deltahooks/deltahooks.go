package deltahooks

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
)

// Scope is the name of the tracer.
const Scope = "github.com/fencepost/fencepost/ext/otelhooks/deltahooks"

// Tracer traces publishers. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer that gives its spans to provider.
func New(provider trace.TracerProvider) *Tracer { return &Tracer{provider.Tracer(Scope)} }

// Publisher returns hooks for a publisher that trace and then call next.
func (t *Tracer) Publisher(next delta.Hooks) delta.Hooks {
	h := next
	h.Round = func(r delta.Round) {
		if r.Report.Versions > 0 || r.Report.Tries > 0 || r.Err != nil && !errors.Is(r.Err, context.Canceled) {
			t.round(&r)
		}
		if next.Round != nil {
			next.Round(r)
		}
	}
	return h
}

func (t *Tracer) round(r *delta.Round) {
	end := clock.System().Wall()
	_, span := t.tracer.Start(context.Background(), "fencepost.delta.round", trace.WithTimestamp(end.Add(-r.Took)))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.Int64("fencepost.delta.version", r.Report.Version),
			attribute.Int("fencepost.delta.versions", r.Report.Versions),
			attribute.Int("fencepost.delta.conflicts", r.Report.Tries),
			attribute.Int("fencepost.delta.files", r.Report.Files),
		)
		if r.Err != nil {
			span.RecordError(r.Err, trace.WithTimestamp(end))
			span.SetStatus(codes.Error, r.Err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
}
