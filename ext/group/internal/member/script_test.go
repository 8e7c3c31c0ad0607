package member_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
)

// TestScripts plays the stories in testdata. Each begins with a world:
//
//	world [partitions=1] [contents] [stall=20s]
//
// Each line after that is one command; the output shows what followed until the next. Requests take
// 20 ms, and jitter is always the same. The validity is 15 s, a heartbeat is due every 6 s, the
// margin is 1.5 s.
//
//	join a            a process begins a session; its name is one letter
//	run 6s            time passes
//	leave a           a leaves in good order
//	crash a           a is gone
//	freeze a 40s      a does nothing for so long
//	clock a 0.9       a's clock runs at that rate; before it joins
//	manual a          a's work returns only when the script says so
//	return a 0        the work of a on partition 0 returns
//	fail a 0          it fails
//	stuck 0           the work on partition 0 makes no progress, and does not return
//	well 0            the work on it that starts from now on is well
//	again 0           an operator lets it run again
//	hold a swap member/a    such requests of a are held from now on; the key is a prefix
//	free              nothing is held any more; what is held stays so
//	land 1            what was held as 1 reaches the store
//	answer 1          the answer reaches its sender
//	lose 1            its sender hears nothing
//	cut a list        such requests of a fail from now on, as with hold
//	delete member/a   somebody deletes an object
//	damage head       somebody damages an object
//	newer head        a newer version of this program writes one that this version cannot read
//	junk assign/1     another object of the same contents takes the place of this one
//	partitions 3      somebody raises N
//	read head         whether members can read an object
//	keys assign/      the keys in the store
//
// Run with -rewrite to write the outputs again, and then read the diff. A line with "!!" is a promise
// that was broken.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			partitions, stall := 1, time.Duration(0)
			for _, arg := range d.CmdArgs {
				switch arg.Key {
				case "partitions":
					partitions = number(t, arg.Vals[0])
				case "stall":
					stall, _ = time.ParseDuration(arg.Vals[0])
				}
			}
			w := newWorld(t, 1, partitions)
			w.stallAfter = stall
			w.script, w.contents = true, d.HasArg("contents")
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				line = strings.TrimSpace(line)
				fmt.Fprintln(&out, line)
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				w.story = nil
				w.command(strings.Fields(line))
				for _, s := range w.story {
					fmt.Fprintln(&out, w.short(s))
				}
			}
			return out.String()
		})
	})
}

// rule selects requests.
type rule struct {
	who    string
	op     string
	prefix string
	cut    bool
}

// heldJob is a request on its way.
type heldJob struct {
	p      *proc
	job    member.Job
	answer func(member.Event)
	ev     *member.Event // the store's answer, once it has landed
}

// hold keeps a request that a rule selects.
func (w *world) hold(p *proc, j member.Job, answer func(member.Event)) bool {
	for _, r := range w.holds {
		if r.who != p.name || r.op != j.Op.String() || !strings.HasPrefix(w.short(j.Key), r.prefix) {
			continue
		}
		if r.cut {
			answer(member.Event{Outcome: member.Failed})
			return true
		}
		w.held = append(w.held, &heldJob{p: p, job: j, answer: answer})
		w.tell("%s: held %d: %v %s", p.name, len(w.held), j.Op, w.short(j.Key))
		return true
	}
	return false
}

var digits = regexp.MustCompile(`0{12,}(\d+)`)

// short gives keys and names the form that scripts use.
func (w *world) short(s string) string {
	for _, p := range w.procs {
		s = strings.ReplaceAll(s, p.id.String(), p.name)
	}
	s = strings.ReplaceAll(s, member.Prefix, "")
	return strings.ReplaceAll(digits.ReplaceAllString(s, "$1"), ".json", "")
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (w *world) named(name string) *proc {
	w.Helper()
	i := slices.IndexFunc(w.procs, func(p *proc) bool { return p.name == name })
	if i < 0 {
		w.Fatalf("there is no process %q", name)
	}
	return w.procs[i]
}

// long finds the key that a script means.
func (w *world) long(short string) string {
	for key := range w.store {
		if w.short(key) == short {
			return key
		}
	}
	w.Fatalf("there is no object %q", short)
	return ""
}

func (w *world) command(c []string) {
	w.Helper()
	arg := func(i int) string {
		if i >= len(c) {
			return ""
		}
		return c[i]
	}
	duration := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		if err != nil {
			w.Fatal(err)
		}
		return d
	}
	switch c[0] {
	case "clock":
		rate, err := strconv.ParseFloat(c[2], 64)
		if err != nil {
			w.Fatal(err)
		}
		w.procs = append(w.procs, &proc{w: w, name: c[1], rate: rate, drain: 0})
	case "join":
		if !slices.ContainsFunc(w.procs, func(p *proc) bool { return p.name == c[1] }) {
			w.procs = append(w.procs, &proc{w: w, name: c[1], rate: 1})
		}
		w.named(c[1]).join()
	case "run":
		w.run(duration(c[1]))
	case "leave":
		w.named(c[1]).leave(true)
	case "crash":
		w.named(c[1]).crash()
	case "freeze":
		w.named(c[1]).pause(duration(c[2]))
	case "manual":
		w.named(c[1]).manual = true
	case "return", "fail":
		p := w.named(c[1])
		x := p.works[number(w.T, c[2])]
		if x == nil {
			w.Fatalf("%s does not work on %s", c[1], c[2])
		}
		p.back(x, c[0] == "fail")
	case "stuck":
		w.stuck = append(w.stuck, number(w.T, c[1]))
	case "well":
		w.stuck = slices.DeleteFunc(w.stuck, func(p int) bool { return p == number(w.T, c[1]) })
	case "again":
		key, call := member.Again(w.calls(), []int{number(w.T, c[1])}, id(1), "again")
		w.write(key, call)
	case "hold", "cut":
		w.holds = append(w.holds, rule{c[1], c[2], arg(3), c[0] == "cut"})
	case "free":
		w.holds = nil
	case "land":
		h := w.held[number(w.T, c[1])-1]
		if h.job.Op == member.List {
			w.list(h.job.Key, "", nil, func(ev member.Event) { h.ev = &ev })
			break
		}
		var ev member.Event
		if h.job.Op == member.Create || h.job.Op == member.Swap {
			ev = w.settle(h.job, ev) // as the driver does: own bytes mean that it was applied
		} else {
			ev = w.apply(h.job)
		}
		h.ev = &ev
		w.tell("%s", [...]string{"", "done", "same", "absent", "refused"}[ev.Outcome])
	case "answer":
		h := w.held[number(w.T, c[1])-1]
		h.answer(*h.ev)
	case "lose":
		w.held[number(w.T, c[1])-1].answer(member.Event{Outcome: member.Failed})
	case "delete":
		w.remove(w.long(c[1]))
	case "damage", "newer":
		o := w.write(w.long(c[1]), fence.ErrCorrupt)
		if c[0] == "newer" {
			o.doc = fence.ErrFormat
		}
	case "junk":
		o := *w.store[w.long(c[1])]
		o.version = "junk"
		w.store[w.long(c[1])] = &o
	case "read":
		_, unreadable := w.store[w.long(c[1])].doc.(error)
		w.tell("%s can be read: %v", c[1], !unreadable)
	case "partitions":
		w.partitions = number(w.T, c[1])
		w.write(member.FormatKey, &member.Format{Partitions: w.partitions})
	case "keys":
		var keys []string
		for key := range w.store {
			if strings.HasPrefix(w.short(key), arg(1)) {
				keys = append(keys, w.short(key))
			}
		}
		slices.Sort(keys)
		w.tell("%s", strings.Join(keys, " "))
	default:
		w.Fatalf("command %q", c[0])
	}
}
