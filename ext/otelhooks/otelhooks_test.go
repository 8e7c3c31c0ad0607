package otelhooks_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/otelhooks"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// A log whose leader and compactor are traced.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewSpanRecorder() // or an exporter
	t := otelhooks.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	st := memstore.New(nil)
	opts := &fencepost.Options{
		Leader: &leader.Options{Hooks: t.Leader(leader.Hooks{})},
		Writer: &writer.Options{Hooks: t.Writer(writer.Hooks{})},
	}
	err := fencepost.Run(ctx, st, opts, func(ctx context.Context, s *fencepost.Session) error {
		_, err := s.Append(ctx, [][]byte{[]byte("one")})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), Hooks: t.Compactor(compactor.Hooks{})})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Once(ctx); err != nil {
		log.Fatal(err)
	}
	var names []string
	for _, s := range spans.Ended() {
		names = append(names, s.Name())
	}
	slices.Sort(names)
	fmt.Println(slices.Compact(names))
	// Output: [fencepost.append fencepost.campaign fencepost.fold fencepost.open fencepost.pass fencepost.publish fencepost.term fencepost.writer]
}

// A span covers the time that the event tells, and says what failed.
func TestSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tr := otelhooks.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	called := 0
	h := tr.Writer(writer.Hooks{
		Acknowledged: func(writer.Acknowledgement) { called++ },
		Opened:       func(writer.Opening) { called++ },
		Checkpoint:   func(writer.Checkpoint) { called++ },
		Ended:        func(writer.Ending) { called++ },
	})
	h.Acknowledged(writer.Acknowledgement{Position: fence.Position{Epoch: 3, Seq: 4}, First: 7, Records: 2, Took: time.Minute})
	h.Checkpoint(writer.Checkpoint{Epoch: 3, Err: errors.New("the store is away"), Took: time.Second})
	h.Opened(writer.Opening{Epoch: 3})
	h.Ended(writer.Ending{Epoch: 3, Err: fmt.Errorf("%w: %w", writer.ErrClosed, leader.ErrExpired), Lasted: time.Hour})
	h.Ended(writer.Ending{Epoch: 3, Err: &fence.FencedError{Epoch: 3, By: 4}, Lasted: time.Hour})
	all := spans.Ended()
	if len(all) != 5 || called != 5 {
		t.Fatalf("%d spans, %d hooks", len(all), called)
	}
	if s := all[0]; s.EndTime().Sub(s.StartTime()) != time.Minute || s.Status().Code != codes.Unset || s.Parent().IsValid() {
		t.Errorf("%v to %v, %v", s.StartTime(), s.EndTime(), s.Status())
	}
	attrs := map[string]string{}
	for _, a := range all[0].Attributes() {
		attrs[string(a.Key)] = a.Value.String()
	}
	if attrs["fencepost.epoch"] != "3" || attrs["fencepost.position"] != "3/4" || attrs["fencepost.offset"] != "7" || attrs["fencepost.records"] != "2" {
		t.Errorf("attributes %v", attrs)
	}
	if s := all[1]; s.Status().Code != codes.Error || s.Status().Description != "the store is away" {
		t.Errorf("a failure: %v", s.Status())
	}
	for i, want := range []codes.Code{codes.Unset, codes.Error} {
		if s := all[3+i]; s.Name() != "fencepost.writer" || s.EndTime().Sub(s.StartTime()) != time.Hour || s.Status().Code != want {
			t.Errorf("the end of a writer: %s, %v to %v, %v", s.Name(), s.StartTime(), s.EndTime(), s.Status())
		}
	}
}

// The opening and the term are children of the campaign, folds are children of their pass, and what a
// writer does has a link to the opening.
func TestParents(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tr := otelhooks.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	st := memstore.New(nil)
	opts := &fencepost.Options{Leader: &leader.Options{Hooks: tr.Leader(leader.Hooks{})}, Writer: &writer.Options{Hooks: tr.Writer(writer.Hooks{})}}
	err := fencepost.Run(t.Context(), st, opts, func(ctx context.Context, s *fencepost.Session) error {
		_, err := s.Append(ctx, [][]byte{[]byte("one")})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), Hooks: tr.Compactor(compactor.Hooks{})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	by := map[string]trace.ReadOnlySpan{}
	for _, s := range spans.Ended() {
		by[s.Name()] = s
	}
	for name, parent := range map[string]string{
		"campaign": "", "open": "campaign", "writer": "campaign", "term": "campaign", "append": "", "publish": "", "pass": "", "fold": "pass",
	} {
		s := by["fencepost."+name]
		if s == nil {
			t.Fatalf("no span %s", name)
		}
		if parent == "" {
			if s.Parent().IsValid() {
				t.Errorf("%s has a parent", name)
			}
			continue
		}
		if p := by["fencepost."+parent]; s.Parent().SpanID() != p.SpanContext().SpanID() || s.SpanContext().TraceID() != p.SpanContext().TraceID() {
			t.Errorf("%s is no child of %s", name, parent)
		}
	}
	for _, name := range []string{"append", "publish"} {
		if links := by["fencepost."+name].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != by["fencepost.open"].SpanContext().SpanID() {
			t.Errorf("%s has the links %v", name, links)
		}
	}
	if f, p := by["fencepost.fold"], by["fencepost.pass"]; f.StartTime().Before(p.StartTime()) || f.EndTime().After(p.EndTime()) {
		t.Errorf("the fold, %v to %v, is not within its pass, %v to %v", f.StartTime(), f.EndTime(), p.StartTime(), p.EndTime())
	}
}

// Two logs with one Tracer and the same epoch: no span has a parent or a link that is another log's.
func TestSharedEpochs(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tr := otelhooks.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	l, w := tr.Leader(leader.Hooks{}), tr.Writer(writer.Hooks{})
	for range 2 {
		l.Elected(leader.Election{Epoch: 7})
		w.Opened(writer.Opening{Epoch: 7})
	}
	w.Acknowledged(writer.Acknowledgement{Position: fence.Position{Epoch: 7, Seq: 1}})
	l.Ended(leader.End{Epoch: 7})
	for _, s := range spans.Ended()[2:] {
		if s.Parent().IsValid() || len(s.Links()) > 0 {
			t.Errorf("%s has parent %v and links %v", s.Name(), s.Parent(), s.Links())
		}
	}
	// What is remembered has a bound.
	for e := range fence.Epoch(5000) {
		w.Opened(writer.Opening{Epoch: 100 + e})
	}
	w.Acknowledged(writer.Acknowledgement{Position: fence.Position{Epoch: 100, Seq: 1}})
	w.Acknowledged(writer.Acknowledgement{Position: fence.Position{Epoch: 5099, Seq: 1}})
	last := spans.Ended()[len(spans.Ended())-2:]
	if len(last[0].Links()) != 0 || len(last[1].Links()) != 1 {
		t.Errorf("links: %v, %v", last[0].Links(), last[1].Links())
	}
}

// The end of a term is an error unless the leader has resigned.
func TestTerm(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tr := otelhooks.New(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	mem := memstore.New(nil)
	for range 2 {
		e, err := leader.New(mem, "lock", &leader.Options{Hooks: tr.Leader(leader.Hooks{})})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(spans.Ended()) > 1 { // the second term is deposed
			if _, err := e.StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
				t.Fatal(err)
			}
			_ = term.Confirm(t.Context())
			<-term.Context().Done()
		}
		_ = term.Resign(t.Context())
	}
	var ends []codes.Code
	for _, s := range spans.Ended() {
		if s.Name() == "fencepost.term" {
			ends = append(ends, s.Status().Code)
		}
	}
	if !slices.Equal(ends, []codes.Code{codes.Unset, codes.Error}) {
		t.Errorf("the terms ended with %v", ends)
	}
}

// A program that does not trace pays little: see the benchmark.
func BenchmarkOff(b *testing.B) {
	h := otelhooks.New(noop.NewTracerProvider()).Writer(writer.Hooks{})
	for b.Loop() {
		h.Acknowledged(writer.Acknowledgement{Records: 3, Took: time.Millisecond})
	}
}
