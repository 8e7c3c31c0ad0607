package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/page"
)

// dial opens a connection, on which a test sends what it likes.
func dial(t *testing.T, address, request string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// TestListensOnThisMachine: only who says so with --listen lets other machines in.
func TestListensOnThisMachine(t *testing.T) {
	flags := 0
	for c := range family(rootCommand(&kit.Kit{})) {
		f := c.Flags().Lookup("listen")
		if f == nil {
			continue
		}
		flags++
		if f.DefValue != "" && !page.Loopback(f.DefValue) {
			t.Errorf("%s listens on %s by default", c.Name(), f.DefValue)
		}
	}
	if flags < 3 {
		t.Errorf("only %d verbs have --listen", flags)
	}
}

// TestListenSlowClients: a client that announces a body and never sends it loses its connection. A stream is not
// cut off by that bound.
func TestListenSlowClients(t *testing.T) {
	t.Parallel() // it waits for real time
	url := newLog(t, memURL(t))
	address, _, _ := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", url)
	const get = "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
	stream, events := dial(t, address, fmt.Sprintf(get, "/events", ""))
	slow, answer := dial(t, address, fmt.Sprintf(get, "/healthz", "Content-Length: 10\r\n"))
	_ = slow.SetReadDeadline(time.Now().Add(kit.RequestTime + 10*time.Second))
	if _, err := io.Copy(io.Discard, answer); err != nil {
		t.Errorf("the connection is open after %v: %v", kit.RequestTime, err)
	}
	_ = stream.SetReadDeadline(time.Now().Add(20 * time.Second))
	began := time.Now()
	for n := 0; time.Since(began) < 5*time.Second; n++ { // what it has kept from before comes at once
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream has ended: %v, after %q", err, line)
		}
	}
}

// TestListenConnections: there are never more than so many connections, and one that waits is served when another ends.
func TestListenConnections(t *testing.T) {
	a := &kit.Kit{Console: &kit.Console{}}
	release := make(chan struct{})
	var address string
	var served atomic.Int32
	stop, err := a.Listen("127.0.0.1:0", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served.Add(1)
		<-release
	}), func(at net.Addr) { address = at.String() })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for range kit.MaxConnections + 1 {
		dial(t, address, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	}
	eventually(t, "all but one are served", func() bool { return served.Load() >= kit.MaxConnections })
	time.Sleep(200 * time.Millisecond)
	if n := served.Load(); n != kit.MaxConnections {
		t.Errorf("%d are served at once", n)
	}
	close(release)
	eventually(t, "the last one is served", func() bool { return served.Load() == kit.MaxConnections+1 })
}

// TestServeHost: on connections from this machine a page that has made up a name for it gets nothing, whatever
// address serve listens on.
func TestServeHost(t *testing.T) {
	url := newLog(t, memURL(t))
	address, _, _ := background(t, nil, "serve", "--listen", ":0", url)
	port := address[strings.LastIndex(address, ":"):]
	_, r := dial(t, "127.0.0.1"+port, "GET /healthz HTTP/1.0\r\n\r\n") // as HAProxy checks
	if b, err := io.ReadAll(r); err != nil || !strings.HasPrefix(string(b), "HTTP/1.0 200") {
		t.Errorf("without a host: %s %v", b, err)
	}
	if r := getAs(t, "http://127.0.0.1"+port+"/metrics", "myhost"+port); r != 200 { // Debian has the machine's name at 127.0.1.1
		t.Errorf("metrics by another name: %d", r)
	}
	for host, want := range map[string]int{
		"localhost" + port: 200, "LOCALHOST": 200, "127.0.0.1" + port: 200, "[::1]" + port: 200, "[::1]": 200, "192.0.2.7" + port: 200,
		"evil.example" + port: 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "127.1": 421,
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1"+port+"/state.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if r.StatusCode != want || want == 421 && !strings.Contains(string(b), "Host: localhost") {
			t.Errorf("%s: %d %s, want %d", host, r.StatusCode, b, want)
		}
	}
}

// getAs asks for a URL by another name of its host, and returns the status.
func getAs(t *testing.T, url, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}
