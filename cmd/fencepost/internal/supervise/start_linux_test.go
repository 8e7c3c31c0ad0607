package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// none is a command that cannot start, so that an attempt is seen.
func none() *Command {
	return &Command{
		Path: "/none", Args: []string{"none"}, Env: os.Environ(), NoInput: true,
		Watchdog: []string{"supervise.test", "watchdog"}, Held: func() time.Duration { return time.Minute }, Grace: time.Second,
	}
}

// A command must not start when the end has come already: at the call, or while its watchdog begins.
func TestEndedBeforeTheStart(t *testing.T) {
	for when, end := range map[string]func(c *Command, cancel func()){
		"before the call": func(_ *Command, cancel func()) { cancel() },
		"while the lease is read": func(c *Command, cancel func()) {
			held := c.Held
			c.Held = func() time.Duration { cancel(); return held() }
		},
		"before the first order": func(c *Command, cancel func()) { c.Renewed = func(Moment) { cancel() } },
		"after the first order": func(c *Command, cancel func()) {
			c.Watchdog = []string{"supervise.test", "slow", "watchdog"}
			c.Renewed = func(Moment) { time.AfterFunc(50*time.Millisecond, cancel) }
		},
	} {
		c := none()
		ctx, cancel := context.WithCancel(t.Context())
		end(c, cancel)
		status, err := Run(ctx, c)
		cancel()
		if err != nil || status.Exit() != 128+int(syscall.SIGTERM) {
			t.Errorf("%s: %+v, %v", when, status, err)
		}
	}
	// The lease was lost in that moment.
	c := none()
	began := Now()
	c.Held = func() time.Duration { return 2*time.Second - Now().Sub(began) }
	c.Renewed = func(Moment) { time.Sleep(1100 * time.Millisecond) }
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrLost) {
		t.Errorf("the deadline came first: %v", err)
	}
}

// The pipe to the watchdog is full, or this process gets no processor time for so long that a write does not happen.
// Then the order to stop is written later, and before each deadline.
func TestOrdersAreNotLost(t *testing.T) {
	theirs, mine, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer mine.Close()
	_ = mine.SetWriteDeadline(time.Now().Add(time.Second))
	full, _ := mine.Write(bytes.Repeat([]byte("\n"), 1<<20)) // what fits
	s := &supervisor{Command: none(), orders: mine}
	held := time.Minute
	s.Held = func() time.Duration { held += time.Second; return held } // each look finds a later deadline
	s.look()
	s.confirmed = s.offered
	s.stop()
	for range 3 { // deadlines that become one
		s.step()
	}
	for range 2 * maxUnsent {
		s.order(order{Signal: syscall.SIGUSR1})
	}
	s.order(order{Kill: true})
	if _, err := io.ReadFull(theirs, make([]byte, full)); err != nil {
		t.Fatal(err)
	}
	s.step()
	_ = mine.Close()
	var got []order
	for d := json.NewDecoder(theirs); ; {
		var o order
		if d.Decode(&o) != nil {
			break
		}
		got = append(got, o)
	}
	if len(got) < 3 || len(got) > maxUnsent+2 || got[0] != (order{Signal: syscall.SIGTERM, Stop: true}) || got[1].Until == 0 ||
		!slices.ContainsFunc(got, func(o order) bool { return o.Kill }) {
		t.Errorf("the watchdog reads %+v", got)
	}
}

// watch runs a watchdog that finds these orders when it begins. Then its supervisor dies, if it is to.
func watch(t *testing.T, c *Command, dies bool, orders ...order) (reports []report) {
	t.Helper()
	theirs, mine, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	for _, o := range orders {
		if err := json.NewEncoder(mine).Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := exec.Command("/proc/self/exe", append([]string{"watchdog", "3", "4", background, "", c.Path}, c.Args...)...)
	w.ExtraFiles = []*os.File{theirs, write}
	if dies {
		_ = mine.Close()
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirs.Close(), write.Close()
	_, _ = out.ReadFrom(read)
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
	for d := json.NewDecoder(strings.NewReader(out.String())); d.More(); {
		var r report
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	return reports
}

// A watchdog that is slow to begin finds the end among its orders, and starts nothing.
func TestWatchdogThatIsLate(t *testing.T) {
	first := order{Until: Now().Add(time.Minute), Grace: time.Second}
	last := func(rs []report) (r report) {
		if len(rs) > 0 {
			r = rs[len(rs)-1]
		}
		return r
	}
	for name, orders := range map[string][]order{
		"a stop":          {first, {Signal: syscall.SIGTERM, Stop: true}},
		"a later stop":    {first, {Signal: syscall.SIGUSR1}, {Until: first.Until.Add(1)}, {Signal: syscall.SIGTERM, Stop: true}},
		"a stop alone":    {{Signal: syscall.SIGTERM, Stop: true}, {Until: first.Until}},
		"killed":          {first, {Kill: true}},
		"killed at once":  {{Kill: true}, {Until: first.Until}},
		"a deadline soon": {{Until: Now().Add(500 * time.Millisecond), Grace: time.Second}},
	} {
		c := none()
		if r := last(watch(t, c, false, orders...)); r.Exited == nil || r.Exited.Signal == 0 {
			t.Errorf("%s: the last report is %+v", name, r)
		}
	}
	c := none()
	if rs := watch(t, c, true, first); len(rs) > 0 {
		t.Errorf("the supervisor has died: %+v", rs)
	}
	// Other signals are for the command.
	c.Path, c.Args = "/bin/sleep", []string{"sleep", "60"}
	rs := watch(t, c, false, first, order{Until: first.Until.Add(time.Second)}, order{Signal: syscall.SIGUSR1})
	if r := last(rs); r.Exited == nil || r.Exited.Signal != syscall.SIGUSR1 || len(rs) < 2 || rs[0].Started == 0 || rs[0].Until != first.Until.Add(time.Second) {
		t.Errorf("a signal for the command: %+v", rs)
	}
}
