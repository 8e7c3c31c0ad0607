package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// overSocket is a client of an agent at a unix socket.
func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// ask sends a message in JSON.
func ask(t *testing.T, c *http.Client, base, method, body, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/fencepost.agent.v1.Agent/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	b, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(b)
}

// TestAgent: a process of its own, at a socket, for curl and the like; SIGTERM ends it.
func TestAgent(t *testing.T) {
	url, sock := newLog(t, fileURL(t)), filepath.Join(t.TempDir(), "own", "agent.sock")
	c := command(t, "agent", "--lead", "--listen", "unix:"+sock, url)
	var errs buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent leads", func() bool {
		status, body := ask(t, overSocket(sock), "http://agent", "Append", `{"records":["YQ=="]}`, "")
		if status != 0 && status != 200 && !strings.Contains(body, "does not lead") {
			t.Fatalf("%d %s", status, body)
		}
		return status == 200
	})
	if status, body := ask(t, overSocket(sock), "http://agent", "Status", `{}`, ""); status != 200 || !strings.Contains(body, `"end":"1"`) || !strings.Contains(body, `"here":true`) {
		t.Errorf("%d %s", status, body)
	}
	if r := run(t, "", "agent", "--listen", "unix:"+sock, url); r.status != 64 || !strings.Contains(r.err, "another agent listens") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := exitStatus(t, c.Wait()); status != 143 {
		t.Errorf("status %d: %s", status, errs.String())
	}
	if got := contents(t, url); got != "a" {
		t.Errorf("%q", got)
	}
	if _, err := os.Lstat(sock); err == nil {
		t.Error("the socket is left")
	}
}

// A token is read again when it is replaced, and a Host that was not named is refused.
func TestAgentTCP(t *testing.T) {
	url, token := newLog(t, memURL(t)), writeFile(t, "one\n")
	address, _, _ := background(t, nil, "agent", "--listen", "127.0.0.1:0", "--token-file", token, url)
	status := func(with string) int {
		n, _ := ask(t, http.DefaultClient, address, "Status", `{}`, with)
		return n
	}
	if a, b, c := status("one"), status("two"), status(""); a != 200 || b != 401 || c != 401 {
		t.Errorf("%d %d %d", a, b, c)
	}
	if err := os.WriteFile(token, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := status("one"), status("two"); a != 401 || b != 200 {
		t.Errorf("after it was replaced: %d %d", a, b)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "evil.example"
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	a.Body.Close()
	if a.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("%d", a.StatusCode)
	}
}

// TestAgentTLSCertificate: all of HTTP is served over TLS, HTTP/2 too, which gRPC needs, and a certificate is read again.
func TestAgentTLSCertificate(t *testing.T) {
	url, token, dir := newLog(t, memURL(t)), writeFile(t, "one"), t.TempDir()
	cert, key, pool := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), x509.NewCertPool()
	selfSigned(t, cert, key, pool)
	address, _, _ := background(t, nil, "agent", "--listen", "127.0.0.1:0", "--token-file", token, "--tls-cert", cert, "--tls-key", key, url)
	for range 2 {
		for _, two := range []bool{false, true} {
			p := new(http.Protocols)
			p.SetHTTP1(!two)
			p.SetHTTP2(two)
			c := &http.Client{Transport: &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}}
			if status, body := ask(t, c, address, "Status", `{}`, "one"); status != 200 {
				t.Errorf("HTTP/2 %v: %d %s", two, status, body)
			}
		}
		pool = x509.NewCertPool()
		selfSigned(t, cert, key, pool)
	}
}

// selfSigned makes a certificate of this machine, and adds it to a pool.
func selfSigned(t *testing.T, certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// authorized sends a request with a token and a Host.
func authorized(t *testing.T, c *http.Client, url, token, host string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a, string(b)
}

// certificate writes a certificate for 127.0.0.1 and its key to files, and returns a client that trusts it.
func certificate(t *testing.T) (c *http.Client, cert, key string) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	der, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return writeFile(t, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})))
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	return c, block("CERTIFICATE", s.Certificate().Raw), block("PRIVATE KEY", der)
}

// overTLS starts a verb, and asks it for a path over HTTP/2 with TLS and a token that is replaced.
func overTLS(t *testing.T, path string, known int, verb, url string) {
	t.Helper()
	token := writeFile(t, "one\n")
	c, cert, key := certificate(t)
	address, _, stop := background(t, nil, verb, "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--token-file", token, url)
	defer stop()
	status := func(with string) int {
		a, body := authorized(t, c, address+path, with, "") //nolint:bodyclose // authorized closes it
		if a.ProtoMajor != 2 {
			t.Errorf("%s: %s", a.Proto, body)
		}
		return a.StatusCode
	}
	if a, b := status("one"), status("two"); a != known || b == a {
		t.Errorf("%d %d", a, b)
	}
	if err := os.WriteFile(token, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := status("one"), status("two"); b != known || b == a {
		t.Errorf("after it was replaced: %d %d", a, b)
	}
}

// The agent speaks HTTP/2 over TLS, which gRPC needs.
func TestAgentTLS(t *testing.T) {
	overTLS(t, "/none", http.StatusNotFound, "agent", newLog(t, memURL(t)))
}

// guard:listen-tcp. Without this check: an operator writes --listen :7400, and everybody in the network can append.
//
// guard:agent-socket. Without this check: the socket is in a directory of mode 0777; another user connects, or puts a socket
// of its own there, and gets the records.
func TestAgentUsage(t *testing.T) {
	url := newLog(t, memURL(t))
	open, file := t.TempDir(), writeFile(t, "token")
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(private(t, "x")), link); err != nil {
		t.Fatal(err)
	}
	for args, says := range map[string]string{
		"--listen unix:" + link + "/agent.sock " + url:                          "is a link",
		"--listen 127.0.0.1:0 " + url:                                           "give --token-file FILE, or --tls-client-ca",
		"--listen nowhere " + url:                                               "write unix:PATH",
		"--listen 127.0.0.1:0 --token-file " + file:                             "give their URLs",
		"--listen :0 --token-file " + file + " " + url:                          "in the clear",
		"--listen :0 --token-file " + file + " --tls-cert x --tls-key y " + url: "--host NAME",
		"--listen 127.0.0.1:0 --token-file " + file + " --tls-cert x " + url:    "go together",
		"--lead": "give their URLs",
		"--listen unix:" + open + "/agent.sock " + url:              "chmod 700",
		"--listen unix:" + file + " --host x " + url:                "are for TCP",
		fmt.Sprintf("--listen unix:%s %s", private(t, "file"), url): "something else than a socket",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // what is not refused would serve for ever
		r := inProcess(ctx, strings.NewReader(""), append([]string{"agent"}, strings.Fields(args)...)...)
		cancel()
		if r.status != 64 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d: %s", args, r.status, r.err)
		}
	}
	empty := writeFile(t, "\n")
	if r := run(t, "", "agent", "--listen", "127.0.0.1:0", "--token-file", empty, url); r.status != 1 || !strings.Contains(r.err, "is empty") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// private makes a file in a directory of mode 0700.
func private(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "own")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
