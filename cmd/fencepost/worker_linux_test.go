package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
)

// asWorker makes the test binary a command that exec runs: see worker.
const asWorker = "FENCEPOST_TEST_AS_WORKER"

func init() {
	if dir := os.Getenv(asWorker); dir != "" && len(os.Args) > 1 && os.Args[1] == "worker" {
		worker(dir, os.Args[2:])
	}
}

// worker writes the time and its deadline to a file of its own, every 2 ms, until it is
// killed. Its arguments say how it evades that.
func worker(dir string, how []string) {
	again := func(attr *syscall.SysProcAttr, how ...string) {
		c := exec.Command("/proc/self/exe", append([]string{"worker"}, how...)...)
		c.SysProcAttr = attr
		if err := c.Start(); err != nil {
			panic(err)
		}
	}
	for _, h := range how {
		switch h {
		case "deaf":
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
		case "children":
			again(nil, "deaf")
			again(nil, "deaf", "child")
		case "child":
			again(nil, "deaf")
		case "setsid":
			again(&syscall.SysProcAttr{Setsid: true}, "deaf", "daemon")
		case "daemon": // its own child outlives it
			again(&syscall.SysProcAttr{Setsid: true}, "deaf")
			os.Exit(0)
		case "exit":
			os.Exit(7)
		case "slow": // to end
			c := make(chan os.Signal, 1)
			signal.Notify(c, syscall.SIGTERM)
			go func() {
				<-c
				time.Sleep(6 * time.Second)
				os.Exit(5)
			}()
		}
	}
	f, err := os.Create(filepath.Join(dir, strconv.Itoa(os.Getpid())))
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(f, "%s %s\n", os.Getenv("FENCEPOST_EPOCH"), os.Getenv("FENCEPOST_HOLDER"))
	var kill string
	for ; ; time.Sleep(2 * time.Millisecond) {
		if b, err := os.ReadFile(os.Getenv("FENCEPOST_DEADLINE_FILE")); err == nil {
			_, kill, _ = strings.Cut(strings.TrimSpace(string(b)), "kill=")
		}
		fmt.Fprintf(f, "%v %s\n", supervise.Now(), kill)
	}
}

// trace is what a worker wrote.
type trace struct {
	pid         int
	epoch       int
	holder      string
	first, last float64 // when it wrote
	kill        float64 // its last deadline
}

// traces reads what the workers of a job wrote.
func traces(t testing.TB, dir string) (all []trace) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var tr trace
		tr.pid, _ = strconv.Atoi(filepath.Base(name))
		for sc := bufio.NewScanner(f); sc.Scan(); {
			a, b, _ := strings.Cut(sc.Text(), " ")
			if tr.epoch == 0 {
				tr.epoch, _ = strconv.Atoi(a)
				tr.holder = b
				continue
			}
			at, err := strconv.ParseFloat(a, 64)
			if kill, kerr := strconv.ParseFloat(b, 64); err == nil && kerr == nil {
				tr.last, tr.kill = at, max(tr.kill, kill)
				if tr.first == 0 {
					tr.first = at
				}
			}
		}
		_ = f.Close()
		all = append(all, tr)
	}
	return all
}

// job is a fencepost exec that runs workers.
type job struct {
	t        testing.TB
	args     []string
	cmd      *exec.Cmd
	dir      string // where its workers write
	again    int    // how often it was started again
	validity time.Duration
	ended    chan error
	err      *buffer
}

// startJob starts fencepost exec with flags, and a worker that is as how says.
func startJob(t testing.TB, url string, validity time.Duration, flags, how string) *job {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, validity, slices.Concat(strings.Fields(flags), []string{url, "--", self, "worker"}, strings.Fields(how))...)
}

// startCommand starts fencepost exec with args, of which the command is a part.
func startCommand(t testing.TB, validity time.Duration, args ...string) *job {
	t.Helper()
	j := &job{t: t, args: append([]string{"exec", "--validity", validity.String()}, args...), validity: validity, ended: make(chan error, 1), err: &buffer{}}
	t.Cleanup(j.clean)
	j.start()
	return j
}

func (j *job) start() {
	j.t.Helper()
	j.cmd, j.dir = command(j.t, j.args...), j.t.TempDir()
	j.cmd.Env = append(j.cmd.Env, asWorker+"="+j.dir)
	j.cmd.Stderr = j.err
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	go func(c *exec.Cmd) { j.ended <- c.Wait() }(j.cmd)
}

// clean kills what a failed test has left. Each process is known by the job's directory in its
// environment.
func (j *job) clean() {
	for range 3 {
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if env, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err == nil && strings.Contains(string(env), asWorker+"="+j.dir) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if j.t.Failed() {
		j.t.Logf("exec: %s", j.err)
	}
}

// works waits until n workers write and know their deadline, and returns the process that
// exec has started, and its watchdog. A machine that stands still for the short lease of a test
// ends exec before that. Then it is started again, up to five times.
func (j *job) works(n int) (pid, watchdog int) {
	j.t.Helper()
	var all []trace
	eventually(j.t, fmt.Sprintf("%d workers of %s; %s", n, j.dir, j.err), func() bool {
		all = slices.DeleteFunc(traces(j.t, j.dir), func(tr trace) bool { return tr.kill == 0 })
		select {
		case err := <-j.ended:
			if exit := (*exec.ExitError)(nil); j.validity < calmValidity && j.again < 5 && len(all) < n && asExit(err, &exit) && exit.ExitCode() == kit.ExitLost {
				j.again++
				j.t.Logf("exec has lost its lease before its workers began; starting it again: %s", j.err)
				j.clean()
				j.start()
				return false
			}
			j.ended <- err
		default:
		}
		return len(all) >= n
	})
	for _, tr := range all {
		if parent := parentOf(tr.pid); strings.Contains(cmdline(parent), kit.WatchdogVerb) {
			pid, watchdog = tr.pid, parent
		}
		if group, _ := syscall.Getpgid(tr.pid); group == tr.pid && pid == 0 {
			pid = tr.pid
		}
	}
	return pid, watchdog
}

func cmdline(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(b)
}

func parentOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1])
	return parent
}

// alive reports whether a process runs.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b[strings.LastIndex(string(b), ")"):]), " ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// dies waits until all workers are dead. None may have written after the lease has ended.
func (j *job) dies() (last float64) {
	j.t.Helper()
	all := traces(j.t, j.dir)
	eventually(j.t, "the workers of "+j.dir+" are dead", func() bool {
		return !slices.ContainsFunc(all, func(tr trace) bool { return alive(tr.pid) })
	})
	margin := (j.validity / 10).Seconds()
	var kill float64
	for _, tr := range traces(j.t, j.dir) {
		last, kill = max(last, tr.last), max(kill, tr.kill)
	}
	for _, tr := range traces(j.t, j.dir) {
		if tr.last > kill+margin {
			j.t.Errorf("process %d wrote until %.3f; it should have been killed at %.3f, and the lease ended at %.3f", tr.pid, tr.last, kill, kill+margin)
		}
	}
	return last
}

// status waits until exec has ended.
func (j *job) status() int {
	j.t.Helper()
	select {
	case err := <-j.ended:
		if exit := (*exec.ExitError)(nil); err == nil || asExit(err, &exit) {
			if err == nil {
				return 0
			}
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return -int(ws.Signal())
			}
			return exit.ExitCode()
		}
		j.t.Fatal(err)
	case <-time.After(time.Minute):
		j.t.Fatalf("exec has not ended: %s", j.err)
	}
	return 0
}

func asExit(err error, to **exec.ExitError) (ok bool) {
	*to, ok = errors.AsType[*exec.ExitError](err)
	return ok
}

func (j *job) signal(s syscall.Signal) { _ = j.cmd.Process.Signal(s) }

// freeze stops exec, but not while it writes to the directory: nobody else could write there then, for as long as it stands.
func (j *job) freeze() {
	pid := j.cmd.Process.Pid
	for {
		j.signal(syscall.SIGSTOP)
		eventually(j.t, "exec stands still", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			_, after, _ := strings.Cut(string(stat), ") ")
			return err != nil || strings.HasPrefix(after, "T")
		})
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			j.t.Fatal(err)
		}
		if !regexp.MustCompile(fmt.Sprintf(`(?m)FLOCK +\S+ +WRITE +%d `, pid)).Match(locks) {
			return
		}
		j.signal(syscall.SIGCONT)
		time.Sleep(5 * time.Millisecond)
	}
}

func isWatchdog(pid int) bool { return strings.Contains(cmdline(pid), kit.WatchdogVerb) }
