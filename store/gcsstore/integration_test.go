//go:build integration

package gcsstore_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/integration/servers"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/store/storetest"
)

func open(t testing.TB, url string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestConformance(t *testing.T) {
	s := servers.Start(t, servers.FakeGCS)
	storetest.Run(t, func(tb storetest.TB) store.Store {
		// Each client opens connections of its own.
		st, err := store.Open(tb.Context(), s.URL("storetest"))
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		return st
	}, &storetest.Options{Quick: testing.Short()})
}

func TestProbeAccepts(t *testing.T) {
	url := servers.Start(t, servers.FakeGCS).URL("probe")
	st := open(t, url)
	report, err := probe.Run(t.Context(), st, &probe.Options{
		Open: func(ctx context.Context) (store.Store, error) { return store.Open(ctx, url) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	for _, promise := range []string{probe.Create, probe.CreateAtomic, probe.Swap, probe.SwapAtomic, probe.ListWrite} {
		if !slices.Contains(report.Kept, promise) {
			t.Errorf("the report does not say that %q is kept", promise)
		}
	}
	if !report.ConditionalUpload || report.Leftover != 0 {
		t.Errorf("conditional upload %t, %d objects left", report.ConditionalUpload, report.Leftover)
	}
}

func TestMissingBucketIsNamed(t *testing.T) {
	s := servers.Start(t, servers.FakeGCS)
	s.Bucket = "no-such-bucket"
	st := open(t, s.URL("orders"))
	_, put := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	// Its answers to GET and DELETE do not say what is missing; Google's do.
	for op, err := range map[string]error{"put": put, "list": cloudtest.ListErr(t, st)} {
		if !errors.Is(err, store.ErrNoBucket) || !strings.Contains(err.Error(), s.Bucket) {
			t.Errorf("%s: %v does not say that there is no bucket %s", op, err, s.Bucket)
		}
	}
}

// TestDeadServerTellsNothing: a write to a server that is gone has an unknown
// outcome, and is settled when the server is back.
func TestDeadServerTellsNothing(t *testing.T) {
	s := servers.Start(t, servers.FakeGCS)
	st := open(t, s.URL("orders"))
	s.Kill()
	_, err := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	if err == nil || store.OutcomeOf(err) != store.Unknown {
		t.Errorf("outcome %v of %v, want unknown", store.OutcomeOf(err), err)
	}
	s.Restart()
	if _, err := store.Create(t.Context(), st, "k", []byte("v"), nil); err != nil {
		t.Error(err)
	}
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
