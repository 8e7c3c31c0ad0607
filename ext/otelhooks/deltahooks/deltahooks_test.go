package deltahooks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/otelhooks/deltahooks"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

func newTracer() (*deltahooks.Tracer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return deltahooks.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans))), spans
}

// attributes of a span, as text.
func attributes(s trace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// A real publisher: the round that publishes a file has a span, and the one that finds nothing has none.
func TestPublisher(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
		tr, spans := newTracer()
		root, src, err := delta.Beside(l.Mem)
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		p, err := delta.Open(t.Context(), root, []delta.Source{src}, &delta.Options{
			Clock: clock.Go(), Settle: logtest.Quick, Hooks: tr.Publisher(delta.Hooks{Round: func(delta.Round) { told++ }}),
		})
		if err != nil {
			t.Fatal(err)
		}
		w := l.Open(nil)
		defer l.Close(w)
		type row struct {
			ID int64 `parquet:"id"`
		}
		d, err := delta.NewWriter(t.Context(), w, &delta.WriterOptions[row]{Compression: delta.Plain}) // the others have goroutines outside of bubbles
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err = d.Write(t.Context(), []row{{1}, {2}}); err == nil {
			err = d.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := p.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		all := spans.Ended()
		if len(all) != 1 || told != 2 {
			t.Fatalf("%d spans and %d rounds, want 1 and 2", len(all), told)
		}
		if got := attributes(all[0]); all[0].Name() != "fencepost.delta.round" || got["fencepost.delta.version"] != "1" || got["fencepost.delta.versions"] != "2" || got["fencepost.delta.files"] != "1" {
			t.Errorf("%s %v", all[0].Name(), got)
		}
	})
}

// A span covers the time of the round, and says what failed. The end of the program is no failure.
func TestRounds(t *testing.T) {
	tr, spans := newTracer()
	h := tr.Publisher(delta.Hooks{})
	h.Round(delta.Round{Took: time.Second, Err: context.Canceled})
	h.Round(delta.Round{Took: time.Minute, Err: errors.New("the store is away")})
	h.Round(delta.Round{Took: time.Second, Report: delta.Report{Version: 7, Tries: 2}})
	all := spans.Ended()
	if len(all) != 2 {
		t.Fatalf("%d spans, want 2", len(all))
	}
	if s := all[0]; s.EndTime().Sub(s.StartTime()) != time.Minute || s.Status().Code != codes.Error || s.Status().Description != "the store is away" || s.Parent().IsValid() {
		t.Errorf("%v to %v, %v", s.StartTime(), s.EndTime(), s.Status())
	}
	if got := attributes(all[1]); all[1].Status().Code != codes.Unset || got["fencepost.delta.conflicts"] != "2" || got["fencepost.delta.version"] != "7" {
		t.Errorf("%v, %v", all[1].Status(), got)
	}
}
