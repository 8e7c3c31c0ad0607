package main

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// TestStatuses: damage, no log and a store that is away have a status each, and JSON always comes.
func TestStatuses(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	away := "s3://bucket/x?endpoint=http://127.0.0.1:1"
	damaged := newLog(t, memURL(t))
	must(t, "a\n", "append", damaged)
	st := openStore(t, damaged)
	if err := st.Delete(t.Context(), "data/00000000000000000001/00000000000000000001"); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"doctor", "status", "lag", "verify", "pins", "history", "files"} {
		for url, want := range map[string]int{away: kit.ExitAway, "mem://none": kit.ExitNoLog} {
			r := run(t, "", verb, "--timeout", "1s", "--json", url)
			if r.status != want || !strings.Contains(r.err, "fencepost: ") {
				t.Errorf("%s %s: status %d, not %d: %s", verb, url, r.status, want, r.err)
			}
			var doc any
			var found []doctor.Finding
			if verb == "doctor" {
				if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found) != 1 || found[0].Level != doctor.Problem {
					t.Errorf("%s: %q, %v", url, r.out, err)
				}
			} else if err := json.Unmarshal([]byte(r.out), &doc); err != nil || !strings.Contains(r.out, `"error"`) {
				t.Errorf("%s %s: %q, %v", verb, url, r.out, err)
			}
		}
	}
	for _, verb := range []string{"doctor", "verify"} {
		if r := run(t, "", verb, damaged); r.status != kit.ExitDamaged {
			t.Errorf("%s: status %d", verb, r.status)
		}
	}
}

// TestHarmlessJSON: what others have chosen does not steer a terminal, and is the same to a program.
func TestHarmlessJSON(t *testing.T) {
	url := newLog(t, memURL(t))
	const name = "a\u009b31m\u202eb\U000e0001c\u00e9"
	must(t, "x\n", "append", url)
	must(t, "", "pin", "--name", name, url)
	out := must(t, "", "pins", "--json", url)
	if strings.ContainsAny(out, "\u009b\u202e\U000e0001") || !strings.Contains(out, "\u00e9") {
		t.Errorf("%q", out)
	}
	var pins []struct{ Name string }
	if err := json.Unmarshal([]byte(out), &pins); err != nil || len(pins) != 1 || pins[0].Name != name {
		t.Errorf("%+v, %v", pins, err)
	}
	must(t, `{"a":"`+name+`"}`+"\n", "append", url)
	if out := must(t, "", "cat", "--json", "--from", "1", url); strings.ContainsAny(out, "\u009b\u202e\U000e0001") {
		t.Errorf("%q", out)
	}
}

// TestPassedOver: a directory that cannot be opened, such as the lost+found of a volume, is named.
func TestPassedOver(t *testing.T) {
	url := fileURL(t)
	must(t, "a\n", "append", url)
	dir := strings.TrimPrefix(url, "file://")
	if err := os.Mkdir(dir+"/lost+found", 0o300); err != nil {
		t.Fatal(err)
	}
	a := &kit.Kit{Out: io.Discard, Err: new(buffer)}
	a.Begin()
	if got := a.PassedOver(url); os.Getuid() != 0 && !slices.Equal(got, []string{"lost+found/"}) || os.Getuid() == 0 && len(got) > 0 { // nothing is closed to root
		t.Errorf("%q", got)
	}
	if r := run(t, "", "doctor", url); os.Getuid() != 0 && !strings.Contains(r.out, "lost+found/ cannot be read, and is passed over") {
		t.Error(r.out, r.err)
	}
}
