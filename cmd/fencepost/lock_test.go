package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	historyverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/history"
	stepdownverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/stepdown"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// leadAlone leads in a place without a log, as exec does, until the function that it returns is called.
func leadAlone(t *testing.T, url, name string) (end func()) {
	t.Helper()
	return leadFor(t, url, name, 0)
}

func leadFor(t *testing.T, url, name string, validity time.Duration) (end func()) {
	t.Helper()
	e, err := leader.New(openStore(t, url), fencepost.LockPrefix, &leader.Options{Identity: name, Validity: validity})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx, func(ctx context.Context, _ *leader.Term) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	}()
	<-leads
	end = func() {
		cancel()
		<-ended
	}
	t.Cleanup(end)
	return end
}

// TestOnlyLock: where exec runs there is a lock and no log. The verbs that show something say who
// leads there, since when, in which epoch and until when, who led before, and that there is no log.
func TestOnlyLock(t *testing.T) {
	url := memURL(t)
	leadAlone(t, url, "ann")()
	end := leadAlone(t, url, "bob")

	out := must(t, "", "status", url)
	for _, want := range []string{"log     none; there is only a lock", "leader  bob, epoch 2, since ", "validity 15s", "lease   until ", "unless it is renewed; the last heartbeat was "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	l := parsed[survey.Lock](t, "status", "--json", url)
	if l.Kind != "lock" || l.Store != url || !l.Leader.Leads || l.Leader.Epoch != 2 || l.Leader.Holder != "bob" || l.Leader.From.IsZero() || !l.Leader.Until.Equal(l.Leader.To.Add(15*time.Second)) {
		t.Errorf("%+v", l)
	}
	if d := parsed[map[string]any](t, "status", "--json", url); d["log"] != nil {
		t.Errorf("it has a log: %v", d)
	}

	r := run(t, "", "history", url)
	if r.status != 0 || r.err != "" || strings.Count(r.out, "\n") != 3 || !strings.Contains(r.out, "resigned") || !strings.Contains(r.out, "leads") {
		t.Errorf("%+v", r)
	}
	terms := parsed[[]historyverb.TermDoc](t, "history", "--json", url)
	if len(terms) != 2 || terms[0].Holder != "bob" || !terms[0].Leads || terms[0].Led == "" || terms[0].Gap == "" || terms[1].Holder != "ann" || terms[1].Epoch != 1 || terms[1].Led == "" || terms[1].Reason != "resigned" {
		t.Errorf("%+v", terms)
	}

	r = run(t, "", "doctor", url)
	for _, want := range []string{"none: there is only a lock", "bob, epoch 2, since ", "until ", "leaders deposed within the last hour: 0", "0 problems, 0 warnings; not looked at: store"} {
		if r.status != 0 || !strings.Contains(r.out, want) {
			t.Errorf("status %d, no %q in\n%s%s", r.status, want, r.out, r.err)
		}
	}
	if found := parsed[[]doctor.Finding](t, "doctor", "--json", "--deep", url); len(found) < 7 {
		t.Errorf("%+v", found)
	}

	end()
	if out := must(t, "", "status", url); !strings.Contains(out, "leader  nobody; bob led in epoch 2, resigned") || strings.Contains(out, "lease") {
		t.Error(out)
	}
	if d := parsed[stepdownverb.DeposedDoc](t, "step-down", "--json", url); d.Deposed {
		t.Errorf("%+v", d)
	}
}

// TestOnlyLockServed: the exporter and the page's server tell who leads in a place without a log, and
// they notice a log that is made beside the lock.
func TestOnlyLockServed(t *testing.T) {
	url := memURL(t)
	leadAlone(t, url, "ann")
	for _, verb := range []string{"exporter", "serve"} {
		address, _, _ := background(t, nil, verb, "--listen", "127.0.0.1:0", "--requests-per-minute", "6000", url)
		eventually(t, "the lock", func() bool {
			_, body := get(t, address+"/metrics")
			label := `{url="` + url + `"} `
			return strings.Contains(body, "fencepost_lock_leader_leads"+label+"1\n") && strings.Contains(body, "fencepost_lock_leader_epoch"+label+"1\n") &&
				strings.Contains(body, `fencepost_lock_leader_info{holder="ann",url="`+url+`"} 1`) && strings.Contains(body, "fencepost_lock_leader_until_timestamp_seconds"+label) &&
				strings.Contains(body, "fencepost_watch_up"+label+"1\n") && !strings.Contains(body, "fencepost_log_leader_leads")
		})
		if status, body := get(t, address+"/readyz"); status != 200 {
			t.Errorf("%s: %d %s", verb, status, body)
		}
		if verb == "exporter" {
			continue
		}
		_, body := get(t, address+"/state.json")
		var states []outside.State
		if err := json.Unmarshal([]byte(body), &states); err != nil || len(states) != 1 || states[0].Kind != "lock" || states[0].Lock.Terms[0].Holder != "ann" {
			t.Errorf("%s %v", body, err)
		}
		newLog(t, url)
		eventually(t, "the log", func() bool {
			_, body := get(t, address+"/metrics")
			return strings.Contains(body, `fencepost_log_leader_leads{url="`+url+`"} 1`) && !strings.Contains(body, "fencepost_lock_leader_leads")
		})
	}
}

// TestOnlyLockElsewhere: verbs for logs say what is there instead, and what reads it.
func TestOnlyLockElsewhere(t *testing.T) {
	url := memURL(t)
	leadAlone(t, url, "ann")()
	for _, args := range []string{"cat", "lag", "verify", "compact", "files", "pins", "truncate --before 1", "history --compactor", "step-down --compactor"} {
		r := run(t, "", append(strings.Fields(args), url)...)
		if r.status != 66 || !strings.Contains(r.err, "no log here") || !strings.Contains(r.err, "has only a lock") || !strings.Contains(r.err, "fencepost status") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if r := run(t, "", "status", "--objects", url); r.status != 64 || !strings.Contains(r.err, "only a lock") {
		t.Errorf("%+v", r)
	}
	// A log that has lost its format.json is no such place.
	fixture.Put(t, openStore(t, url), layout.ManifestKey(1), []byte("{}"))
	if r := run(t, "", "status", url); r.status != 65 || !strings.Contains(r.err, "put an older version of format.json back") {
		t.Errorf("%+v", r)
	}
}

// TestHistoryOfACrash: a leader that was killed does not lead, although its lock is still held.
func TestHistoryOfACrash(t *testing.T) {
	url := fileURL(t)
	must(t, "", "init", url)
	st := openStore(t, url)
	e, err := leader.New(st, fencepost.LockPrefix, &leader.Options{Identity: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if terms := parsed[[]historyverb.TermDoc](t, "history", "--json", url); len(terms) != 1 || !terms[0].Leads {
		t.Errorf("%+v", terms)
	}
	rec, err := e.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(strings.TrimPrefix(url, "file://"), rec.Key)
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = term.Resign(t.Context())
	// The lock as it was, which nobody has renewed for a minute.
	old := time.Now().Add(-time.Minute)
	if err := errors.Join(os.WriteFile(path, body, 0o600), os.Chtimes(path, old, old)); err != nil {
		t.Fatal(err)
	}
	if terms := parsed[[]historyverb.TermDoc](t, "history", "--json", url); len(terms) != 1 || terms[0].Leads || terms[0].State != "lapsed" || terms[0].To.IsZero() {
		t.Errorf("%+v", terms)
	}
}

// TestOnlyLockWatch: another leader is a change, a heartbeat is none.
func TestOnlyLockWatch(t *testing.T) {
	url := memURL(t)
	end := leadFor(t, url, "ann", 5*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs buffer
	a := &kit.Kit{Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int, 1)
	go func() { ended <- runWith(ctx, a, []string{"status", "--watch", "--json", "--interval", "1ms", url}) }()
	lines := func() int { return strings.Count(out.String(), "\n") }
	eventually(t, "the first leader", func() bool { return lines() == 1 })
	e, err := leader.New(openStore(t, url), fencepost.LockPrefix, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a heartbeat", func() bool {
		rec, err := e.Leader(t.Context())
		return err == nil && rec.Renewals > 0
	})
	if lines() != 1 {
		t.Errorf("after a heartbeat: %s", out.String())
	}
	end()
	eventually(t, "its end", func() bool { return strings.Contains(out.String(), `"state":"expired"`) })
	before := lines()
	leadAlone(t, url, "bob")
	eventually(t, "the second leader", func() bool { return strings.Contains(out.String(), `"holder":"bob"`) })
	cancel()
	<-ended
	if before > 3 || lines() > before+1 { // held, perhaps draining, expired; held
		t.Errorf("%d lines:\n%s", lines(), out.String())
	}
}
