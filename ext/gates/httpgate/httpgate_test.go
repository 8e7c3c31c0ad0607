package httpgate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/gates/httpgate"
	"github.com/fencepost/fencepost/fence"
)

// A service keeps one value. A zombie's request for it is refused.
func Example() {
	var value string
	service := httptest.NewServer(httpgate.Handler(new(fence.Gate), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		value = fmt.Sprintf("%s, of epoch %d", b, httpgate.Epoch(r.Context()))
	}), nil))
	defer service.Close()
	send := func(epoch fence.Epoch, text string) error { // the token is that of an election
		client := &http.Client{Transport: httpgate.Transport(fence.NewToken(epoch), nil)}
		answer, err := client.Post(service.URL, "text/plain", strings.NewReader(text))
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	fmt.Println(send(1, "one"))
	fmt.Println(send(2, "two"))
	fmt.Println(errors.Is(send(1, "one again"), fence.ErrFenced))
	fmt.Println(value)
	// Output:
	// <nil>
	// <nil>
	// true
	// two, of epoch 2
}

func TestHandler(t *testing.T) {
	gate := fence.NewGate(5)
	h := httpgate.Handler(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, httpgate.Epoch(r.Context()))
	}), nil)
	for _, c := range []struct {
		method string
		epochs []string
		status int
		says   string
	}{
		{"GET", nil, 200, "0"},
		{"HEAD", nil, 200, ""},
		{"POST", nil, 428, httpgate.Header},
		{"PUT", []string{"x"}, 400, "from 1 to"},
		{"PUT", []string{"0"}, 400, "from 1 to"},
		{"PUT", []string{"-1"}, 400, "from 1 to"},
		{"PUT", []string{"6", "7"}, 400, "one number"},
		{"PUT", []string{"4"}, 412, "5"},
		{"GET", []string{"4"}, 412, "5"},
		{"PUT", []string{"5"}, 200, "5"},
		{"PUT", []string{"18446744073709551615"}, 400, "4611687117939015680"},
		{"PUT", []string{"4611687117939015681"}, 400, "4611687117939015680"},
		{"GET", []string{"9"}, 200, "9"}, // and raises nothing
		{"PUT", []string{"+6"}, 400, "one number"},
		{"PUT", []string{"6"}, 200, "6"},
		{"PUT", []string{"5"}, 412, "6"},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		for _, e := range c.epochs {
			r.Header.Add(httpgate.Header, e)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %q: %d %q", c.method, c.epochs, w.Code, w.Body)
		}
		if (c.status == 412) != (w.Header().Get(httpgate.FencedBy) != "") {
			t.Errorf("%s %q: fenced by %q", c.method, c.epochs, w.Header().Get(httpgate.FencedBy))
		}
	}
}

// A script sends requests with curl: docs/exec.md has the command.
func TestCurl(t *testing.T) {
	page, err := os.ReadFile("../../../docs/exec.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^curl .*$`).FindString(string(page))
	var got string
	service := httptest.NewServer(httpgate.Handler(new(fence.Gate), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got += fmt.Sprintf("%s of epoch %d, ", b, httpgate.Epoch(r.Context()))
	}), nil))
	defer service.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "report.csv"), []byte("a,b"), 0o600); err != nil {
		t.Fatal(err)
	}
	line = regexp.MustCompile(`'https://.*'`).ReplaceAllLiteralString(line, service.URL)
	for _, c := range []struct {
		epoch  string
		status int
	}{{"2", 0}, {"2", 0}, {"1", 22}, {"3", 0}} {
		cmd := exec.Command("bash", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "FENCEPOST_EPOCH="+c.epoch)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != c.status {
			t.Errorf("%s\nepoch %s: %v, want status %d: %s", line, c.epoch, cmd.ProcessState, c.status, out)
		}
	}
	if want := "a,b of epoch 2, a,b of epoch 2, a,b of epoch 3, "; got != want {
		t.Errorf("the service got %q, want %q", got, want)
	}
}

// While a request of epoch 1 is being served, one of epoch 2 waits.
//
// guard:http-inside. Without this: zombie Z sends a request with epoch 1, which passes the check and is
// then delayed; leader B sets the value with epoch 2; Z's request goes on, and overwrites B's value
// with an older one.
func TestInside(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	var order []string
	h := httpgate.Handler(new(fence.Gate), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if httpgate.Epoch(r.Context()) == 1 {
			close(began)
			<-end
		}
		order = append(order, httpgate.Epoch(r.Context()).String())
	}), nil)
	serve := func(epoch string, done chan<- struct{}) {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set(httpgate.Header, epoch)
		h.ServeHTTP(httptest.NewRecorder(), r)
		close(done)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that Gosched lets the other goroutine run
	one, two := make(chan struct{}), make(chan struct{})
	go serve("1", one)
	<-began
	go serve("2", two)
	for range 100 { // epoch 2 would be served meanwhile, if it did not wait
		select {
		case <-two:
			t.Fatal("epoch 2 was served while epoch 1 was")
		default:
		}
		runtime.Gosched()
	}
	close(end)
	<-one
	<-two
	if got := strings.Join(order, " "); got != "1 2" {
		t.Errorf("order %s", got)
	}
}

// A zombie is frozen in the middle of its body. The leader's requests are served, and after the thaw the zombie's is refused.
//
// guard:http-body-first. Without this: zombie Z is frozen in the middle of its body; leader B's requests wait for as
// long, and so does everybody who reads with an epoch.
func TestFrozenBody(t *testing.T) {
	var served []string
	s := httptest.NewServer(httpgate.Handler(new(fence.Gate), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		served = append(served, fmt.Sprintf("%v: %s %v", httpgate.Epoch(r.Context()), b, err))
	}), nil))
	defer s.Close()
	zombie, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer zombie.Close()
	fmt.Fprintf(zombie, "PUT / HTTP/1.1\r\nHost: x\r\nFencepost-Epoch: 1\r\nContent-Length: 6\r\n\r\nabc")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, strings.NewReader("of the leader"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&http.Client{Transport: httpgate.Transport(fence.NewToken(2), nil)}).Do(put)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Body.Close()
	fmt.Fprint(zombie, "def") // it thaws
	answer, err := http.ReadResponse(bufio.NewReader(zombie), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusPreconditionFailed || answer.Header.Get(httpgate.FencedBy) != "2" {
		t.Errorf("the zombie gets %v", answer)
	}
	if got := strings.Join(served, "; "); got != "2: of the leader <nil>" {
		t.Errorf("the service got %q", got)
	}
}

// A client that does not read its answer, and one that has given up, hold up nobody. Bodies and answers are bounded.
func TestBounds(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	var served []string
	gate := new(fence.Gate)
	h := httpgate.Handler(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if string(b) == "slow" {
			close(began)
			<-end
		}
		served = append(served, string(b))
		w.Header().Set("X-Of", "next")
		w.WriteHeader(http.StatusCreated)
		if string(b) == "much" {
			_, err := w.Write(make([]byte, 9))
			fmt.Fprint(w, err != nil)
			return
		}
		fmt.Fprint(w, "done")
	}), &httpgate.Options{MaxBody: 8})
	do := func(ctx context.Context, epoch, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set(httpgate.Header, epoch)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := do(t.Context(), "1", "123456789"); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %d %s", w.Code, w.Body)
	}
	if w := do(t.Context(), "1", "much"); w.Code != http.StatusCreated || w.Body.String() != "true" || w.Header().Get("X-Of") != "next" {
		t.Errorf("an answer that is too large: %d %s %v", w.Code, w.Body, w.Header())
	}
	slow := make(chan struct{})
	go func() {
		defer close(slow)
		do(context.Background(), "1", "slow")
	}()
	<-began
	given, giveUp := context.WithCancel(t.Context())
	gone := make(chan *httptest.ResponseRecorder)
	go func() { gone <- do(given, "2", "given up") }()
	for gate.Highest() != 2 {
		runtime.Gosched()
	}
	giveUp()
	if w := <-gone; w.Code != http.StatusServiceUnavailable {
		t.Errorf("whoever has given up gets %d", w.Code)
	}
	close(end)
	<-slow
	if got := strings.Join(served, ","); got != "much,slow" {
		t.Errorf("served: %s", got)
	}
}

// A 412 of the service itself is no fencing.
func TestTransportLeavesOther412(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(httpgate.Header) != "9" {
			t.Errorf("epoch %q", r.Header.Get(httpgate.Header))
		}
		w.WriteHeader(http.StatusPreconditionFailed)
	}))
	defer s.Close()
	answer, err := (&http.Client{Transport: httpgate.Transport(fence.NewToken(9), nil)}).Get(s.URL)
	if err != nil || answer.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("%v, %v", answer, err)
	}
	_ = answer.Body.Close()
}
