package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
)

var every = flag.Int("every", 4001, "TestRot tries one in so many ways to damage the log")

// TestRot damages a log as verify's test of that name does: an object removed, cut, or with a
// flipped bit. Each verb that reads a log meets it, and says what is wrong or what is right.
// None panics, and a backup that is called complete has the whole history.
func TestRot(t *testing.T) {
	url := newLog(t, memURL(t))
	table(t, url)
	must(t, "one\ntwo\n", "append", url)
	must(t, "", "compact", url)
	must(t, "three\n", "append", url)
	must(t, "", "pin", "--name", "report", url)
	must(t, "", "cat", "--consumer", "exports", url)
	must(t, "four\n", "append", url)
	whole := map[string][]byte{}
	st := openStore(t, url)
	for info, err := range st.List(t.Context(), "", nil) {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := store.Read(t.Context(), st, info.Key, &store.ReadOptions{Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		whole[info.Key] = body
	}
	kinds := map[string]int{}
	for key := range whole {
		kinds[layout.KindOf(key)]++
	}
	files, history := must(t, "", "files", url), must(t, "", "cat", url)
	n, tried, step := 0, 0, *every
	if testing.Short() { // make modules
		step *= 4
	}
	try := func(key, what string, body []byte) {
		tried++
		at := fmt.Sprintf("mem://rot/%d", tried)
		st := openStore(t, at)
		for k, b := range whole {
			if k == key {
				b = body
			}
			if k != key || body != nil {
				fixture.Put(t, st, k, b)
			}
		}
		checkVerbs(t, at, key+" "+what, files, history)
	}
	for _, key := range slices.Sorted(maps.Keys(whole)) {
		body := whole[key]
		try(key, "removed", nil)
		try(key, "cut in half", body[:len(body)/2:len(body)/2])
		for bit := range 8 * len(body) {
			if n++; n%step == 0 {
				b := bytes.Clone(body)
				b[bit/8] ^= 1 << (bit % 8)
				try(key, fmt.Sprintf("with bit %d flipped", bit), b)
			}
		}
	}
	t.Logf("%v: %d kinds of damage", kinds, tried)
}

// checkVerbs runs each verb on a damaged log.
func checkVerbs(t *testing.T, url, what, files, history string) {
	t.Helper()
	for _, verb := range []string{
		"cat", "files", "cat --json", "status --objects", "lag", "history", "pins", "doctor", "verify", "verify --repair --dry-run", "compact --dry-run",
		"truncate --before 1 --dry-run", "cat --json --to 1", "cat --consumer exports", "backup", "compact",
	} {
		args := append(strings.Fields(verb), url)
		to := url + "-copy"
		if verb == "backup" {
			args = append(args, to)
		}
		r := run(t, "", args...)
		if r.status == 64 || r.status == 0 && verb != "doctor" && strings.Contains(r.err, "panic") || r.status != 0 && r.out+r.err == "" {
			t.Errorf("%s: %s: status %d: %s", what, verb, r.status, r.err)
		}
		switch {
		case verb == "cat" && (!strings.HasPrefix(history, r.out) || r.status == 0 && r.out != history):
			t.Errorf("%s: cat: status %d: %q", what, r.status, r.out)
		case verb == "files" && r.status == 0 && r.out != files:
			t.Errorf("%s: files: %q", what, r.out)
		case verb == "backup" && r.status == 0:
			back := url + "-restored"
			must(t, "", "restore", to, back)
			if got := must(t, "", "cat", back); got != history || must(t, "", "files", back) != files {
				t.Errorf("%s: the backup has %q", what, got)
			}
		}
	}
}
