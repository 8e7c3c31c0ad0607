package otelhooks

import (
	"context"
	"errors"
	"math"
	"sync"
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
const Scope = "github.com/fencepost/fencepost/ext/otelhooks"

// Tracer traces the parts of a log. It is safe for concurrent use. Make one for each log, and
// another one for an elector of the compactor: epochs tell which spans belong together.
type Tracer struct {
	tracer trace.Tracer
	phases phases
}

// New returns a Tracer that gives its spans to provider.
func New(provider trace.TracerProvider) *Tracer { return &Tracer{tracer: provider.Tracer(Scope)} }

// done is something that has ended.
type done struct {
	name  string
	end   time.Time
	took  time.Duration
	err   error
	attrs []attribute.KeyValue
}

// ended is something that has just ended and took so long.
func ended(name string, took time.Duration, err error, attrs ...attribute.KeyValue) done {
	return done{name, clock.System().Wall(), took, err, attrs}
}

// span records what has ended, as a child of the span in ctx, if there is one.
func (t *Tracer) span(ctx context.Context, d done, opts ...trace.SpanStartOption) trace.SpanContext {
	end, err := d.end, d.err
	_, span := t.tracer.Start(ctx, d.name, append(opts, trace.WithTimestamp(end.Add(-d.took)))...)
	if span.IsRecording() {
		span.SetAttributes(d.attrs...)
		if err != nil {
			span.RecordError(err, trace.WithTimestamp(end))
			span.SetStatus(codes.Error, err.Error())
		}
	}
	span.End(trace.WithTimestamp(end))
	return span.SpanContext()
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
		span := t.span(context.Background(), ended(campaign, e.Took, nil, epoch(e.Epoch)))
		t.phases.remember(campaign, e.Epoch, span)
		if next.Elected != nil {
			next.Elected(e)
		}
	}
	h.Ended = func(e leader.End) {
		var err error
		if e.Cause != nil && !errors.Is(e.Cause, leader.ErrResigned) {
			err = e.Cause
		}
		t.span(t.phases.within(campaign, e.Epoch), ended("fencepost.term", e.Led, err, epoch(e.Epoch)))
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
		span := t.span(t.phases.within(campaign, o.Epoch),
			ended(opening, o.Took, o.Err, epoch(o.Epoch), number("read_objects", o.Read.Objects), number("offset", o.Offset)))
		t.phases.remember(opening, o.Epoch, span)
		if next.Opened != nil {
			next.Opened(o)
		}
	}
	h.Acknowledged = func(a writer.Acknowledgement) {
		t.span(context.Background(), ended("fencepost.append", a.Took, nil, epoch(a.Position.Epoch), position(a.Position),
			number("offset", a.First), number("records", a.Records), number("stored_bytes", a.Bytes)), t.phases.linked(opening, a.Position.Epoch)...)
		if next.Acknowledged != nil {
			next.Acknowledged(a)
		}
	}
	h.Checkpoint = func(c writer.Checkpoint) {
		t.span(context.Background(), ended("fencepost.publish", c.Took, c.Err, epoch(c.Epoch), position(c.Position), number("offset", c.Offset)),
			t.phases.linked(opening, c.Epoch)...)
		if next.Checkpoint != nil {
			next.Checkpoint(c)
		}
	}
	h.Ended = func(e writer.Ending) {
		err := e.Err
		if errors.Is(err, writer.ErrClosed) {
			err = nil
		}
		t.span(t.phases.within(campaign, e.Epoch), ended("fencepost.writer", e.Lasted, err, epoch(e.Epoch)))
		if next.Ended != nil {
			next.Ended(e)
		}
	}
	return h
}

// Compactor returns hooks for a compactor that trace and then call next. The spans of a pass's folds
// are made when the pass has ended. Call it for each log.
func (t *Tracer) Compactor(next compactor.Hooks) compactor.Hooks {
	var folds folds
	h := next
	h.Folded = func(f compactor.Fold) {
		folds.add(ended("fencepost.fold", f.Took, nil, epoch(f.Epoch), position(f.Floor),
			number("objects", f.Objects), number("records", f.Records), number("stored_bytes", f.Bytes)))
		if next.Folded != nil {
			next.Folded(f)
		}
	}
	h.Passed = func(p compactor.Pass) {
		pass := ended("fencepost.pass", p.Took, p.Err, epoch(p.Epoch), number("folded", p.Report.Folded), number("merged", p.Report.Merged))
		ctx := trace.ContextWithSpanContext(context.Background(), t.span(context.Background(), pass))
		for _, f := range folds.take() {
			t.span(ctx, f)
		}
		if next.Passed != nil {
			next.Passed(p)
		}
	}
	return h
}

// folds are those of the pass that goes on.
type folds struct {
	mu  sync.Mutex
	all []done
}

func (f *folds) add(d done) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, d)
}

func (f *folds) take() (all []done) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, f.all = f.all, nil
	return all
}
