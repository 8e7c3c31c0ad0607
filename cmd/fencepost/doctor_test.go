package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/doctor"
	doctorverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/doctor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/probe"
)

// TestDoctor: the exit status tells scripts whether something is wrong. The checks
// themselves are tested in their package.
func TestDoctor(t *testing.T) {
	url := newLog(t, memURL(t)) // its grace is 0, which is a warning
	must(t, "a\n", "append", url)
	out := must(t, "", "doctor", url)
	if !strings.Contains(out, "warning  grace") || !strings.Contains(out, "→ if the store is versitygw") || !strings.HasSuffix(out, "0 problems, 1 warning; not looked at: store, content\n") {
		t.Error(out)
	}
	if r := run(t, "", "doctor", "--strict", url); r.status != 65 || r.err != "" {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	must(t, "", "pin", "--name", "red \x1b[31m\nok  leader\u202e", url)
	if out := must(t, "", "doctor", url); strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("%q", out)
	}
	if out := string(doctorverb.FindingTable([]doctor.Finding{{Check: "pins", Level: doctor.Warning, What: "of \x1b[31m", Remedy: "unpin '\x1b'"}})); !strings.Contains(out, `of \x1b[31m`) || !strings.Contains(out, `unpin '\x1b'`) {
		t.Errorf("%q", out)
	}
	fixture.Put(t, openStore(t, url), layout.LockKey(layout.LockPrefix, 9), []byte("{"))
	r := run(t, "", "doctor", "--json", url)
	if r.status != 65 || r.err != "" || !strings.Contains(r.out, `"level": "problem"`) || !strings.Contains(r.out, "step-down --force") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	if found := parsed[[]doctor.Finding](t, "doctor", "--json", newLog(t, freshURL(t))); len(found) < 10 {
		t.Errorf("%+v", found)
	}
	if r := run(t, "", "doctor", "mem://none"); r.status != 66 || !strings.Contains(r.err, "no log here") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestDoctorTable: the table that is published is checked, where the files are.
func TestDoctorTable(t *testing.T) {
	url := newLog(t, memURL(t))
	level := func(says string, args ...string) doctor.Level {
		t.Helper()
		var found []doctor.Finding
		r := run(t, "", append(append([]string{"doctor", "--json"}, args...), url)...)
		if err := json.Unmarshal([]byte(r.out), &found); err != nil {
			t.Fatal(r, err)
		}
		for _, f := range found {
			if f.Check == "published table" {
				if !strings.Contains(f.What, says) {
					t.Errorf("%+v", f)
				}
				return f.Level
			}
		}
		t.Errorf("nothing is said of the table: %+v", found)
		return ""
	}
	if got := level("none"); got != doctor.OK {
		t.Error(got)
	}
	commitParquet(t, url, 1)
	must(t, "", "publish", url)
	if got := level("has all 1 edits"); got != doctor.OK {
		t.Error(got)
	}
	commitParquet(t, url, 2)
	if got := level("it has 1 of 2 edits"); got != doctor.Warning {
		t.Error(got)
	}
	fixture.Put(t, openStore(t, url), layout.DeltaPrefix+"00000000000000000002.json", []byte(`{"commitInfo":{"engineInfo":"another"}}`))
	if got := level("Delta log"); got != doctor.Problem {
		t.Error(got)
	}
	url = newLog(t, memURL(t)+"/unpublished")
	commitParquet(t, url, 1)
	must(t, "", "publish", url)
	must(t, "", "unpublish", url)
	if got := level("was taken out"); got != doctor.OK {
		t.Error(got)
	}
	var files string
	url, files, _ = apart(t)
	if got := level("--files"); got != doctor.Unseen {
		t.Error(got)
	}
	if got := level("none", "--files", files); got != doctor.OK {
		t.Error(got)
	}
}

// TestDoctorGroup: a group is checked without a log at its URL.
func TestDoctorGroup(t *testing.T) {
	url := memURL(t)
	w := newGroup(t, url)
	if err := group.Create(t.Context(), w.st, &group.Options{
		Partitions: 8, Validity: 3 * time.Second, Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, Refusals: 2, UploadSize: 1},
	}); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "doctor", url); r.status != 65 || !strings.Contains(r.out, "nobody works") || !strings.Contains(r.out, "8 of 8 have no owner") || r.err != "" {
		t.Errorf("%+v", r)
	}
	w.add("ada")
	eventually(t, "a worker owns all", func() bool {
		r := run(t, "", "doctor", url)
		return r.status == 0 && strings.Contains(r.out, "each has an owner") && strings.Contains(r.out, "1 live") && strings.Contains(r.out, "ends in /partition/000000")
	})
	must(t, "one\n", "append", newLog(t, url)) // a log beside the group
	if out := must(t, "", "doctor", url); !strings.Contains(out, "each has an owner") || !strings.Contains(out, "the tail is") {
		t.Error(out)
	}
}

// The page that doctor's help names says that doctor checks it.
func TestDoctorsPage(t *testing.T) {
	page := regexp.MustCompile(`docs/[a-z]+\.md`).FindString(must(t, "", "help", "doctor"))
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	if err != nil || !strings.Contains(string(text), "`fencepost doctor URL` checks") {
		t.Errorf("doctor's help names %q, which does not say what doctor checks (%v)", page, err)
	}
}
