package main

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestHelp(t *testing.T) {
	var b strings.Builder
	asked := [][]string{{"help"}}
	for c := range family(rootCommand((&kit.Kit{}))) {
		if !c.Hidden && c.Parent().Name() != "completion" { // these are cobra's words
			asked = append(asked, append([]string{"help"}, strings.Fields(kit.Verb(c))...))
		}
	}
	for _, args := range asked {
		r := run(t, "", args...)
		if r.status != 0 || r.err != "" {
			t.Errorf("%q: status %d, %s", args, r.status, r.err)
		}
		b.WriteString("$ fencepost " + strings.Join(args, " ") + "\n" + r.out + "\n")
	}
	golden := filepath.Join("testdata", "help.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("help is not what %s says; if that is meant: go test -run TestHelp -update\n%s", golden, b.String())
	}
	for i, l := range strings.Split(b.String(), "\n") {
		if len(l) > 110 {
			t.Errorf("line %d is too long for a terminal: %s", i+1, l)
		}
	}
	for _, asked := range [][]string{{"-h"}, {"--help"}, {"append", "--help"}, {"cat", "-h"}} {
		if r := run(t, "", asked...); r.status != 0 || !strings.Contains(r.out, "Usage:") {
			t.Errorf("%q: status %d, %s", asked, r.status, r.err)
		}
	}
}

// TestBadInput: one clear line that names the thing and the remedy.
func TestBadInput(t *testing.T) {
	log := newLog(t, memURL(t))
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		args   string
		in     string
		status int
		says   []string
	}{
		"no verb":                {"", "", 64, []string{"which verb?"}},
		"a URL for a verb":       {"s3://AK:secret@bucket", "", 64, []string{"the verb is missing before the URL", "fencepost help"}},
		"the version as a verb":  {"version", "", 64, []string{"fencepost --version"}},
		"an unknown verb":        {"bogus", "", 64, []string{`no verb "bogus"`}},
		"an unknown flag":        {"cat --bogus " + log, "", 64, []string{"fencepost help cat"}},
		"no URL":                 {"cat", "", 64, []string{"cat takes [--from N] [--to N] [--follow] [--consumer NAME] [--format FORMAT] URL, not 0 arguments"}},
		"two URLs":               {"status " + log + " " + log, "", 64, []string{"not 2 arguments"}},
		"a path for a URL":       {"cat /var/lib/log", "", 64, []string{"write s3://bucket/prefix, or file:///dir"}},
		"a relative directory":   {"cat file://log", "", 64, []string{`open "file://log":`, "file:///absolute/dir"}},
		"a driver not built in":  {"cat xx://bucket/x", "", 64, []string{"no driver for xx://; this program knows az, file, gs, mem, s3;", "s3://bucket/prefix"}},
		"an unknown scheme":      {"cat http://host/x", "", 64, []string{"no driver for http://", "s3://bucket/prefix"}},
		"a bad from":             {"cat --from -1 " + log, "", 64, []string{"-1"}},
		"a bad format":           {"cat --format xml " + log, "", 64, []string{"raw, frames or json"}},
		"a bad input format":     {"append --format xml " + log, "", 64, []string{"lines or frames"}},
		"no log":                 {"cat mem://none", "", 66, []string{"no log here", "fencepost init"}},
		"no log to verify":       {"verify mem://none", "", 66, []string{"no log here"}},
		"no log to compact":      {"compact mem://none", "", 66, []string{"no log here"}},
		"no group":               {"group status mem://none", "", 66, []string{"there is no group", "check the URL"}},
		"no group to drain":      {"group drain mem://none x", "", 66, []string{"there is no group"}},
		"no verb of group":       {"group", "", 64, []string{"group status or group drain or group retry", "fencepost help group"}},
		"a typo in a group verb": {"group statsu " + log, "", 64, []string{`no verb "statsu" of group; did you mean group status?`}},
		"a group verb's flag":    {"group status --wtch " + log, "", 64, []string{"group status has no flag --wtch; did you mean --watch?", "fencepost help group status"}},
		"retry what":             {"group retry " + log + " x", "", 64, []string{`PARTITION "x" must be a number`}},
		"drain whom":             {"group drain " + log, "", 64, []string{"group drain takes [--no-wait] [--json] URL MEMBER, not 1 arguments"}},
		"no log to step down in": {"step-down mem://none", "", 66, []string{"no log here"}},
		"no directory":           {"cat file://" + missing, "", 66, []string{missing}},
		"no file":                {"append " + log + " " + missing, "", 1, []string{missing}},
		"file and URL swapped":   {"append " + missing + " " + log, "", 64, []string{"the URL has no scheme"}},
		"no file, no driver":     {"append http://host/x " + missing, "", 64, []string{"no driver for http://"}},
		"no file nor directory":  {"append file://" + missing + " " + missing, "", 1, []string{missing}},
		"a directory":            {"append " + log + " /", "", 64, []string{"is a directory"}},
		"stdin without a source": {"append --cursor " + log, "x", 64, []string{"--source NAME"}},
		"a source for nothing":   {"append --source x " + log, "x", 64, []string{"--cursor"}},
		"a bad validity":         {"append --validity 1ns " + log, "x", 64, []string{"Validity 1ns must be"}},
		"watching without watch": {"compact --interval 1s " + log, "", 64, []string{"--interval goes with --watch"}},
		"none in flight":         {"append --concurrency 0 " + log, "x", 64, []string{`--concurrency is "0"`, "from 1 on"}},
		"too many in flight":     {"append --concurrency 5000 " + log, "x", 64, []string{"Concurrency 5000"}},
		"a negative rate":        {"append --requests-per-second=-1 " + log, "x", 64, []string{"RequestsPerSecond -1"}},
		"frugal, and a rate":     {"append --frugal --requests-per-second 5 " + log, "x", 64, []string{"--frugal and --requests-per-second exclude each other"}},
		"a batch of nothing":     {"append --batch-bytes 0 " + log, "x", 64, []string{"--batch-bytes", "16MiB"}},
		"a batch too large":      {"append --batch-bytes 1GiB " + log, "x", 64, []string{"--batch-bytes is 1073741824; it must be at most 67108864"}},
		"no validity":            {"append --validity 0s " + log, "x", 64, []string{"--validity", "more than 0"}},
		"a typo":                 {"cat --frm 5 " + log, "", 64, []string{"cat has no flag --frm; did you mean --from?", "fencepost help cat"}},
		"one dash":               {"cat -from 5 " + log, "", 64, []string{"cat has no flag -from; did you mean --from?"}},
		"one dash, for help":     {"append -cursor " + log, "", 64, []string{"did you mean --cursor?"}},
		"a typo of another verb": {"cat --utnil=5 " + log, "", 64, []string{"cat has no flag --utnil; did you mean --until?"}},
		"another verb's flag":    {"cat --retain-age 5d " + log, "", 64, []string{"cat has no flag --retain-age; see"}},
		"a typo in a verb":       {"compct " + log, "", 64, []string{`no verb "compct"; did you mean commit or compact?`}},
		"a flag without a value": {"cat " + log + " --from", "", 64, []string{"--from needs a value"}},
		"no number":              {"cat --json --to x " + log, "", 64, []string{`--to is "x": invalid syntax; see fencepost help cat`}},
		"a bad size":             {"init --max-record many " + log, "", 64, []string{"16MiB"}},
		"limits that contradict": {"init --max-object 10000 --max-record 20000 mem://new", "", 64, []string{"record", "20000"}},
		"a tiny grace":           {"init --grace 1ms mem://new", "", 64, []string{"0 or at least 1s"}},
		"a range that follows":   {"cat --follow --until 1h " + log, "", 64, []string{"--follow and --until exclude each other"}},
		"a range of a consumer":  {"cat --consumer c --to 1 " + log, "", 64, []string{"--consumer and --to exclude each other"}},
		"a verb that went":       {"export --since 7d --json " + log, "", 64, []string{"use cat --json"}},
		"another":                {"top --once " + log, "", 64, []string{"status --watch"}},
		"a third, and its help":  {"policy --help", "", 64, []string{"docs/policies.md"}},
		"range from and since":   {"cat --json --from 1 --since 1h " + log, "", 64, []string{"--from and --since"}},
		"range to and until":     {"cat --json --to 1 --until 1h " + log, "", 64, []string{"--to and --until"}},
		"range backwards":        {"cat --json --from 2 --to 1 " + log, "", 64, []string{"--to 1 is before --from 2"}},
		"a bad time":             {"cat --json --since yesterday " + log, "", 64, []string{"--since", "36h"}},
		"version 0":              {"files --at 0 " + log, "", 64, []string{"begin at 1"}},
		"a version not there":    {"files --at 77 " + log, "", 1, []string{"77"}},
		"a pin without a name":   {"pin " + log, "", 64, []string{"--name is not given; give --name NAME"}},
		"an empty flag":          {"init --files= mem://new", "", 64, []string{"--files is empty"}},
		"the greatest offset":    {"cat --from 18446744073709551615 " + log, "", 64, []string{"a number from 0 on"}},
		"a short pin":            {"pin --name x --ttl 1ms " + log, "", 64, []string{`--ttl is "1ms": it must be at least`}},
		"no such pin":            {"unpin backup " + log, "", 1, []string{"no pin called backup", "fencepost pins"}},
		"unpin without a name":   {"unpin " + log, "", 64, []string{"NAME URL"}},
		"truncate where":         {"truncate " + log, "", 64, []string{"--before is not given, nor --before-time"}},
		"truncate too far":       {"truncate --before 5 " + log, "", 1, []string{"compact first"}},
		"watching a dry run":     {"compact --watch --dry-run " + log, "", 64, []string{"exclude each other"}},
		"a negative age":         {"compact --retain-age -1h " + log, "", 64, []string{`--retain-age is "-1h": it must not be negative`}},
		"no log to export":       {"cat --json mem://none", "", 66, []string{"no log here"}},
		"no log to pin":          {"pin --name x mem://none", "", 66, []string{"no log here"}},
		"a negative grace":       {"init --grace -1s mem://new", "", 64, []string{"must not be negative"}},
		"other limits":           {"init --max-record 77 " + log, "", 1, []string{"a log already", "--max-record is 16777216, not 77"}},
		"another grace":          {"init --grace 1h " + log, "", 1, []string{"a log already", "grace is 0s"}},
		"a cut frame":            {"append --format frames " + log, "\x00\x00\x00\x05ab", 1, []string{"at byte 0", "standard input"}},
		"a bad interval":         {"compact --watch --interval -1s " + log, "", 64, []string{`--interval is "-1s": it must be more than 0`}},
		"no objects to wait for": {"compact --watch --min-objects 0 " + log, "", 64, []string{`--min-objects is "0"`}},
		"no age":                 {"compact --watch --max-age 0 " + log, "", 64, []string{`--max-age is "0"`}},
		"negative locks":         {"compact --keep-locks=-5 " + log, "", 64, []string{`--keep-locks is "-5"`}},
		"a negative lock age":    {"compact --keep-locks-for=-5h " + log, "", 64, []string{`--keep-locks-for is "-5h"`}},
		"a group once":           {"compact --group " + log, "", 64, []string{"--group goes with --watch"}},
		"at once, no group":      {"compact --watch --logs 2 " + log, "", 64, []string{"--logs goes with --group"}},
		"locks of a group":       {"compact --watch --group --keep-locks 5 " + log, "", 64, []string{"--group and --keep-locks exclude each other"}},
		"a bad group":            {"compact --watch --group --validity 1ms " + log, "", 64, []string{"Validity 1ms"}},
		"a negative group":       {"compact --watch --group --requests-per-second=-5 " + log, "", 64, []string{"RequestsPerSecond: -5"}},
		"a negative budget":      {"compact --requests-per-second=-5 " + log, "", 64, []string{"RequestsPerSecond is -5"}},
		"negative versions":      {"compact --keep-versions=-5 " + log, "", 64, []string{"KeepVersions is -5"}},
		"a budget of no bytes":   {"compact --bytes-per-second=-5 " + log, "", 64, []string{"--bytes-per-second", "16MiB"}},
		"too parallel":           {"compact --concurrency 1073741824 " + log, "", 64, []string{"Concurrency is 1073741824; it must be from 1 to 4096"}},
		"range no time":          {"cat --json --since 2h --until 3h " + log, "", 64, []string{"--until 3h is before --since 2h"}},
		"range beyond the end":   {"cat --json --from 7 " + log, "", 1, []string{"offset 7; the log ends at 0"}},
		"cat beyond the end":     {"cat --from 7 " + log, "", 1, []string{"offset 7; the log ends at 0"}},
		"truncate twice":         {"truncate --before 1 --before-time 1h " + log, "", 64, []string{"--before and --before-time"}},
		"truncate in 2100":       {"truncate --before-time 2100-01-01 " + log, "", 64, []string{"2100-01-01", "in the future"}},
		"truncate at noon":       {"truncate --before-time noon " + log, "", 64, []string{"--before-time", "7d"}},
		"a region missing":       {"cat s3://bucket/x?endpoint=nonsense", "", 64, []string{"endpoint"}},
		"nothing to append to":   {"append --timeout 1s s3://bucket/x?endpoint=http://127.0.0.1:1", "x", 69, []string{"127.0.0.1:1"}},
		"Google's store":         {"status --timeout 1s gs://bucket/x?endpoint=http://127.0.0.1:1", "", 69, []string{"gs://bucket/x at http://127.0.0.1:1 did not answer", "connection refused"}},
		"Azure's store":          {"status --timeout 1s az://box/x?endpoint=http://127.0.0.1:1/account&anonymous=true", "", 69, []string{"az://box/x at http://127.0.0.1:1/account did not answer", "connection refused"}},
		"no server":              {"cat --timeout 1s s3://bucket/x?endpoint=http://127.0.0.1:1", "", 69, []string{"127.0.0.1:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "id-of-a-key")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
			r := run(t, c.in, slices.DeleteFunc(strings.Split(c.args, " "), func(s string) bool { return s == "" })...)
			if r.status != c.status {
				t.Errorf("status %d, want %d", r.status, c.status)
			}
			lines := strings.Split(strings.TrimSuffix(r.err, "\n"), "\n")
			last := lines[len(lines)-1]
			if !strings.HasPrefix(last, "fencepost: ") || strings.Contains(r.err, "goroutine") || strings.Contains(r.err, "secret") {
				t.Errorf("not one clear line: %s", r.err)
			}
			for _, s := range c.says {
				if !strings.Contains(last, s) {
					t.Errorf("it does not say %q: %s", s, last)
				}
			}
			if r.out != "" {
				t.Errorf("on standard output: %s", r.out)
			}
		})
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("looking at a directory that does not exist has made it")
	}
}

func TestSecretsStayOut(t *testing.T) {
	for _, url := range []string{"s3://id:hunter2@bucket/x", "http://u:hunter2@h/?k=hunter2", "::hunter2@x", "file://hunter2@x/y?create=hunter2"} {
		if r := run(t, "", "cat", url); r.status != 64 || strings.Contains(r.err, "hunter2") && !strings.HasPrefix(url, "file:") {
			t.Errorf("%s: status %d, %s", url, r.status, r.err)
		}
	}
}

// TestMemoryIsRefused: in a process of its own a log in memory is gone with it.
func TestMemoryIsRefused(t *testing.T) {
	for verb, says := range map[string]string{"append": "gone with this process", "init": "gone with this process", "probe": "call probe.Run in a test"} {
		out, err := command(t, verb, "mem://x").CombinedOutput()
		if exitStatus(t, err) != 64 || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v: %s", verb, err, out)
		}
	}
}

// TestBadLogs: what is wrong with the log is said in one line, by every verb that
// runs into it.
func TestBadLogs(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(t *testing.T, st store.Store)
		says string
	}{
		"a format from the future": {func(t *testing.T, st store.Store) {
			fixture.Put(t, st, layout.FormatKey, document.Sum(layout.FormatKey, []byte(`{"format":99}`)))
		}, "upgrade this program"},
		"a corrupt format": {func(t *testing.T, st store.Store) { fixture.Put(t, st, layout.FormatKey, []byte(`{`)) }, "format.json"},
		"a truncated manifest": {func(t *testing.T, st store.Store) {
			log, err := state.Open(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			m, err := log.Newest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fixture.Put(t, st, layout.ManifestKey(m.Version), []byte(`{"format":1,`))
		}, "manifest/"},
		"a corrupt object": {func(t *testing.T, st store.Store) { flip(t, st, layout.DataKey(fence.Position{Epoch: 1, Seq: 1})) }, layout.DataKey(fence.Position{Epoch: 1, Seq: 1})},
		"a manifest with a missing segment": {func(t *testing.T, st store.Store) {
			must(t, "", "compact", memURL(t))
			log, err := state.Open(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			m, err := log.Newest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Delete(t.Context(), m.Segments[0].Key); err != nil {
				t.Fatal(err)
			}
		}, "segment/compactor/"},
	} {
		t.Run(name, func(t *testing.T) {
			url := newLog(t, memURL(t))
			must(t, "a\nb\n", "append", url)
			c.harm(t, openStore(t, url))
			status := kit.ExitDamaged
			if strings.Contains(name, "future") {
				status = kit.ExitFailed
			}
			r := run(t, "", "cat", url)
			if r.status != status || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, c.says) || r.out != "" {
				t.Errorf("cat: status %d: %s", r.status, r.err)
			}
			r = run(t, "", "verify", url)
			if r.status != status || !strings.Contains(r.out+r.err, c.says) {
				t.Errorf("verify: status %d: %s%s", r.status, r.out, r.err)
			}
		})
	}
}

// TestOddNames: JSON cannot hold a name that is not UTF-8, and a variable of the shell may be empty.
func TestOddNames(t *testing.T) {
	log := newLog(t, memURL(t))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"is not UTF-8", []string{"append", "--cursor", "--source", "x\xff", log}},
		{"is not UTF-8", []string{"pin", "--name", "x\xff", log}},
		{"the name of the file is empty", []string{"append", log, ""}},
	} {
		if r := run(t, "a\n", c.args...); r.status != 64 || !strings.Contains(r.err, c.says) {
			t.Errorf("%q: status %d, %s", c.args, r.status, r.err)
		}
	}
	if got := must(t, "", "cat", log); got != "" {
		t.Errorf("%q", got)
	}
	must(t, "a\nb\n", "append", log)
	must(t, "", "compact", log)
	must(t, "", "truncate", "--before", "1", log)
	if r := run(t, "", "cat", "--json", "--to", "1", log); r.status != 1 || !strings.Contains(r.err, "offset 0; the log begins at 1") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
}
