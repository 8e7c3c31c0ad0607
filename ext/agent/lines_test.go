package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// upgrade asks for a session over lines.
func (s *served) upgrade(query, protocol string) (*http.Response, net.Conn, *bufio.Reader) {
	s.t.Helper()
	c, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "GET /lines?%s HTTP/1.1\r\nHost: agent\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", query, protocol); err != nil {
		s.t.Fatal(err)
	}
	in := bufio.NewReader(c)
	a, err := http.ReadResponse(in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return a, c, in
}

// A session over HTTP/1.1: the same lines as on standard input and output. It ends with the client's input.
//
// guard:agent-upgrade. Without this check: a page in a browser opens a WebSocket to this machine; the agent leads the log for
// whoever has written the page, who need not see the answer.
func TestLines(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	s := serve(t, l, &agent.Options{})
	a, c, in := s.upgrade("url="+url+"&promise=60s", agent.Upgrade) //nolint:bodyclose // the connection is closed
	if a.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(a.Status)
	}
	want := func(text string) {
		t.Helper()
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("no %s: %v", text, err)
			}
			if strings.Contains(line, text) {
				return
			}
		}
	}
	want(`"event":"leading"`)
	if _, err := io.WriteString(c, `{"text":"a","cursor":"1"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	want(`"first":0,"end":1`)
	for _, refused := range []struct {
		query, protocol, says string
		status                int
	}{
		{"url=" + url, "websocket", "Upgrade", http.StatusUpgradeRequired},
		{"url=" + url + "&promise=soon", agent.Upgrade, "promise is", http.StatusBadRequest},
		{"url=" + url + "&promise=1ms", agent.Upgrade, "Promise 1ms must be", http.StatusBadRequest},
	} {
		a, _, _ := s.upgrade(refused.query, refused.protocol) //nolint:bodyclose // the connection is closed
		if body, err := io.ReadAll(a.Body); err != nil || a.StatusCode != refused.status || !strings.Contains(string(body), refused.says) {
			t.Errorf("%d %s, %v", a.StatusCode, body, err)
		}
	}
	_, _, other := s.upgrade("url="+url+"&wait=false", agent.Upgrade) //nolint:bodyclose // the connection is closed
	in, other = other, in
	want(`"code":"busy"`)
	in = other
	if _, err := io.WriteString(c, `{"text":"b","cursor":"2"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	want(`"event":"ended","end":2`)
	if _, err := in.ReadString('\n'); err != io.EOF {
		t.Error(err)
	}
}
