//go:build integration && unix

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/servers"
)

var (
	input     = flag.String("input", "", "the `file` to append; default: this machine's index of Debian packages")
	failovers = flag.Int("failovers", 20, "least number of leaders to kill or freeze")
)

// TestRealInput appends a real file to a real server, line by line. Leaders are killed
// and frozen at random, and a compactor prunes with the least retention. The log must
// then contain the file: each line once, in order.
func TestRealInput(t *testing.T) {
	for _, kind := range []*servers.Kind{servers.MinIO, servers.VersityGW} {
		s := servers.Start(t, kind) // Start sets the environment, which a parallel test may not do
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel() // most of the time it waits for a lock to expire
			realInput(t, s)
		})
	}
}

func realInput(t *testing.T, s *servers.Server) {
	dir := t.TempDir()
	file := realFile(t, dir)
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	bin := buildCommand(t, dir)
	// On loopback the whole file would be appended before the first leader could be
	// killed. So requests are delayed by some of the time that S3 takes.
	logURL := fmt.Sprintf("s3://%s/%s?endpoint=%s&region=us-east-1", s.Bucket, "real-input", distant(t, s.Endpoint, 15*time.Millisecond))
	c := &cluster{t: t, bin: bin, env: append(os.Environ(), s.Env...), url: logURL, file: file, nodes: map[int]*process{}}
	t.Cleanup(c.killAll)

	c.must("init", "--grace", "1s", logURL)
	compact := c.start("compact", "--watch", "--interval", "500ms", "--min-objects", "32", "--keep-locks", "2", "--validity", "1s", logURL)
	done := c.run()
	_ = compact.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	c.await(compact)
	if !done {
		t.FailNow()
	}
	got := c.must("cat", "--format", "raw", c.url)
	if !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("cat printed %d bytes, the input has %d; they differ from byte %d on", len(got), len(want), at)
	}
	c.must("verify", logURL)
	c.compacted()
	// Appending it once more stores nothing.
	c.must("append", "--cursor", "--validity", "1s", logURL, file)
	if again := c.must("cat", "--format", "raw", c.url); len(again) != len(got) {
		t.Errorf("appended again, the log grew from %d to %d bytes", len(got), len(again))
	}
	t.Logf("%s: %d bytes in %d lines; %d leaders killed, %d frozen; %d processes started", s.Kind.Name, len(want), bytes.Count(want, []byte("\n")), c.killed, c.frozen, c.started)
	if c.killed+c.frozen < *failovers {
		t.Errorf("only %d leaders were killed or frozen, want %d; use a larger -input", c.killed+c.frozen, *failovers)
	}
}

// realFile returns a data set that every Debian machine has.
func realFile(t *testing.T, dir string) string {
	if *input != "" {
		return *input
	}
	lists, err := filepath.Glob("/var/lib/apt/lists/*_Packages*")
	if err != nil {
		t.Fatal(err)
	}
	var best []byte
	for _, list := range lists {
		out, err := exec.CommandContext(t.Context(), "/usr/lib/apt/apt-helper", "cat-file", list).Output()
		if err != nil {
			t.Fatalf("%s: %v", list, err)
		}
		if len(out) > len(best) {
			best = out
		}
	}
	if len(best) < 1<<20 {
		msg := "no index of packages under /var/lib/apt/lists; run apt-get update, or use -input FILE"
		if os.Getenv("CI") == "true" {
			t.Fatal(msg)
		}
		t.Skip(msg)
	}
	file := filepath.Join(dir, "Packages")
	if err := os.WriteFile(file, best, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// distant returns the URL of a proxy that delays requests to the server.
func distant(t *testing.T, endpoint string, delay time.Duration) string {
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	// Keep the Host header, because it is part of the signature.
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// cluster is the processes of one log.
type cluster struct {
	t     *testing.T
	bin   string
	env   []string
	url   string
	file  string
	nodes map[int]*process

	killed, frozen, started int
}

type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer // read it after ended
	ended  chan struct{}
	err    error
}

func (c *cluster) start(args ...string) *process {
	c.t.Helper()
	p := &process{cmd: exec.Command(c.bin, args...), stderr: &bytes.Buffer{}, ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = c.env, p.stderr
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.nodes[p.cmd.Process.Pid] = p
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p
}

func (c *cluster) must(args ...string) []byte {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), c.bin, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, &out, &errs
	if err := cmd.Run(); err != nil {
		c.t.Fatalf("fencepost %s: %v\n%s", strings.Join(args, " "), err, &errs)
	}
	return out.Bytes()
}

// compacted checks that folding and pruning took place meanwhile.
func (c *cluster) compacted() {
	c.t.Helper()
	s, err := c.status()
	if err != nil {
		c.t.Fatal(err)
	}
	if m := s.Manifest; m.FloorOffset == 0 || m.PruneMark == 0 {
		c.t.Errorf("the compactor did not fold or prune: floor at %d, prune mark %d", m.FloorOffset, m.PruneMark)
	}
}

// await waits for the end of a process. It must end by itself, or by a signal of the test.
func (c *cluster) await(p *process) {
	c.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		_ = p.cmd.Process.Kill()
		<-p.ended
		c.t.Errorf("%v did not end:\n%s", p.cmd.Args, p.stderr)
	}
	delete(c.nodes, p.cmd.Process.Pid)
	var exit *exec.ExitError
	if p.err == nil || errors.As(p.err, &exit) && (exit.ExitCode() == 130 || exit.ExitCode() == 143) {
		return // done, or asked to end
	}
	if exit == nil || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		c.t.Errorf("%v: %v\n%s", p.cmd.Args, p.err, p.stderr)
	}
}

func (c *cluster) killAll() {
	for _, p := range c.nodes {
		_ = p.cmd.Process.Kill() // works on frozen ones too
		<-p.ended
	}
}

// run keeps three processes appending, and kills or freezes the leader again and again,
// until one has appended the whole file. It wakes a frozen process after others have
// continued for a while.
func (c *cluster) run() bool {
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	var appending []*process
	sleeping := map[*process]time.Time{}
	deadline := time.Now().Add(8 * time.Minute)
	last := fence.Epoch(0) // the epoch whose leader was hit last
	for time.Now().Before(deadline) && !c.t.Failed() {
		for len(appending) < 3 {
			appending = append(appending, c.start("append", "--cursor", "--validity", "1s", "--concurrency", "1", "--batch-bytes", "49152", c.url, c.file))
			c.started++
		}
		var left []*process
		done := false
		for _, p := range appending {
			select {
			case <-p.ended:
				c.await(p)
				done = done || p.err == nil
			default:
				left = append(left, p)
			}
		}
		if done {
			// The whole file is appended. The other processes find nothing to do.
			for p := range sleeping {
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
			}
			for _, p := range left {
				c.await(p)
			}
			return !c.t.Failed()
		}
		appending = left
		for p, since := range sleeping {
			if time.Since(since) > time.Duration(2000+rng.IntN(4000))*time.Millisecond {
				_ = p.cmd.Process.Signal(syscall.SIGCONT)
				delete(sleeping, p)
			}
		}
		time.Sleep(time.Duration(100+rng.IntN(300)) * time.Millisecond)
		pid, epoch := c.leader()
		p := c.nodes[pid]
		if p == nil || epoch == last || sleeping[p] != (time.Time{}) {
			continue
		}
		last = epoch
		time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
		if rng.IntN(2) == 0 || len(sleeping) > 0 {
			if p.cmd.Process.Kill() == nil {
				c.killed++
			}
			<-p.ended
		} else if p.cmd.Process.Signal(syscall.SIGSTOP) == nil {
			c.frozen++
			sleeping[p] = time.Now()
		}
	}
	c.t.Error("the file was not appended, or not within 8 minutes")
	return false
}

// leader returns the process that leads now, from its identity host/pid/uuid.
func (c *cluster) leader() (pid int, epoch fence.Epoch) {
	s, err := c.status()
	parts := strings.Split(s.Leader.Holder, "/")
	if err != nil || !s.Leader.Leads || len(parts) < 3 {
		return 0, 0
	}
	pid, _ = strconv.Atoi(parts[len(parts)-2])
	return pid, s.Leader.Epoch
}

// status is some of what the verb status prints.
type status struct {
	Manifest struct {
		FloorOffset uint64 `json:"floor_offset"`
		PruneMark   uint64 `json:"prune_mark"`
	} `json:"manifest"`
	Leader struct {
		Leads  bool        `json:"leads"`
		Holder string      `json:"holder"`
		Epoch  fence.Epoch `json:"epoch"`
	} `json:"leader"`
}

func (c *cluster) status() (s status, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.bin, "status", "--json", c.url)
	cmd.Env = c.env
	out, err := cmd.Output()
	if err != nil {
		return s, err
	}
	err = json.Unmarshal(out, &s)
	return s, err
}
