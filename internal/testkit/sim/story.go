package sim

import (
	"fmt"
	"strings"
	"time"
)

// what an act means, in words.
var words = [...]string{
	apply: "takes effect and is answered", land: "takes effect, the answer is under way", deliver: "the answer arrives",
	walk:  "the listing has looked at half of the names",
	reset: "the connection breaks", lose: "takes effect, but the reply is lost", refuse: "is turned away", failed: "takes effect, but is answered as if it had failed",
	echo: "takes effect twice, the second answer arrives", tear: "the answer is cut short", late: "takes effect, late or again",
	tick: "its next timer fires", crash: "crashes and is started again", pause: "is paused", resume: "goes on",
	jump: "its clock jumps", rate: "its clock goes differently", sleep: "time passes",
}

// tell adds an act to the story: when, who, what, and what came of it.
func (w *world) tell(a act, outcome string) {
	if w.story == nil {
		return
	}
	what := words[a.kind]
	switch {
	case a.req != nil && a.req.step():
		what = "the client goes on"
	case a.kind == refuse, a.kind == failed:
		what += fmt.Sprintf(" with %d", a.n)
	case a.kind == rate:
		what = fmt.Sprintf("its clock goes at %d ‰", a.n)
	case a.kind == jump, a.kind == sleep:
		what += " by " + time.Duration(a.n).String()
	}
	if outcome != "" {
		what += ": " + outcome
	}
	who, on, _ := strings.Cut(a.on, " ")
	w.mu.Lock() // who was answered goes on already
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
