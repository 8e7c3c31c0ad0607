package agent

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestPeer: another user whom the socket's directory lets in, because its mode was changed later, is refused all the same.
//
// guard:agent-peer. Without this check: an operator runs chmod 755 on the directory of a running agent; another user of the
// machine appends to the log with the agent's rights.
func TestPeer(t *testing.T) {
	served := own(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") }))
	for uid, want := range map[int]int{os.Getuid(): 200, 0: 200, os.Getuid() + 7: 403, -1: 403} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		served.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), peerUID{}, uid)))
		if w.Code != want {
			t.Errorf("uid %d: %d %s", uid, w.Code, w.Body)
		}
	}
	dir, err := os.MkdirTemp("", "fencepost-peer-") //nolint:usetesting // another user must get there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "agent.sock")
	l, err := socket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: served, ConnContext: peer}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	for p, mode := range map[string]os.FileMode{dir: 0o755, path: 0o777} {
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
	}
	if got := asks(t, path, os.Getuid()); !strings.Contains(got, "200 OK") {
		t.Errorf("this user: %s", got)
	}
	if os.Getuid() == 0 { // others cannot be somebody else; they have the cases above
		if got := asks(t, path, 65534); !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, "this is uid 65534") {
			t.Errorf("another user: %s", got)
		}
	}
}

// asks sends a request as a user, and returns the answer.
func asks(t *testing.T, path string, uid int) string {
	t.Helper()
	answer := make(chan string)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		const keep = ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			answer <- errno.Error()
			return
		}
		c, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		b, _ := io.ReadAll(c)
		answer <- string(b)
	}()
	return <-answer
}
