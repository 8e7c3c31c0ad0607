package lease_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
)

// TestScripts plays the stories in testdata. A story begins with the machine:
//
//	candidate id=b [observe] [reclaim] [min-epoch=100] [min-rewrite=1s] [random=0.9]
//	leader id=b [stall-after=10s] [min-rewrite=1s]
//
// Each line after that is one event: "<instant> <event> <args>". The output shows the
// instant and the next action. An instant is absolute ("1.5s"), relative to the event
// before ("+0.1s"), or "then": when the machine asked to be woken.
//
// The validity is 15 s, a heartbeat is due every 6 s, and the margin is 1.5 s. Nonces
// are n1, n2, …; random numbers are 0, or what random= says. A leader's story begins
// with the confirming swap, sent at 0 s, which made version v0.
//
// Run with -rewrite to write the outputs again, and then read the diff.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s := newScript(t, d)
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				if line == "" || strings.HasPrefix(line, "#") {
					fmt.Fprintln(&out, line)
					continue
				}
				wants := s.play(strings.Fields(line))
				fmt.Fprintf(&out, "%8v  %-36s → %s\n", time.Duration(s.now).Round(time.Millisecond), line, wants)
			}
			return out.String()
		})
	})
}

type script struct {
	t         *testing.T
	candidate *lease.Candidate
	leader    *lease.Leader
	last      lease.Action
	now       clock.Instant
	progress  clock.Instant
}

func newScript(t *testing.T, d *datadriven.TestData) *script {
	nonces := 0
	cfg := lease.Config{
		Identity: "b", Validity: 15 * time.Second, Renew: 6 * time.Second, Margin: 1500 * time.Millisecond,
		Random: func() float64 { return 0 },
		Nonce:  func() string { nonces++; return "n" + strconv.Itoa(nonces) },
	}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "id":
			cfg.Identity = arg.Vals[0]
		case "reclaim":
			cfg.Reclaim = true
		case "observe":
			cfg.Observe = true
		case "min-epoch":
			cfg.MinEpoch = number(t, arg.Vals[0])
		case "stall-after":
			cfg.StallAfter = duration(t, arg.Vals[0])
		case "min-rewrite":
			cfg.MinRewrite = duration(t, arg.Vals[0])
		case "random":
			x, err := strconv.ParseFloat(arg.Vals[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Random = func() float64 { return x }
		default:
			t.Fatalf("%s: argument %s", d.Pos, arg.Key)
		}
	}
	s := &script{t: t}
	switch d.Cmd {
	case "candidate":
		s.candidate = lease.NewCandidate(cfg)
	case "leader":
		s.leader = lease.NewLeader(cfg, lease.Action{Op: lease.Lead, Epoch: 7, Known: "v0"}, 0)
	default:
		t.Fatalf("%s: command %s", d.Pos, d.Cmd)
	}
	return s
}

func number(t *testing.T, s string) fence.Epoch {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fence.Epoch(n)
}

func duration(t *testing.T, s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *script) instant(word string) clock.Instant {
	after, relative := strings.CutPrefix(word, "+")
	switch {
	case word == "then":
		return s.last.Until
	case relative:
		return s.now.Add(duration(s.t, after))
	}
	return clock.Instant(duration(s.t, word))
}

func (s *script) play(words []string) string {
	now := s.instant(words[0])
	s.now = now
	event, args, named := words[1], []string{}, map[string]string{}
	for _, w := range words[2:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			named[k] = v
		} else {
			args = append(args, w)
		}
	}
	if s.candidate != nil {
		s.last = s.candidate.Step(now, s.event(now, event, args, named))
		return action(s.last)
	}
	return s.ready(now, event, args, named)
}

func (s *script) lock(args []string, named map[string]string) lease.Lock {
	l := lease.Lock{
		Epoch: number(s.t, args[0]), Version: store.Version(args[1]), Nonce: "nonce-of-" + args[1],
		State: lease.Held, Holder: "a", Validity: 15 * time.Second, Renew: 6 * time.Second,
	}
	for _, a := range args[2:] {
		if l.State = lease.State(a); !l.State.Valid() {
			s.t.Fatalf("state %q", a)
		}
	}
	for k, v := range named {
		switch k {
		case "holder":
			l.Holder = v
		case "nonce":
			l.Nonce = v
		case "validity":
			l.Validity = duration(s.t, v)
		case "wait":
			l.Wait = duration(s.t, v)
		case "next":
			l.Next = number(s.t, v)
		case "age", "sent":
		default:
			s.t.Fatalf("argument %q", k)
		}
	}
	return l
}

// answers says which actions an event may answer.
var answers = map[string][]lease.Op{
	"listed": {lease.List}, "got": {lease.Get}, "same": {lease.Get}, "gone": {lease.Get}, "unreadable": {lease.Get},
	"failed": {lease.List, lease.Get}, "woke": {lease.Wait},
	"applied":               {lease.Depose, lease.Create, lease.Confirm},
	"applied-after-retries": {lease.Depose, lease.Create, lease.Confirm},
	"refused":               {lease.Depose, lease.Create, lease.Confirm},
}

func (s *script) event(now clock.Instant, event string, args []string, named map[string]string) lease.Event {
	ev := lease.Event{Sent: now - clock.Instant(100*time.Millisecond), Clean: true}
	if v, ok := named["sent"]; ok {
		ev.Sent = clock.Instant(duration(s.t, v))
	}
	if asked := answers[event]; event != "start" && !slices.Contains(asked, s.last.Op) {
		s.t.Fatalf("at %v: %q does not answer the last action: %s", time.Duration(now), event, action(s.last))
	}
	switch event {
	case "start":
		ev.Kind = lease.Start
	case "listed":
		ev.Kind = lease.Listed
		if args[0] != "none" {
			ev.Epoch, ev.Version = number(s.t, args[0]), store.Version(args[1])
		}
	case "got":
		ev.Kind, ev.Lock = lease.Got, s.lock(args, named)
		if v, ok := named["age"]; ok {
			ev.Age = &lease.Age{Since: duration(s.t, v)}
		}
	case "same":
		ev.Kind = lease.Same
	case "gone":
		ev.Kind = lease.Gone
	case "unreadable":
		ev.Kind, ev.Err = lease.Unreadable, fmt.Errorf("unreadable")
	case "applied", "applied-after-retries":
		ev.Kind, ev.Clean = lease.Applied, event == "applied"
		if len(args) > 0 {
			ev.Version = store.Version(args[0])
		}
	case "refused":
		ev.Kind = lease.Refused
	case "failed":
		ev.Kind = lease.Failed
	case "woke":
		ev.Kind = lease.Woke
		if s.last.Op != lease.Wait || now < s.last.Until {
			s.t.Fatalf("at %v the machine did not ask to be woken: %s", time.Duration(now), action(s.last))
		}
	default:
		s.t.Fatalf("event %q", event)
	}
	return ev
}

func action(a lease.Action) string {
	var what string
	switch a.Op {
	case lease.List:
		what = fmt.Sprintf("list after %d", a.After)
	case lease.Get:
		what = fmt.Sprintf("get %d", a.Epoch)
		if a.Known != "" {
			what += " unless " + string(a.Known)
		}
	case lease.Depose:
		what = fmt.Sprintf("depose %d at %s with %s", a.Epoch, a.Known, a.Nonce)
	case lease.Create:
		what = fmt.Sprintf("create %d with %s", a.Epoch, a.Nonce)
		if a.Next > 0 {
			what += fmt.Sprintf(" as milestone before %d", a.Next)
		}
	case lease.Confirm:
		what = fmt.Sprintf("confirm %d at %s with %s", a.Epoch, a.Known, a.Nonce)
	case lease.Wait:
		what = fmt.Sprintf("wait until %v", time.Duration(a.Until).Round(time.Millisecond))
	case lease.Lead:
		what = fmt.Sprintf("lead %d at %s, counted from %v", a.Epoch, a.Known, time.Duration(a.Sent))
	case lease.Fail:
		what = fmt.Sprintf("fail: %v", a.Err)
	}
	if r := a.Report; r != nil {
		switch {
		case r.Lock.Epoch == 0:
			what += "; report none"
		case r.Lapsed:
			what += fmt.Sprintf("; report %d lapsed", r.Lock.Epoch)
		default:
			what += fmt.Sprintf("; report %d %v by %s", r.Lock.Epoch, r.Lock.State, r.Lock.Holder)
		}
	}
	return what
}

func (s *script) ready(now clock.Instant, event string, args []string, named map[string]string) string {
	in := lease.Input{}
	switch event {
	case "tick":
		in.Signal = lease.Tick
	case "progress":
		in.Signal, s.progress = lease.Tick, now
	case "wrote":
		in.Signal, in.Version = lease.Wrote, store.Version(args[0])
	case "denied":
		in.Signal = lease.Denied
		if len(args) > 0 {
			in.Found = s.lock(append([]string{"7"}, args...), named)
		}
	case "broken":
		in.Signal = lease.Broken
	case "resign":
		in.Signal = lease.Resign
		if v, ok := named["drain"]; ok {
			in.Drain = duration(s.t, v)
		}
	case "work-done":
		in.Signal = lease.WorkDone
	case "confirm":
		in.Signal = lease.Renew
	case "gave-up":
		in.Signal = lease.GaveUp
	default:
		s.t.Fatalf("event %q", event)
	}
	in.Progress = s.progress
	r := s.leader.Step(now, in)
	var what []string
	if r.Cancel != "" {
		what = append(what, "cancel: "+string(r.Cancel))
	}
	if w := r.Write; w != nil {
		what = append(what, fmt.Sprintf("write %v over %s with %s", w.State, w.Known, w.Nonce))
	}
	switch {
	case r.Done && s.leader.Released():
		what = append(what, "done: released")
	case r.Done:
		what = append(what, "done")
	default:
		what = append(what, fmt.Sprintf("wake at %v; deadline %v", time.Duration(r.Wake), time.Duration(s.leader.Deadline())))
	}
	return strings.Join(what, "; ")
}
