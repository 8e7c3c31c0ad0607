package main

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
)

const (
	testValidity = 3 * time.Second
	// calmValidity is for tests in which no lease is to end, however busy the machine is.
	calmValidity = time.Minute
)

// TestExecKillsInTime: whatever happens to exec, to its watchdog and to the command, all
// that the command has started is dead before the lease ends, and before the next command starts.
func TestExecKillsInTime(t *testing.T) {
	freeze := func(pids ...int) {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
	for name, c := range map[string]struct {
		how     string
		workers int
		harm    func(j *job, pid, watchdog int)
		status  int // of exec; 0 if it does not end by itself
	}{
		"exec killed":                       {"", 1, func(j *job, _, _ int) { j.signal(syscall.SIGKILL) }, -9},
		"exec killed, TERM ignored":         {"deaf", 1, func(j *job, _, _ int) { j.signal(syscall.SIGKILL) }, -9},
		"exec killed, grandchildren":        {"children", 4, func(j *job, _, _ int) { j.signal(syscall.SIGKILL) }, -9},
		"exec killed, setsid and orphaned":  {"setsid", 2, func(j *job, _, _ int) { j.signal(syscall.SIGKILL) }, -9},
		"exec killed, frozen group":         {"deaf", 1, func(j *job, pid, _ int) { freeze(-pid); j.signal(syscall.SIGKILL) }, -9},
		"exec frozen":                       {"", 1, func(j *job, _, _ int) { j.freeze() }, 0},
		"exec frozen, TERM ignored":         {"deaf", 1, func(j *job, _, _ int) { j.freeze() }, 0},
		"exec frozen, grandchildren":        {"children deaf", 4, func(j *job, _, _ int) { j.freeze() }, 0},
		"exec frozen, setsid and orphaned":  {"setsid deaf", 2, func(j *job, _, _ int) { j.freeze() }, 0},
		"watchdog killed":                   {"deaf", 1, func(_ *job, _, w int) { _ = syscall.Kill(w, syscall.SIGKILL) }, kit.ExitLost},
		"watchdog killed, grandchildren":    {"children", 4, func(_ *job, _, w int) { _ = syscall.Kill(w, syscall.SIGKILL) }, kit.ExitLost},
		"watchdog killed, setsid":           {"setsid", 2, func(_ *job, _, w int) { _ = syscall.Kill(w, syscall.SIGKILL) }, kit.ExitLost},
		"watchdog frozen":                   {"", 1, func(_ *job, _, w int) { freeze(w) }, kit.ExitLost},
		"watchdog frozen, TERM ignored":     {"deaf children", 4, func(_ *job, _, w int) { freeze(w) }, kit.ExitLost},
		"watchdog frozen, setsid":           {"setsid deaf", 2, func(_ *job, _, w int) { freeze(w) }, kit.ExitLost},
		"store gone":                        {"", 1, func(j *job, _, _ int) { j.hideStore() }, kit.ExitLost},
		"store gone, TERM ignored, setsid":  {"setsid deaf", 2, func(j *job, _, _ int) { j.hideStore() }, kit.ExitLost},
		"deposed, TERM ignored":             {"deaf", 1, func(j *job, _, _ int) { j.stepDown() }, kit.ExitLost},
		"frozen with exec and its watchdog": {"deaf", 1, (*job).sleep, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := fileURL(t)
			a := startJob(t, url, testValidity, "", c.how)
			pid, watchdog := a.works(c.workers)
			var b *job
			follow := func() {
				b = startJob(t, url, testValidity, "", "")
				eventually(t, "b waits", func() bool { return strings.Contains(b.err.String(), "waiting for") || len(traces(t, b.dir)) > 0 })
			}
			if !strings.Contains(name, "store gone") {
				follow()
			}
			c.harm(a, pid, watchdog)
			last := a.dies()
			if c.status != 0 {
				if got := a.status(); got != c.status {
					t.Errorf("status %d, want %d", got, c.status)
				}
			}
			if b == nil {
				a.showStore()
				follow()
			}
			b.works(1)
			if first := traces(t, b.dir)[0].first; first <= last {
				t.Errorf("the next command began at %.3f, and the last one wrote until %.3f", first, last)
			}
		})
	}
}

func (j *job) storeDir() string {
	for _, a := range j.cmd.Args {
		if u, err := url.Parse(a); err == nil && u.Scheme == "file" {
			return u.Path
		}
	}
	panic("no store")
}

// hideStore makes all requests to the store fail, until showStore.
func (j *job) hideStore() {
	if err := os.Rename(j.storeDir(), j.storeDir()+".hidden"); err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) showStore() {
	if err := os.Rename(j.storeDir()+".hidden", j.storeDir()); err != nil && !os.IsNotExist(err) {
		j.t.Fatal(err)
	}
}

func (j *job) stepDown() { must(j.t, "", "step-down", "file://"+j.storeDir()) }

// sleep freezes everything, as the suspend of a machine does, until the deadline has passed.
// Then the watchdog wakes first.
func (j *job) sleep(pid, watchdog int) {
	j.freeze()
	for _, p := range []int{watchdog, -pid} {
		_ = syscall.Kill(p, syscall.SIGSTOP)
	}
	eventually(j.t, "the lease has ended", func() bool { return now() > traces(j.t, j.dir)[0].kill+1 })
	_ = syscall.Kill(watchdog, syscall.SIGCONT)
}

// TestExecStatus: the exit status is the command's.
func TestExecStatus(t *testing.T) {
	log := fileURL(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -TERM $$": 143, "kill -USR1 $$": 138} {
		if got := exitStatus(t, command(t, "exec", log, "--", "sh", "-c", script).Run()); got != want {
			t.Errorf("%s: status %d, want %d", script, got, want)
		}
	}
}

// TestExecConsul797: SIGTERM reaches the command, what it has started, and then exec ends. In
// consul lock the command went on without it.
func TestExecConsul797(t *testing.T) {
	t.Parallel()
	j := startJob(t, fileURL(t), testValidity, "", "children")
	j.works(4)
	j.signal(syscall.SIGTERM)
	if got := j.status(); got != 143 {
		t.Errorf("status %d", got)
	}
	j.dies()
}

// TestExecConsul2022: when the lead is lost, the command's own children die too. In consul
// lock only the shell between did.
func TestExecConsul2022(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	self, _ := os.Executable()
	j := startCommand(t, testValidity, log, "--", "sh", "-c", self+" worker deaf; true")
	j.works(1)
	j.stepDown()
	j.dies()
	if got := j.status(); got != kit.ExitLost {
		t.Errorf("status %d", got)
	}
}

// TestExecConsul2489: no signal that ends exec leaves the command behind. Of consul lock all
// but SIGTERM did.
func TestExecConsul2489(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGSEGV} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			j := startJob(t, fileURL(t), calmValidity, "", "setsid")
			j.works(2)
			j.signal(s)
			j.status()
			j.dies()
		})
	}
}

// TestExecConsul4439: signals end exec also while it waits. Consul lock discarded them.
func TestExecConsul4439(t *testing.T) {
	log := fileURL(t)
	a := startJob(t, log, calmValidity, "", "")
	a.works(1)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			b := startJob(t, log, calmValidity, "", "")
			eventually(t, "b waits", func() bool { return strings.Contains(b.err.String(), "waiting for") })
			b.signal(s)
			if got := b.status(); got != 128+int(s) {
				t.Errorf("status %d", got)
			}
			if len(traces(t, b.dir)) > 0 {
				t.Error("the command ran")
			}
		})
	}
}

// TestExecConsul9788 and etcd 7983: when no heartbeat gets through, the command gets SIGTERM
// before the lease ends, and ends by itself. Consul lock told it 90 s later, etcdctl lock never.
func TestExecConsul9788Etcd7983(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	said := t.TempDir() + "/said"
	script := "trap 'cat /proc/uptime $FENCEPOST_DEADLINE_FILE >" + said + "; exit 9' TERM; : >" + said + "; while :; do sleep 0.05; done"
	c := command(t, "exec", "--validity", (2 * testValidity).String(), log, "--", "sh", "-c", script)
	errs := &buffer{}
	c.Stderr = errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, cmd: c, dir: t.TempDir(), err: errs}
	defer func() { _ = c.Process.Kill() }()
	eventually(t, "the command runs", func() bool { _, err := os.Stat(said); return err == nil })
	j.hideStore()
	defer j.showStore()
	if got := exitStatus(t, c.Wait()); got != kit.ExitLost {
		t.Errorf("status %d: %s", got, errs)
	}
	b, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	var at, idle, term, kill float64
	var epoch int
	if _, err := fmt.Sscanf(string(b), "%f %f\nepoch=%d\nterm=%f\nkill=%f\n", &at, &idle, &epoch, &term, &kill); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	// The clock of /proc/uptime is exact to 10 ms.
	if at < term-0.02 || at > kill || epoch != 1 {
		t.Errorf("SIGTERM came at %.3f, it was due at %.3f, and SIGKILL at %.3f", at, term, kill)
	}
}

// TestExecNoWait: with --no-wait exec gives up if somebody leads, and not if its lock has lapsed.
func TestExecNoWait(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	a := startJob(t, log, testValidity, "", "")
	a.works(1)
	if got := exitStatus(t, command(t, "exec", "-n", log, "--", "true").Run()); got != kit.ExitBusy {
		t.Errorf("-n: status %d", got)
	}
	if got := exitStatus(t, command(t, "exec", "--wait", "300ms", log, "--", "true").Run()); got != kit.ExitBusy {
		t.Errorf("--wait: status %d", got)
	}
	a.signal(syscall.SIGKILL)
	a.dies()
	eventually(t, "-n wins when the lock has lapsed", func() bool {
		return exitStatus(t, command(t, "exec", "-n", "--validity", testValidity.String(), log, "--", "true").Run()) == 0
	})
}

// TestExecFirstNoWait: of many that begin at once with --no-wait, where nobody has led, one wins.
func TestExecFirstNoWait(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	j := startJob(t, log, calmValidity, "-n", "")
	k := startJob(t, log, calmValidity, "-n", "")
	eventually(t, "one of them works", func() bool { return len(traces(t, j.dir))+len(traces(t, k.dir)) > 0 })
	winner, loser := j, k
	if len(traces(t, k.dir)) > 0 {
		winner, loser = k, j
	}
	if got := loser.status(); got != kit.ExitBusy {
		t.Errorf("status %d", got)
	}
	winner.signal(syscall.SIGTERM)
	winner.status()
}

// TestExecRestart: the command is started again, each time in an epoch of its own, and SIGTERM ends it for good.
func TestExecRestart(t *testing.T) {
	t.Parallel()
	// Who was told to step down leaves the lead to others for two fifths of a validity.
	j := startJob(t, fileURL(t), 20*time.Second, "--restart", "")
	for n := 1; n <= 2; n++ {
		pid, _ := j.works(n)
		_ = pid
		for _, tr := range traces(t, j.dir) {
			if alive(tr.pid) {
				_ = syscall.Kill(tr.pid, syscall.SIGKILL)
			}
		}
	}
	j.works(3)
	epochs := map[int]bool{}
	for _, tr := range traces(t, j.dir) {
		epochs[tr.epoch] = true
	}
	if len(epochs) != 3 {
		t.Errorf("three commands had the epochs %v", epochs)
	}
	holder := parsed[survey.Lock](t, "status", "--json", "file://"+j.storeDir()).Leader.Holder
	for _, tr := range traces(t, j.dir) {
		if tr.holder != holder || holder == "" {
			t.Errorf("the command's FENCEPOST_HOLDER is %q, and %q leads", tr.holder, holder)
		}
	}
	// After a lost lead it waits, and leads again.
	j.stepDown()
	j.works(4)
	if !strings.Contains(j.err.String(), "waiting to lead again") || !slices.ContainsFunc(traces(t, j.dir), func(tr trace) bool { return tr.epoch > 3 }) {
		t.Errorf("it has not led again: %s", j.err)
	}
	j.signal(syscall.SIGTERM)
	if got := j.status(); got != 143 {
		t.Errorf("status %d", got)
	}
	j.dies()
}

// TestExecRestartLostAfterSignal: the lead is lost while the command, which got SIGINT, still runs. Exec does not lead
// again, as it does not start a command again that has ended after a signal.
func TestExecRestartLostAfterSignal(t *testing.T) {
	t.Parallel()
	j := startJob(t, fileURL(t), testValidity, "--restart", "deaf")
	j.works(1)
	j.signal(syscall.SIGINT)
	j.stepDown()
	if got := j.status(); got != kit.ExitLost {
		t.Errorf("status %d, want %d: %s", got, kit.ExitLost, j.err)
	}
	j.dies()
	for _, tr := range traces(t, j.dir) {
		if tr.epoch > 1 {
			t.Errorf("it has led again, in epoch %d", tr.epoch)
		}
	}
}

// TestExecSlowEnd: a command that was told to end takes longer than the validity. The lock is
// renewed meanwhile, and nobody else begins.
func TestExecSlowEnd(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	a := startJob(t, log, testValidity, "", "slow")
	a.works(1)
	b := startJob(t, log, testValidity, "", "")
	eventually(t, "b waits", func() bool { return strings.Contains(b.err.String(), "waiting for") })
	a.signal(syscall.SIGTERM)
	if got := a.status(); got != 5 {
		t.Errorf("status %d: %s", got, a.err)
	}
	last := a.dies()
	b.works(1)
	if first := traces(t, b.dir)[0].first; first <= last {
		t.Errorf("the next command began at %.3f, and the last one wrote until %.3f", first, last)
	}
}

// TestExecGrace: with --grace a command that ignores SIGTERM is killed so long after it, also if exec is told to end.
func TestExecGrace(t *testing.T) {
	t.Parallel()
	j := startJob(t, fileURL(t), calmValidity, "--grace 500ms", "deaf")
	j.works(1)
	j.signal(syscall.SIGTERM)
	if got := j.status(); got != 137 {
		t.Errorf("status %d: %s", got, j.err)
	}
	j.dies()
}

// TestExecPassesFilesAndSignals: the command has the files, the environment and the dispositions
// that exec was started with, and gets its signals.
func TestExecPassesFilesAndSignals(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := command(t, "exec", fileURL(t), "--", "bash", "-c", `
		read line; echo "$line $FENCEPOST_EPOCH" >&3
		yes | head -1 >&3 # a process that writes to a closed pipe dies of it
		echo "${PIPESTATUS[0]}" >&3
		trap 'echo usr1 >&3; exit 3' USR1; echo ready >&3; while :; do sleep 0.02; done`)
	c.Env = append(c.Env, "FENCEPOST_EPOCH=99") // as in an exec within an exec
	c.ExtraFiles = []*os.File{w}
	c.Stdin = strings.NewReader("input\n")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	lines := bufio.NewScanner(r)
	var got []string
	for lines.Scan() {
		got = append(got, lines.Text())
		if lines.Text() == "ready" {
			_ = c.Process.Signal(syscall.SIGUSR1)
		}
	}
	if status := exitStatus(t, c.Wait()); status != 3 {
		t.Errorf("status %d", status)
	}
	if want := "input 1|y|141|ready|usr1"; strings.Join(got, "|") != want {
		t.Errorf("%q, want %q", strings.Join(got, "|"), want)
	}
}

// TestExecCannotRun: what cannot be run is an error before anybody waits.
func TestExecCannotRun(t *testing.T) {
	log := fileURL(t)
	a := startJob(t, log, testValidity, "", "")
	a.works(1)
	for path, want := range map[string]int{"/etc/passwd": kit.ExitNotRunnable, "no-such-command": kit.ExitNotFound, "/no/such": kit.ExitNotFound} {
		if got := exitStatus(t, command(t, "exec", log, "--", path).Run()); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
}

// TestExecTemporaryDirectory: a command that goes to another directory finds the file with its deadline. A directory that
// is missing is an error that says what to set.
func TestExecTemporaryDirectory(t *testing.T) {
	c := command(t, "exec", fileURL(t), "--", "sh", "-c", "cd / && cat $FENCEPOST_DEADLINE_FILE")
	c.Dir, c.Env = t.TempDir(), append(c.Env, "TMPDIR=.")
	if out, err := c.Output(); err != nil || !strings.HasPrefix(string(out), "epoch=1\n") {
		t.Errorf("%v: %s", err, out)
	}
	c = command(t, "exec", fileURL(t), "--", "true")
	c.Env = append(c.Env, "TMPDIR=/no/such")
	if out, err := c.CombinedOutput(); exitStatus(t, err) != 1 || !strings.Contains(string(out), "set TMPDIR") {
		t.Errorf("%v: %s", err, out)
	}
	// Nobody has led for that: a directory that hangs must keep no lead.
	if r := run(t, "", "history", c.Args[len(c.Args)-3]); r.status == 0 {
		t.Errorf("there was a leader: %s", r.out)
	}
}

// TestExecNotAProgram: a script that is no program is an error that says so.
func TestExecNotAProgram(t *testing.T) {
	path := writeFile(t, "no program")
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "exec", fileURL(t), "--", path).CombinedOutput()
	if got := exitStatus(t, err); got != kit.ExitNotRunnable || !strings.Contains(string(out), "exec format error") {
		t.Errorf("status %d: %s", got, out)
	}
}

// TestExecPoll: the one that waits sees at once that the leader is about to end.
func TestExecPoll(t *testing.T) {
	t.Parallel()
	log := fileURL(t)
	a := startJob(t, log, calmValidity, "-v", "") // a failed test shows the moments
	a.works(1)
	b := startJob(t, log, calmValidity, "-v --poll 100ms", "")
	eventually(t, "b waits", func() bool { return strings.Contains(b.err.String(), "waiting for") })
	eventually(t, "b's note", func() bool {
		_, err := os.Stat(strings.TrimPrefix(log, "file://") + "/lock/candidate.json")
		return err == nil
	})
	at := now()
	a.signal(syscall.SIGTERM)
	b.works(1)
	heartbeat := calmValidity.Seconds() * 2 / 5
	if took := traces(t, b.dir)[0].first - at; took > heartbeat/4 {
		t.Errorf("the next command began %.1f s after SIGTERM, and a heartbeat is %.0f s", took, heartbeat)
	}
	b.signal(syscall.SIGTERM)
	b.status()
}

// TestExecNumbers: how long it takes until the next command runs. A busy machine delays some rounds, so
// the best round must be as fast as docs/exec.md says.
func TestExecNumbers(t *testing.T) {
	const rounds = 5
	var crash, term, gap []float64
	for range rounds {
		log := fileURL(t)
		next := func() *job {
			b := startJob(t, log, testValidity, "", "")
			eventually(t, "b waits", func() bool { return strings.Contains(b.err.String(), "waiting for") })
			return b
		}
		a := startJob(t, log, testValidity, "", "")
		a.works(1)
		b := next()
		at := now()
		a.signal(syscall.SIGKILL)
		b.works(1)
		crash = append(crash, (traces(t, b.dir)[0].first-at)/testValidity.Seconds())
		c := next()
		time.Sleep(testValidity / 2) // until the candidate's note is there, as in steady state
		at = now()
		b.signal(syscall.SIGTERM)
		last := b.dies()
		c.works(1)
		term = append(term, traces(t, c.dir)[0].first-at)
		gap = append(gap, traces(t, c.dir)[0].first-last)
		c.signal(syscall.SIGTERM)
		c.status()
	}
	for _, all := range [][]float64{crash, term, gap} {
		slices.Sort(all)
	}
	t.Logf("next command after kill -9, in validities: %.2f", crash)
	t.Logf("next command after SIGTERM to exec, in seconds: %.2f; after the last command's end: %.2f", term, gap)
	mostCrash, mostTerm := 1.15, 0.5
	if testing.Short() { // make modules: with the race detector, beside other tests. make bench-handover measures it alone
		mostCrash, mostTerm = 1.5, 2
	}
	if crash[0] > mostCrash || term[0] > mostTerm {
		t.Errorf("the next command ran %.2f validities after kill -9, and %.2f s after SIGTERM", crash[0], term[0])
	}
	// This finds a candidate that often waits for a second validity.
	if crash[rounds/2] > 1.9 {
		t.Errorf("after kill -9 the next command ran after %.2f validities", crash[rounds/2])
	}
}
