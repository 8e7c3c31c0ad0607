//go:build unix

package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bucket is the one that every server has.
	bucket = "fencepost-test"
	region = "us-east-1"

	// startLimit is how long a server may take until it answers. stopLimit is how long it
	// may take to end by itself. Both are far longer than usual.
	startLimit = time.Minute
	stopLimit  = 10 * time.Second
)

// Server is a running server. Only the test's own goroutine may call its methods.
type Server struct {
	// Kind is the program.
	Kind *Kind
	// Endpoint is its address: http://127.0.0.1:port. It does not change.
	Endpoint string
	// Bucket is a bucket that exists.
	Bucket string
	// Env is the environment that a child process needs to reach the server: credentials
	// and region, and settings that disable other sources of them. [Start] has set the
	// same for the test itself.
	Env []string

	t         testing.TB
	dir       string // of the program
	data, log string
	addr      string
	p         *process
}

// Start starts a server with an empty bucket and returns when it answers. The server ends
// with the test. Start sets environment variables for the test (AWS_… for a server that
// speaks S3), so the test cannot be parallel; its subtests can.
//
// If the server cannot be installed, the test is skipped; with CI=true it fails. If it is
// installed and does not start, the test always fails.
func Start(t testing.TB, kind *Kind) *Server {
	t.Helper()
	dir, err := kind.Install(t.Context())
	if err != nil {
		unavailable(t, err)
	}
	tmp := t.TempDir()
	s := &Server{
		Kind: kind, Bucket: bucket, t: t, dir: dir,
		data: filepath.Join(tmp, "data"), log: filepath.Join(tmp, "log"),
	}
	if err := os.Mkdir(s.data, 0o755); err != nil {
		t.Fatal(err)
	}
	s.setenv()
	t.Cleanup(s.cleanup)
	// Another process may take the port between choice and start.
	for range 3 {
		if s.addr, err = freeAddr(); err != nil {
			t.Fatal(err)
		}
		s.Endpoint = "http://" + s.addr
		if err = s.start(); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// URL returns the URL of prefix in the server's bucket, as store.Open takes it.
func (s *Server) URL(prefix string) string {
	if s.Kind.api != nil {
		u := s.Kind.api.url(s, prefix)
		return u.String()
	}
	u := url.URL{Scheme: "s3", Host: s.Bucket, Path: "/" + prefix}
	u.RawQuery = url.Values{"endpoint": {s.Endpoint}, "region": {region}}.Encode()
	return u.String()
}

// Stop ends the server by SIGTERM, after 10 s by SIGKILL, and waits until it has ended.
// It does nothing if the server does not run.
func (s *Server) Stop() {
	s.p.signal(unix.SIGTERM)
	select {
	case <-s.p.done:
	case <-time.After(stopLimit):
		s.Kill()
	}
}

// Kill ends the server by SIGKILL and waits until it has ended.
func (s *Server) Kill() {
	s.p.signal(unix.SIGKILL)
	<-s.p.done
}

// Restart starts the server again, with the same address and data. It calls [Server.Stop]
// first. If the server is not [Kind.Durable], its bucket is empty afterwards.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.start(); err != nil {
		s.t.Fatal(err)
	}
}

// start runs the program and waits until its bucket exists.
func (s *Server) start() error {
	argv, env := s.Kind.command(s.dir, s.data, s.addr)
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = filepath.Dir(s.data)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	p, err := spawn(cmd)
	if err != nil {
		return fmt.Errorf("servers: start %s: %w", s.Kind, err)
	}
	s.p = p
	if err := s.ready(); err != nil {
		s.Kill()
		return fmt.Errorf("servers: start %s: %w; its output:\n%s", s.Kind, err, s.printed())
	}
	return nil
}

// ready polls until the bucket exists.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), startLimit)
	defer cancel()
	for {
		err := s.ensureBucket(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.p.done:
			return fmt.Errorf("the process ended at once: %w", errors.Join(s.p.err, err))
		case <-ctx.Done():
			return fmt.Errorf("not ready within %v: %w", startLimit, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// cleanup ends the server. It prints the server's output if the test has failed.
func (s *Server) cleanup() {
	if s.p == nil {
		return
	}
	s.Kill()
	if s.t.Failed() {
		s.t.Logf("%s %s printed:\n%s", s.Kind.Name, s.Kind.Version, s.printed())
	}
}

func (s *Server) printed() []byte {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	return tail(b)
}

func (s *Server) setenv() {
	env := [][2]string{
		{"AWS_ACCESS_KEY_ID", s.Kind.access},
		{"AWS_SECRET_ACCESS_KEY", s.Kind.secret},
		{"AWS_SESSION_TOKEN", ""},
		{"AWS_REGION", region},
		// The developer's own settings must not affect a test.
		{"AWS_PROFILE", ""},
		{"AWS_CONFIG_FILE", os.DevNull},
		{"AWS_SHARED_CREDENTIALS_FILE", os.DevNull},
		{"AWS_EC2_METADATA_DISABLED", "true"},
		{"AWS_ENDPOINT_URL", ""},
		{"AWS_ENDPOINT_URL_S3", ""},
	}
	if s.Kind.api != nil {
		env = s.Kind.api.env
	}
	for _, kv := range env {
		s.t.Setenv(kv[0], kv[1])
		s.Env = append(s.Env, kv[0]+"="+kv[1])
	}
}

// unavailable skips a test whose server is not available, or fails it with CI=true.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skipf("%s needs a server that is not available: %v", t.Name(), err)
}

// freeAddr finds a free address below the range from which the kernel takes the ports of
// outgoing connections. With a port from that range, any connection could take the port
// while the server is down, so that it could not restart. A client that polls the port
// could even be connected to itself.
func freeAddr() (string, error) {
	var last error
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20000+rand.N(12000)))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			continue
		}
		return addr, l.Close()
	}
	return "", fmt.Errorf("servers: no free port on 127.0.0.1: %w", last)
}

func splitAddr(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic("servers: " + err.Error()) // freeAddr has made it
	}
	return host, port
}
