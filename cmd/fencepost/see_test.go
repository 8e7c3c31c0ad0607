package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// background runs a verb until stop is called, and returns the address that it serves at.
func background(t *testing.T, in io.Reader, args ...string) (address string, errs *buffer, stop func() int) {
	t.Helper()
	return backgroundOn(t, store.Open, in, args...)
}

// backgroundOn does so with stores that open opens.
func backgroundOn(t *testing.T, open func(context.Context, string) (store.Store, error), in io.Reader, args ...string) (address string, errs *buffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	errs = new(buffer)
	a := &kit.Kit{In: in, Out: io.Discard, Err: errs, Open: open}
	ended := make(chan int, 1)
	go func() { ended <- runWith(ctx, a, args) }()
	at := regexp.MustCompile(`https?://[^/\s]+`)
	eventually(t, "an address", func() bool {
		address = at.FindString(errs.String())
		return address != ""
	})
	stopped := false
	stop = func() int {
		cancel()
		if stopped {
			return 0
		}
		stopped = true
		return <-ended
	}
	t.Cleanup(func() { stop() })
	return address, errs, stop
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// TestListen: a verb that runs for long serves its metrics, and says whether the store answers.
func TestListen(t *testing.T) {
	url := newLog(t, memURL(t))
	in, w := io.Pipe()
	address, errs, _ := background(t, in, "append", "--listen", "127.0.0.1:0", "--prices", "put=1000,get=0", url)
	eventually(t, "a leader", func() bool { return strings.Contains(errs.String(), "leading in epoch 1") })
	if _, err := io.WriteString(w, "one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two records", func() bool {
		_, body := get(t, address+"/metrics")
		return strings.Contains(body, "\nfencepost_writer_records_total 2\n") && strings.Contains(body, `fencepost_leader_leads{election="log"} 1`) &&
			strings.Contains(body, `fencepost_store_request_seconds_count{op="put",outcome="ok"}`) && strings.Contains(body, "go_goroutines")
	})
	// A PUT may come between the two numbers of one answer.
	eventually(t, "each PUT costs a dollar", func() bool {
		_, all := get(t, address+"/metrics")
		dollars, puts := regexp.MustCompile(`fencepost_store_dollars_total{op="put"} (\d+)`).FindStringSubmatch(all), 0
		for _, m := range regexp.MustCompile(`fencepost_store_request_seconds_count{op="put",outcome="\w+"} (\d+)`).FindAllStringSubmatch(all, -1) {
			n, _ := strconv.Atoi(m[1])
			puts += n
		}
		return len(dollars) > 0 && dollars[1] == strconv.Itoa(puts)
	})
	if status, body := get(t, address+"/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("%d %s", status, body)
	}
	status, body := get(t, address+"/readyz")
	var ready struct {
		Ready, Leads bool
		Epoch        uint64
	}
	if err := json.Unmarshal([]byte(body), &ready); err != nil || status != 200 || !ready.Ready || !ready.Leads || ready.Epoch != 1 {
		t.Errorf("%d %s %v", status, body, err)
	}
	_ = w.Close()

	cat, _, _ := background(t, nil, "cat", "--follow", "--listen", "127.0.0.1:0", url)
	eventually(t, "the reader's metrics", func() bool {
		_, body := get(t, cat+"/metrics")
		return strings.Contains(body, "\nfencepost_reader_records_total 2\n")
	})
	compact, _, _ := background(t, nil, "compact", "--watch", "--min-objects", "1", "--interval", "10ms", "--listen", "127.0.0.1:0", url)
	eventually(t, "a fold", func() bool {
		_, body := get(t, compact+"/metrics")
		return strings.Contains(body, "\nfencepost_compactor_folded_records_total 2\n") && strings.Contains(body, `fencepost_leader_leads{election="compactor"} 1`)
	})
}

// TestListenWhileItReads: verify, backup and restore may run for hours, and serve their metrics meanwhile.
func TestListenWhileItReads(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "one\ntwo\n", "append", url)
	kept := memURL(t) + "-kept"
	must(t, "", "backup", url, kept)
	for _, args := range [][]string{{"verify", url}, {"backup", url, memURL(t) + "-copy"}, {"restore", kept, memURL(t) + "-restored"}} {
		t.Run(args[0], func(t *testing.T) {
			wake := make(chan struct{})
			open := func(ctx context.Context, url string) (store.Store, error) {
				st, err := store.Open(ctx, url)
				if err != nil {
					return nil, err
				}
				f := faultstore.New(st, nil)
				f.SetHook(func(op faultstore.Op) faultstore.Fault {
					if strings.Contains(op.Key, "data/") && op.Kind != faultstore.List {
						return faultstore.Fault{Hold: wake}
					}
					return faultstore.Fault{}
				})
				return f, nil
			}
			address, errs, stop := backgroundOn(t, open, nil, slices.Insert(args, 1, "--listen", "127.0.0.1:0")...)
			eventually(t, "requests are counted", func() bool {
				_, body := get(t, address+"/metrics")
				return strings.Contains(body, `fencepost_store_request_seconds_count{op="get",outcome="ok"}`) && strings.Contains(body, "\nfencepost_verify_problems 0\n")
			})
			if status, body := get(t, address+"/readyz"); status != 200 || !strings.Contains(body, `"ready":true`) {
				t.Errorf("%d %s", status, body)
			}
			close(wake)
			eventually(t, "it ends: "+errs.String(), func() bool {
				r, err := http.Get(address + "/healthz")
				if err == nil {
					_ = r.Body.Close()
				}
				return err != nil
			})
			if status := stop(); status != 0 {
				t.Errorf("status %d: %s", status, errs)
			}
		})
	}
}

// TestExporter: it serves what it sees, and is ready when it has seen everything.
func TestExporter(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "one\ntwo\n", "append", url)
	address, _, _ := background(t, nil, "exporter", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", url)
	eventually(t, "the log", func() bool {
		_, body := get(t, address+"/metrics")
		return strings.Contains(body, `fencepost_log_records{url="`+url+`"} 2`) && strings.Contains(body, `fencepost_log_leader_leads{url="`+url+`"} 0`)
	})
	eventually(t, "that it is ready", func() bool {
		status, body := get(t, address+"/readyz")
		return status == 200 && strings.Contains(body, `"url":"`+url+`"`)
	})
	var down atomic.Bool
	open := whileUp(&down)
	address, _, _ = backgroundOn(t, open, nil, "exporter", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", url)
	for _, away := range []bool{false, true, false} {
		down.Store(away)
		eventually(t, fmt.Sprintf("that it is ready, %v", !away), func() bool {
			status, _ := get(t, address+"/readyz")
			return status == map[bool]int{false: 200, true: 503}[away]
		})
	}
	missing, _, _ := background(t, nil, "exporter", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", "mem://none")
	eventually(t, "why it is not ready", func() bool {
		status, body := get(t, missing+"/readyz")
		return status == 503 && strings.Contains(body, "no log here")
	})
}

// TestServe: the page, its state, its stream, and what it refuses.
func TestServe(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "one\n", "append", url)
	address, _, stop := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", url)
	r, err := http.Get(address + "/")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	if csp := r.Header.Get("Content-Security-Policy"); r.StatusCode != http.StatusOK || !strings.Contains(string(b), "app.js") || !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("%d %q", r.StatusCode, csp)
	}
	for _, asset := range []string{"app.js", "style.css", "icon.svg"} {
		if status, body := get(t, address+"/"+asset); status != 200 || strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/", ""), "http") {
			t.Errorf("%s: %d, or it names another host", asset, status)
		}
	}
	if status, body := get(t, address+"/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("%d %s", status, body)
	}
	eventually(t, "the log is seen", func() bool {
		status, _ := get(t, address+"/readyz")
		_, body := get(t, address+"/metrics")
		return status == 200 && strings.Contains(body, `fencepost_log_records{url="`+url+`"} 1`)
	})
	stream, err := http.Get(address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	seen := false
	for lines := bufio.NewScanner(stream.Body); !seen && lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var states []outside.State
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(data), &states); err != nil {
			t.Fatal(err)
		}
		seen = states[0].Log != nil && states[0].Log.End == 1
	}
	if !seen {
		t.Error("the stream never has the log")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/state.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "evil.example"
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/state.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	for status, req := range map[int]*http.Request{http.StatusMisdirectedRequest: req, http.StatusMethodNotAllowed: post} {
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != status {
			t.Errorf("%s as %s: %d, want %d", req.Method, req.Host, r.StatusCode, status)
		}
	}
	if status := stop(); status == 0 {
		t.Errorf("status %d", status)
	}
}

// TestSeeBadInput: what is wrong with the flags is said at once.
func TestSeeBadInput(t *testing.T) {
	url := newLog(t, memURL(t))
	for args, says := range map[string]string{
		"serve --listen nowhere " + url:              "write an address of this machine",
		"exporter --requests-per-minute 7000 " + url: "at most 6000",
		"serve " + url + " " + url:                   "given twice",
		"cat --listen 127.0.0.1:0 " + url:            "--listen goes with --follow",
		"compact --listen 127.0.0.1:0 " + url:        "--listen goes with --watch",
		"append --listen 256.0.0.1:1 " + url:         "write an address of this machine",
		"cat --prices put=1 " + url:                  "--prices goes with --",
		"compact --prices put=1 " + url:              "--prices goes with --watch",
		"append --prices put=1 " + url:               "--prices goes with --listen",
		"append --prices puts=1 " + url:              `there is no price of "puts"; write some of put, get, list and delete`,
		"append --prices put=cheap " + url:           `"cheap" is no number of dollars`,
		"append --prices put=-1 " + url:              "Prices.Put is -1",
		"exporter --requests-per-minute 0 " + url:    "from 1 on",
	} {
		if r := run(t, "", strings.Fields(args)...); r.status != 64 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d, %s", args, r.status, r.err)
		}
	}
}

// TestListenPublish: publish --watch tells how far the table is.
func TestListenPublish(t *testing.T) {
	url := newLog(t, memURL(t))
	commitParquet(t, url, 1)
	address, _, _ := background(t, nil, "publish", "--watch", "--every", "10ms", "--listen", "127.0.0.1:0", url)
	published := func(files int) {
		eventually(t, "the file is published", func() bool {
			_, body := get(t, address+"/metrics")
			return strings.Contains(body, fmt.Sprintf("\nfencepost_delta_files %d\n", files)) && strings.Contains(body, "\nfencepost_delta_behind_edits 0\n") &&
				strings.Contains(body, `fencepost_delta_round_seconds_count{outcome="ok"}`) && strings.Contains(body, `fencepost_store_request_seconds_count{op="put",outcome="ok"}`)
		})
	}
	published(1)
	commitParquet(t, url, 2)
	published(2)
	if status, body := get(t, address+"/readyz"); status != 200 || !strings.Contains(body, `"ready":true`) {
		t.Errorf("%d %s", status, body)
	}
	if r := run(t, "", "publish", "--listen", "127.0.0.1:0", url); r.status != 64 || !strings.Contains(r.err, "--listen goes with --watch") {
		t.Errorf("%+v", r)
	}
}

// TestListenCompactGroup: the compactors of a group's logs are measured together.
func TestListenCompactGroup(t *testing.T) {
	url := memURL(t)
	if err := group.Create(t.Context(), openStore(t, url), &group.Options{Partitions: 2, Validity: time.Second}); err != nil {
		t.Fatal(err)
	}
	for p := range 2 {
		must(t, "one\n", "append", "--epoch", "70000", "--partition", strconv.Itoa(p), url)
	}
	address, _, _ := background(t, nil, "compact", "--watch", "--group", "--interval", "20ms", "--max-age", "1ms", "--validity", "1s", "--listen", "127.0.0.1:0", url)
	eventually(t, "both logs are folded", func() bool {
		_, body := get(t, address+"/metrics")
		return strings.Contains(body, "\nfencepost_compactor_folded_records_total 2\n") && strings.Contains(body, "\nfencepost_group_owned_partitions 2\n") &&
			strings.Contains(body, "\nfencepost_compactor_floor_offset 0\n")
	})
	if status, body := get(t, address+"/readyz"); status != 200 || !strings.Contains(body, `"leads":true`) {
		t.Errorf("%d %s", status, body)
	}
}
