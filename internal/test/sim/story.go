package sim

import (
	"fmt"
	"strings"
	"time"
)

// words describes each kind of act.
var words = [...]string{
	apply: "takes effect and is answered", land: "takes effect, the answer is in flight", deliver: "the answer arrives",
	walk:  "the first half of the listing is read",
	reset: "the connection breaks", lose: "takes effect, but the reply is lost", refuse: "is rejected", failed: "takes effect, but is answered as if rejected",
	echo: "takes effect twice, the second answer arrives", tear: "the answer is cut short", late: "takes effect, late or again",
	tick: "its next timer fires", crash: "crashes and is started again", pause: "is paused", resume: "continues",
	jump: "its clock jumps", rate: "its clock's rate changes", sleep: "time passes",
}

// tell adds an act to the story: time, node, request, act and result.
func (w *world) tell(a act, outcome string) {
	if w.story == nil {
		return
	}
	what := words[a.kind]
	switch {
	case a.req != nil && a.req.step():
		what = "the client continues"
	case a.kind == refuse, a.kind == failed:
		what += fmt.Sprintf(" with %d", a.n)
	case a.kind == rate:
		what = fmt.Sprintf("its clock runs at %d ‰", a.n)
	case a.kind == jump, a.kind == sleep:
		what += " by " + time.Duration(a.n).String()
	}
	if outcome != "" {
		what += ": " + outcome
	}
	who, on, _ := strings.Cut(a.on, " ")
	w.mu.Lock() // nodes that were answered run already
	defer w.mu.Unlock()
	w.line(who, strings.TrimSuffix(strings.TrimSuffix(on, " #1"), "step on"), what)
}

func (w *world) line(who, on, what string) {
	fmt.Fprintf(w.story, "%4d %14v  %-5s %-44s %s\n", w.steps, w.now, who, on, what)
}

// tellf adds what a client was told.
func (w *world) tellf(who, format string, args ...any) {
	if w.story == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line(who, "", "» "+fmt.Sprintf(format, args...))
}
