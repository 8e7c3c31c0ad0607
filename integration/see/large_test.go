//go:build integration

package see

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
	_ "github.com/fencepost/fencepost/store/s3store"
	"github.com/fencepost/fencepost/writer"
)

// TestLarge measures serve on a log of 1,000,000 commits that nobody has folded, and on a group of
// 1,000 partitions: its requests, its memory, and the time to the first paint. The log has had 1,000
// leaders. Its objects lie at its end only, which is where serve lists.
func TestLarge(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AK")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SK")
	srv, other := s3stub.Start(nil), s3stub.Start(nil) // the members of the group go on
	t.Cleanup(srv.Close)
	t.Cleanup(other.Close)
	url := func(s *s3stub.Server) string { return "s3://bucket/prefix?region=us-east-1&endpoint=" + s.URL() }
	large(t, url(srv), 1_000_000)
	shares(t, url(other), 1000)

	srv.Reset()
	serve := start(t, nil, "serve", "--listen", "127.0.0.1:0", url(srv), url(other))
	began := time.Now()
	address := serve.says(t, "the page is at (http://[^ ]*)")[1]
	p := open(t, address)
	p.until("the log", `document.querySelector(".cards")`)
	t.Logf("the log is shown %v after the start", time.Since(began).Round(10*time.Millisecond))
	paint := p.painted()
	p.until("1,000,000 records", `[...document.querySelectorAll(".card")].find(c => c.innerText.startsWith("Records")).querySelector(".big").innerText === "1,000,000"`)
	p.press("the group's tab", "nav button:nth-child(2)")
	p.until("1,000 partitions", `document.querySelector(".tiles")?.getAttribute("aria-label").startsWith("1000 partitions")`)
	p.do(chromedp.Reload())
	p.until("the page again", `document.querySelector(".cards")`)
	paint = max(paint, p.painted())
	if paint > 1000 {
		t.Errorf("first paint after %.0f ms", paint)
	}

	now := follow(t, address)
	for before, minute := now(), 1; minute <= 2; minute++ {
		after := now()
		for after.Now.Sub(before.Now) < time.Minute {
			after = now()
		}
		took, sent := after.Now.Sub(before.Now), after.Requests-before.Requests
		t.Logf("minute %d: %d requests in %v", minute, sent, took.Round(time.Second))
		if sent > int(12*took.Minutes()) {
			t.Errorf("%d requests in minute %d", sent, minute)
		}
		before = after
	}
	memory := status(t, serve.Process.Pid, "VmHWM")
	if memory > 100<<10 {
		t.Errorf("%d KiB of memory", memory)
	}
	t.Logf("first paint %.0f ms, at most %d MiB of memory, %v", paint, memory>>10, srv.Counts())
	sent := 0
	for _, n := range srv.Counts() {
		sent += n
	}
	if s := look(t, address)[0]; s.Log == nil || s.Log.Unfolded.Objects < 1_000_000 || sent > s.Requests {
		t.Errorf("%+v; the stub counted %d requests", s, sent)
	}
}

// painted is how many milliseconds after the request the page was painted for the first time.
func (p *tab) painted() float64 {
	return promise[float64](p, `new Promise(done => new PerformanceObserver(l => l.getEntries().filter(e => e.name === "first-contentful-paint").forEach(e => done(e.startTime))).observe({type: "paint", buffered: true}))`)
}

type seen struct {
	Now      time.Time
	Requests int
	Log      *struct{ Unfolded struct{ Objects int } }
}

func look(t *testing.T, address string) (all []seen) {
	t.Helper()
	r, err := http.Get(address + "/state.json")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// follow returns what waits for the next state of the log that the page's server sends.
func follow(t *testing.T, address string) (next func() seen) {
	t.Helper()
	r, err := http.Get(address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	lines := bufio.NewReader(r.Body)
	return func() seen {
		t.Helper()
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			if state, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				var all []seen
				if err := json.Unmarshal(state, &all); err != nil {
					t.Fatal(err)
				}
				return all[0]
			}
		}
	}
}

func status(t *testing.T, pid int, what string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(regexp.MustCompile(what + `:\s+(\d+)`).FindStringSubmatch(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func at(t *testing.T, url string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

var quick = &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1}

// large makes a log whose leader has noted so many commits.
func large(t *testing.T, url string, commits uint64) {
	t.Helper()
	st := at(t, url)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Init: &manifest.InitOptions{Probe: quick}, Checkpoint: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range 1000 { // each by another process: who has resigned lets others go first
		e, err := leader.New(st, layout.LockPrefix, &leader.Options{MinEpoch: 2, Validity: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err == nil && n < 999 {
			err = term.Resign(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	log, err := state.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	u, err := log.Updater(layout.Writer, fence.NewToken(2))
	if err != nil {
		t.Fatal(err)
	}
	end := frame.Point{Position: fence.Position{Epoch: 1, Seq: commits + 1}, Offset: commits, Prev: 1}
	if _, err := u.Update(t.Context(), func(m *state.Change) error { m.Hint = &end; return nil }); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(3000) {
		if _, err := st.Put(t.Context(), layout.DataKey(fence.Position{Epoch: 1, Seq: commits - 2500 + n}), make([]byte, 200), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// shares makes a group with three members.
func shares(t *testing.T, url string, partitions int) {
	t.Helper()
	st := at(t, url)
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan error, 3)
	owned := make(chan group.Assigned, 1000)
	for i := range 3 {
		g, err := group.Join(t.Context(), st, &group.Options{Partitions: partitions, Identity: fmt.Sprint("worker ", i), Validity: time.Hour, Renew: time.Second,
			Probe: quick, Hooks: group.Hooks{Assigned: func(a group.Assigned) { owned <- a }}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			done <- g.Run(ctx, func(ctx context.Context, _ *group.Partition) error {
				<-ctx.Done()
				return nil
			})
		}()
	}
	late := time.After(time.Minute)
	for shared := false; !shared; {
		select {
		case a := <-owned:
			shared = a.Members == 3 && a.Owned > partitions/4
		case <-late:
			t.Fatal("the members never share the partitions")
		}
	}
	t.Cleanup(func() {
		leave()
		for range 3 {
			<-done
		}
	})
}
