package otelhooks

import (
	"context"
	"errors"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/writer"
)

// Scope is the name of the tracer.
const Scope = "github.com/fencepost/fencepost/otelhooks"

// Tracer traces the parts of a log. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer that gives its spans to provider.
func New(provider trace.TracerProvider) *Tracer { return &Tracer{provider.Tracer(Scope)} }

// span records something that has just ended and took so long.
func (t *Tracer) span(name string, took time.Duration, err error, attrs ...attribute.KeyValue) {
	end := clock.System().Wall()
	_, span := t.tracer.Start(context.Background(), name, trace.WithTimestamp(end.Add(-took)), trace.WithNewRoot())
	if span.IsRecording() {
		span.SetAttributes(attrs...)
		if err != nil {
			span.RecordError(err, trace.WithTimestamp(end))
			span.SetStatus(codes.Error, err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
}

func number[T ~uint64 | ~int | ~int64](key string, n T) attribute.KeyValue {
	return attribute.Int64("fencepost."+key, int64(min(uint64(max(n, 0)), math.MaxInt64)))
}

func epoch(e fence.Epoch) attribute.KeyValue { return number("epoch", e) }

func position(p fence.Position) attribute.KeyValue {
	return attribute.String("fencepost.position", p.String())
}

// Leader returns hooks for an elector that trace and then call next.
func (t *Tracer) Leader(next leader.Hooks) leader.Hooks {
	h := next
	h.Elected = func(e leader.Election) {
		t.span("fencepost.campaign", e.Took, nil, epoch(e.Epoch))
		if next.Elected != nil {
			next.Elected(e)
		}
	}
	h.Ended = func(e leader.End) {
		var err error
		if e.Cause != nil && !errors.Is(e.Cause, leader.ErrResigned) {
			err = e.Cause
		}
		t.span("fencepost.term", e.Led, err, epoch(e.Epoch))
		if next.Ended != nil {
			next.Ended(e)
		}
	}
	return h
}

// Writer returns hooks for a writer that trace and then call next.
func (t *Tracer) Writer(next writer.Hooks) writer.Hooks {
	h := next
	h.Opened = func(o writer.Opening) {
		t.span("fencepost.open", o.Took, o.Err, epoch(o.Epoch), number("read_objects", o.Read.Objects), number("offset", o.Offset))
		if next.Opened != nil {
			next.Opened(o)
		}
	}
	h.Acknowledged = func(a writer.Acknowledgement) {
		t.span("fencepost.append", a.Took, nil, epoch(a.Position.Epoch), position(a.Position),
			number("offset", a.First), number("records", a.Records), number("stored_bytes", a.Bytes))
		if next.Acknowledged != nil {
			next.Acknowledged(a)
		}
	}
	h.Checkpoint = func(c writer.Checkpoint) {
		t.span("fencepost.publish", c.Took, c.Err, epoch(c.Epoch), position(c.Position), number("offset", c.Offset))
		if next.Checkpoint != nil {
			next.Checkpoint(c)
		}
	}
	return h
}

// Compactor returns hooks for a compactor that trace and then call next.
func (t *Tracer) Compactor(next compactor.Hooks) compactor.Hooks {
	h := next
	h.Folded = func(f compactor.Fold) {
		t.span("fencepost.fold", f.Took, nil, epoch(f.Epoch), position(f.Floor),
			number("objects", f.Objects), number("records", f.Records), number("stored_bytes", f.Bytes))
		if next.Folded != nil {
			next.Folded(f)
		}
	}
	h.Passed = func(p compactor.Pass) {
		t.span("fencepost.pass", p.Took, p.Err, epoch(p.Epoch), number("folded", p.Report.Folded), number("merged", p.Report.Merged))
		if next.Passed != nil {
			next.Passed(p)
		}
	}
	return h
}
