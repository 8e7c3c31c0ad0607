package otelhooks

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/fencepost/fencepost/fence"
)

// phase is a part of a leadership that other spans refer to.
type phase struct {
	name  string
	epoch fence.Epoch
}

const (
	campaign = "fencepost.campaign"
	opening  = "fencepost.open"
)

// remembered bounds how many phases are known. All are forgotten when there are more.
const remembered = 4096

// phases are the spans that later ones refer to.
type phases struct {
	mu    sync.Mutex
	spans map[phase]trace.SpanContext // not valid if two phases have the same key
}

// remember lets later spans refer to that of a phase. Two logs that share a Tracer may have the same
// epoch. Then no span refers to either.
func (p *phases) remember(name string, e fence.Epoch, span trace.SpanContext) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, twice := p.spans[phase{name, e}]; twice {
		span = trace.SpanContext{}
	}
	if p.spans == nil || len(p.spans) >= remembered {
		p.spans = map[phase]trace.SpanContext{}
	}
	p.spans[phase{name, e}] = span
}

func (p *phases) known(name string, e fence.Epoch) trace.SpanContext {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spans[phase{name, e}]
}

// within returns the context for children of a phase's span. If that is not known, they are roots.
func (p *phases) within(name string, e fence.Epoch) context.Context {
	return trace.ContextWithSpanContext(context.Background(), p.known(name, e))
}

// linked makes a span refer to that of a phase, as the root of a trace of its own.
func (p *phases) linked(name string, e fence.Epoch) []trace.SpanStartOption {
	if span := p.known(name, e); span.IsValid() {
		return []trace.SpanStartOption{trace.WithLinks(trace.Link{SpanContext: span})}
	}
	return nil
}
