//go:build unix

package servers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pid asks the fake server for its process id. 0: no answer.
func pid(t *testing.T, endpoint string) int {
	t.Helper()
	resp, err := impatient.Get(endpoint)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServerKeepsItsAddress(t *testing.T) {
	s := Start(t, fake(t, "server"))
	first, endpoint := pid(t, s.Endpoint), s.Endpoint
	if first == 0 {
		t.Fatal("the server started, but does not answer")
	}
	for name, end := range map[string]func(){"Stop": s.Stop, "Kill": s.Kill} {
		end()
		if p := pid(t, endpoint); p != 0 {
			t.Errorf("process %d answers after %s", p, name)
		}
		end() // does nothing
		s.Restart()
		second := pid(t, endpoint)
		if second == 0 || second == first || s.Endpoint != endpoint {
			t.Errorf("after %s and Restart, %d answers at %s; before, %d at %s", name, second, s.Endpoint, first, endpoint)
		}
		first = second
	}
	s.Restart() // while it runs
	if p := pid(t, endpoint); p == 0 || p == first {
		t.Errorf("after Restart of running process %d, %d answers", first, p)
	}
	if want := "s3://" + s.Bucket + "/a/b?endpoint=http%3A%2F%2F" + strings.ReplaceAll(s.addr, ":", "%3A") + "&region=us-east-1"; s.URL("a/b") != want {
		t.Errorf("URL is %s, want %s", s.URL("a/b"), want)
	}
}

func TestServerEndsWithItsTest(t *testing.T) {
	var endpoint string
	t.Run("inner", func(t *testing.T) { endpoint = Start(t, fake(t, "server")).Endpoint })
	if p := pid(t, endpoint); p != 0 {
		t.Errorf("process %d still runs after its test", p)
	}
}

// recorder is a test that records how it ended.
type recorder struct {
	testing.TB
	failed, skipped string
}

func (r *recorder) Fatal(args ...any) { r.failed = fmt.Sprint(args...); runtime.Goexit() }
func (r *recorder) Skipf(f string, args ...any) {
	r.skipped = fmt.Sprintf(f, args...)
	runtime.Goexit()
}

func record(t *testing.T, f func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

func TestBrokenServerFailsTheTestWithWhatItPrinted(t *testing.T) {
	k := fake(t, "broken")
	r := record(t, func(t testing.TB) { Start(t, k) })
	for _, want := range []string{"fake-broken", "exit status 7", "no such drive"} {
		if !strings.Contains(r.failed, want) {
			t.Errorf("failed with %q, which does not say %q", r.failed, want)
		}
	}
}

func TestMissingServerSkipsAndFailsInCI(t *testing.T) {
	k := fake(t, "server")
	k.install = npmInstall(os.DirFS(t.TempDir()), ".")
	t.Setenv("PATH", "")
	t.Setenv("CI", "")
	r := record(t, func(t testing.TB) { Start(t, k) })
	if r.failed != "" || !strings.Contains(r.skipped, t.Name()) || !strings.Contains(r.skipped, `"node"`) {
		t.Errorf("failed %q, skipped %q; want a skip that names the test and what is missing", r.failed, r.skipped)
	}
	t.Setenv("CI", "true")
	r = record(t, func(t testing.TB) { Start(t, k) })
	if r.skipped != "" || !strings.Contains(r.failed, `"node"`) {
		t.Errorf("with CI=true: failed %q, skipped %q; want a failure that names what is missing", r.failed, r.skipped)
	}
}

func TestServerDiesWithAKilledTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=parent")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() // its error only says that it was killed
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line)
	}
	if !running(t, child) {
		t.Fatalf("child %d ended before its parent", child)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// An orphan stays a zombie until some process waits for it, so check its state.
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if !running(t, child) {
			return
		}
		if time.Now().After(deadline) {
			_ = unix.Kill(child, unix.SIGKILL)
			t.Fatalf("child %d still runs after its parent was killed", child)
		}
	}
}

func running(t *testing.T, pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestFreeAddrIsOutsideTheEphemeralRange(t *testing.T) {
	for range 20 {
		addr, err := freeAddr()
		if err != nil {
			t.Fatal(err)
		}
		_, p := splitAddr(addr)
		if n, err := strconv.Atoi(p); err != nil || n < 20000 || n >= 32000 {
			t.Errorf("port %s: %v", p, err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
