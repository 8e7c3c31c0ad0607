package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
)

// script starts fencepost exec for a shell script. In the script, $SELF is fencepost and $OUT a
// directory of the test.
func script(t *testing.T, out, flags, url, text string) (*exec.Cmd, *buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := command(t, append(append([]string{"exec", "--validity", calmValidity.String()}, strings.Fields(flags)...), url, "--", "sh", "-c", text)...)
	c.Env = append(c.Env, "SELF="+self, "OUT="+out)
	errs := &buffer{}
	c.Stderr = errs
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if t.Failed() {
			t.Logf("exec: %s", errs)
		}
	})
	return c, errs
}

// waitFile returns what is in a file once there is something.
func waitFile(t *testing.T, name string) (text string) {
	t.Helper()
	eventually(t, name, func() bool {
		b, _ := os.ReadFile(name)
		text = strings.TrimSpace(string(b))
		return text != ""
	})
	return text
}

const appends = `"$SELF" append --epoch "$FENCEPOST_EPOCH" --partition "$FENCEPOST_PARTITION" "$FENCEPOST_URL"`

// TestExecGroupAppends: the command of each partition appends to that partition's log, and an owner
// before it is refused, although it does not know that it was replaced.
func TestExecGroupAppends(t *testing.T) {
	t.Parallel()
	url, out := fileURL(t), t.TempDir()
	at := func(p int) string { return url + "/" + group.PartitionPrefix(p) }
	read := func(p int) string {
		st, err := store.Open(t.Context(), at(p))
		if err != nil {
			return ""
		}
		all, _ := logtest.Read(st, 0, nil)
		return strings.Join(all, "")
	}
	a, _ := script(t, out, "--group --partitions 2", url, `echo "$FENCEPOST_EPOCH" >"$OUT/first.$FENCEPOST_PARTITION"; exec sleep 600`)
	// What is appended under an epoch need not be a child of exec: a frozen machine's is not killed.
	var zombies [2]*exec.Cmd
	var inputs [2]*os.File
	for p := range zombies {
		epoch := waitFile(t, filepath.Join(out, fmt.Sprintf("first.%d", p)))
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := command(t, "append", "--epoch", epoch, "--partition", fmt.Sprint(p), url)
		c.Stdin, inputs[p], zombies[p] = r, w, c
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		fmt.Fprintf(w, "owner %d\n", p)
		eventually(t, "the first owner's record", func() bool { return read(p) == fmt.Sprintf("owner %d\n", p) })
	}
	_ = a.Process.Signal(syscall.SIGTERM)
	_ = a.Wait()
	b, _ := script(t, out, "--group", url, `echo "next $FENCEPOST_PARTITION" | `+appends+`; echo $? >"$OUT/next.$FENCEPOST_PARTITION"; exec sleep 600`)
	for p := range zombies {
		if got := waitFile(t, filepath.Join(out, fmt.Sprintf("next.%d", p))); got != "0" {
			t.Fatalf("the next owner's append: status %s", got)
		}
		fmt.Fprintf(inputs[p], "zombie %d\n", p)
		_ = inputs[p].Close()
		if got := exitStatus(t, zombies[p].Wait()); got != kit.ExitFenced {
			t.Errorf("the zombie's append: status %d", got)
		}
		if got, want := read(p), fmt.Sprintf("owner %d\nnext %d\n", p, p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	_ = b.Process.Signal(syscall.SIGTERM)
	_ = b.Wait()
}

// TestExecGroupAfterDamage: a group whose object is damaged stops, and is made again as docs/groups.md
// says. A place that has seen an epoch of the old group lets the new owner in.
func TestExecGroupAfterDamage(t *testing.T) {
	t.Parallel()
	url, out := fileURL(t), t.TempDir()
	run1 := func(name, flags string) uint64 {
		c, _ := script(t, out, "--group "+flags, url, `echo x | `+appends+` && echo "$FENCEPOST_EPOCH" >"$OUT/`+name+`"; exec sleep 600`)
		epoch, err := strconv.ParseUint(waitFile(t, filepath.Join(out, name)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		return epoch
	}
	first := run1("first", "--partitions 1")
	root := strings.TrimPrefix(url, "file://")
	if err := os.WriteFile(filepath.Join(root, "group", "group.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"group", "status", url}, {"exec", "--group", url, "--", "true"}} {
		if b, err := command(t, args...).CombinedOutput(); exitStatus(t, err) != 65 || !strings.Contains(string(b), "see docs/groups.md") {
			t.Errorf("%q: %s", args, b)
		}
	}
	if r := run(t, "", "verify", url); r.status != 65 || !strings.Contains(r.out, "problem: group/group.json: ") || !strings.Contains(r.out, "docs/groups.md says") {
		t.Errorf("verify of a damaged group: status %d, %s%s", r.status, r.out, r.err)
	}
	if err := os.RemoveAll(filepath.Join(root, "group")); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "verify", url); r.status != 65 || !strings.Contains(r.out, "a partition has a log") {
		t.Errorf("verify of a lost group: status %d, %s%s", r.status, r.out, r.err)
	}
	if next := run1("next", fmt.Sprintf("--partitions 1 --base %d", first)); next <= first {
		t.Errorf("epoch %d after %d", next, first)
	}
	if out := must(t, "", "verify", url); !strings.Contains(out, "group: 1 partition, ") || !strings.Contains(out, "; 1 log with ") || !strings.HasSuffix(out, "nothing is wrong\n") {
		t.Error(out)
	}
	if out := must(t, "", "verify", "--json", url); !strings.Contains(out, `"logs": 1`) {
		t.Error(out)
	}
	for _, verb := range []string{"status", "append", "cat"} {
		if r := run(t, "x", verb, url); r.status != 1 || !strings.Contains(r.err, "has a group, not a log") {
			t.Errorf("%s: status %d, %s", verb, r.status, r.err)
		}
	}
}

// TestExecAppends: the command of exec appends to the log at exec's own URL, in exec's epoch.
func TestExecAppends(t *testing.T) {
	t.Parallel()
	url, out := fileURL(t), t.TempDir()
	for i := range 2 {
		c, errs := script(t, out, "", url, `echo "$FENCEPOST_EPOCH" | "$SELF" append --epoch "$FENCEPOST_EPOCH" "$FENCEPOST_URL"`)
		if got := exitStatus(t, c.Wait()); got != 0 {
			t.Fatalf("%d: status %d, %s", i, got, errs)
		}
	}
	if got := contents(t, url); got != "1\n2\n" {
		t.Errorf("%q", got)
	}
}

// TestExecRestartAppends: a log accepts an epoch only once. So each start of a command has an epoch of its own, also in a
// group.
func TestExecRestartAppends(t *testing.T) {
	t.Parallel()
	const text = `echo "$FENCEPOST_EPOCH" | `
	for flags, appends := range map[string]string{
		"--restart":                        text + `"$SELF" append --epoch "$FENCEPOST_EPOCH" "$FENCEPOST_URL"`,
		"--restart --group --partitions 1": text + appends,
	} {
		url, out := fileURL(t), t.TempDir()
		c, errs := script(t, out, flags, url, `n=$(cat "$OUT/n" || echo 0); echo $((n+1)) >"$OUT/n"; [ $n = 3 ] && { echo 3 >"$OUT/done"; exec sleep 600; }; `+
			appends+`; s=$?; echo $s >>"$OUT/status"; exit $((s + n % 2))`)
		waitFile(t, filepath.Join(out, "done"))
		if got := waitFile(t, filepath.Join(out, "status")); got != "0\n0\n0" {
			t.Errorf("%s: the appends end with %q: %s", flags, got, errs)
		}
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	}
}

// TestExecPipelineEnds: SIGTERM of exec reaches each part of the command. An append at the end of a pipeline reads what is in it
// to its end.
func TestExecPipelineEnds(t *testing.T) {
	t.Parallel()
	url, out := fileURL(t), t.TempDir()
	c, errs := script(t, out, "", url, `trap : TERM
		sh -c 'trap "echo last; exit" TERM; echo first; echo x >"$OUT/begun"; while :; do sleep 0.05; done' |
		"$SELF" append --epoch "$FENCEPOST_EPOCH" "$FENCEPOST_URL"; echo $? >"$OUT/status"`)
	waitFile(t, filepath.Join(out, "begun"))
	eventually(t, "the first record", func() bool { return strings.Contains(errs.String(), "appending in epoch") })
	_ = c.Process.Signal(syscall.SIGTERM)
	_ = c.Wait()
	if got, status := contents(t, url), waitFile(t, filepath.Join(out, "status")); got != "first\nlast\n" || status != "0" {
		t.Errorf("the log has %q, append ended with %s: %s", got, status, errs)
	}
}

// TestExecListen: exec serves the metrics of its election, or of its membership.
func TestExecListen(t *testing.T) {
	t.Parallel()
	for flags, wants := range map[string][]string{
		"":                       {`fencepost_leader_leads{election="exec"} 1`, `fencepost_store_request_seconds_count{op="put",outcome="ok"}`},
		"--group --partitions 2": {"\nfencepost_group_open_partitions 2\n", `fencepost_store_request_seconds_count{op="put",outcome="ok"}`},
	} {
		_, errs := script(t, t.TempDir(), "--listen 127.0.0.1:0 "+flags, fileURL(t), "exec sleep 600")
		var address string
		eventually(t, "an address", func() bool {
			_, address, _ = strings.Cut(errs.String(), "metrics are at ")
			address, _, _ = strings.Cut(address, "/metrics")
			return strings.HasPrefix(address, "http://")
		})
		eventually(t, "metrics of exec "+flags, func() bool {
			_, body := get(t, address+"/metrics")
			return !slices.ContainsFunc(wants, func(s string) bool { return !strings.Contains(body, s) })
		})
		if status, body := get(t, address+"/readyz"); status != 200 || !strings.Contains(body, `"leads":true`) {
			t.Errorf("%d %s", status, body)
		}
	}
}
