//go:build integration

package gcsstore_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

func TestConformance(t *testing.T) {
	cloudtest.Conformance(t, servers.Start(t, servers.FakeGCS).URL("storetest"), !test.Whole())
}

func TestProbeAccepts(t *testing.T) {
	cloudtest.Probe(t, servers.Start(t, servers.FakeGCS).URL("probe"))
}

func TestMissingBucketIsNamed(t *testing.T) {
	s := servers.Start(t, servers.FakeGCS)
	s.Bucket = "no-such-bucket"
	// Its answers to GET and DELETE do not say what is missing; Google's do.
	cloudtest.NoBucket(t, s.URL("orders"), s.Bucket, "put", "list")
}

func TestDeadServerTellsNothing(t *testing.T) {
	s := servers.Start(t, servers.FakeGCS)
	cloudtest.DeadServer(t, s.URL("orders"), s.Kill, s.Restart)
}

// TestExample runs the program of examples/lock twice and kills the leader: the
// other takes over.
func TestExample(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "lock")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./examples/lock").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := servers.Start(t, servers.FakeGCS)
	first := start(t, s, bin)
	first.says(t, "epoch 1")
	second := start(t, s, bin)
	second.says(t, "waiting")
	first.kill(t)
	// It says so once a second, and its lease is 5 s: it heartbeats.
	for range 8 {
		second.says(t, "epoch 2")
	}
	second.kill(t)
}

type program struct {
	cmd   *exec.Cmd
	lines chan string
}

func start(t *testing.T, s *servers.Server, bin string) *program {
	t.Helper()
	cmd := exec.Command(bin, s.URL("jobs"))
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{cmd, make(chan string, 1000)}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for more := true; more; { // until it has ended
			_, more = <-p.lines
		}
		_ = cmd.Wait()
	})
	return p
}

func (p *program) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// says waits until the program prints a line that contains what.
func (p *program) says(t *testing.T, what string) {
	t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case line, more := <-p.lines:
			if !more {
				t.Fatalf("it ended and never said %q", what)
			}
			t.Log(line)
			if strings.Contains(line, what) {
				return
			}
		case <-limit:
			t.Fatalf("it never said %q", what)
		}
	}
}
