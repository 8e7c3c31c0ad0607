package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestDecide plays the stories in testdata/decide.txt. A story is one call of Create or
// Swap: what the store answers to its requests, and what is found under the key when it
// is read. contradictions=9 begins after nine rounds in which the store refused a
// condition that held. The output shows what decide does next, and whether it counts a
// request as in flight.
//
// Run with -rewrite to write the outputs anew, and read them.
//
// guard:own-nonce. No other write has the same nonce. Without this check: A's create is applied, and
// its answer is lost; A reads its own object, does not know it, and sends the create again; the store
// answers 412, and A reads the object once more; after ten such rounds A reports an unknown outcome,
// although the create is applied.
//
// guard:after-unknown. Without this check: A's create times out; A reads the key, which is absent; A's
// credentials expire; A's second request gets 403, and A reports that nothing was written; the first
// request is applied after all.
//
// guard:resend. If the same bytes are sent again, a late first request finds its equal, and changes
// nothing. Without this rule: A's create of lock 8 times out, and the key is absent; A takes its create
// for refused, finds no lock 8 in a listing, and stops with an error; the create is applied after all;
// B waits until lock 8 lapses, although nobody leads. A swap of an absent key is refused, because the
// object that it was to replace is gone.
func TestDecide(t *testing.T) {
	datadriven.RunTest(t, "testdata/decide.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd != "create" && d.Cmd != "swap" {
			t.Fatalf("%s: command %s", d.Pos, d.Cmd)
		}
		p, answer, next := progress{swap: d.Cmd == "swap"}, Unknown, step{action: resend}
		if d.HasArg("contradictions") {
			p.inFlight = true
			d.ScanArgs(t, "contradictions", &p.contradictions)
		}
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSpace(line)
			word, arg, _ := strings.Cut(line, " ")
			seen := unread
			switch i := slices.Index(outcomes, arg); {
			case word == "answer" && i >= 0 && next.action == resend:
				answer = Outcome(i)
			case word == "found" && next.action == check:
				seen = finding(slices.Index(findings, arg))
			case line == "hedge found another's" && next.action == resend:
				answer, seen = Refused, foreign
			default:
				t.Fatalf("%s: %q cannot come after %q", d.Pos, line, actions[next.action])
			}
			p, next = decide(p, answer, seen)
			fmt.Fprintf(&out, "%-22s → %s\n", line, show(p, next))
		}
		return out.String()
	})
}

var (
	outcomes = []string{"unknown", "applied", "refused", "rejected"}
	findings = []string{"unread", "own bytes", "the old version", "another's", "nothing", "no answer"}
	actions  = []string{"done: applied", "done: refused", "done: turned away", "read the key", "send again", "give up"}
)

func show(p progress, next step) string {
	text := actions[next.action]
	if next.pause {
		text = "pause, " + text
	}
	if errors.Is(next.cause, errRefusedShown) || errors.Is(next.cause, errRefusedAbsent) {
		text += ": " + next.cause.Error()
	}
	if p.inFlight && next.action != accept && next.action != refuse {
		text += " [in flight]"
	}
	return text
}

// However a story goes, it is never reported as turned away or refused while a create of
// its own may still land on an empty key; and after any answer and any finding something
// is decided.
func TestDecideNeverForgetsARequest(t *testing.T) {
	for _, swap := range []bool{false, true} {
		for _, o := range []Outcome{Unknown, Refused, Rejected} {
			for f := unread; f <= unreadable; f++ {
				_, next := decide(progress{swap: swap, inFlight: true}, o, f)
				if next.action == reject || next.action == refuse && f != foreign && !(swap && f == absent) {
					t.Errorf("swap %v, %v, %s: %s", swap, o, findings[f], actions[next.action])
				}
			}
		}
	}
}

// An error that is ErrUnknown is nothing else, whatever it wraps.
func TestUnknownErrorIsNoRefusal(t *testing.T) {
	refused := &Error{Op: "put", Key: "k", Kind: ErrPrecondition}
	denied := &Error{Op: "put", Key: "k", Kind: ErrDenied}
	err := &unknownError{key: "k", attempts: 3, err: refused, cause: denied}
	if errors.Is(err, ErrPrecondition) || !errors.Is(err, ErrDenied) || OutcomeOf(err) != Unknown || OutcomeOf(fmt.Errorf("writer: %w", err)) != Unknown {
		t.Errorf("%v is %v", err, OutcomeOf(err))
	}
}
