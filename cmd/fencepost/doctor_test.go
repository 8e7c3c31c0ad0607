package main

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
)

// TestDoctor: the exit status tells scripts whether something is wrong. The checks
// themselves are tested in their package.
func TestDoctor(t *testing.T) {
	url := newLog(t, memURL(t)) // its grace is 0, which is a warning
	must(t, "a\n", "append", url)
	out := must(t, "", "doctor", url)
	if !strings.Contains(out, "warning  grace") || !strings.Contains(out, "→ if the store is versitygw") || !strings.HasSuffix(out, "0 problems, 1 warning\n") {
		t.Error(out)
	}
	if r := run(t, "", "doctor", "--strict", url); r.status != 1 || r.err != "" {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	fixture.Put(t, openStore(t, url), layout.NumberedKey(layout.LockPrefix, 9), []byte("{"))
	r := run(t, "", "doctor", "--json", url)
	if r.status != 1 || r.err != "" || !strings.Contains(r.out, `"level": "problem"`) || !strings.Contains(r.out, "step-down --force") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	if found := parsed[[]doctor.Finding](t, "doctor", "--json", newLog(t, freshURL(t))); len(found) < 10 {
		t.Errorf("%+v", found)
	}
	if r := run(t, "", "doctor", "mem://none"); r.status != 1 || !strings.Contains(r.err, "no log here") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}
