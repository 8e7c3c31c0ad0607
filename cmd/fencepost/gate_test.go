package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	gateverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/gate"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// TestGateSet: a lower epoch never overwrites what a higher one has set.
func TestGateSet(t *testing.T) {
	st := memURL(t)
	must(t, "", "gate", "set", "--epoch", "4", st, "latest", "four")
	must(t, "from input", "gate", "set", "--epoch", "4", st, "latest")
	if got := must(t, "", "gate", "get", st, "latest"); got != "from input" {
		t.Errorf("%q", got)
	}
	t.Setenv("FENCEPOST_EPOCH", "9")
	if got := must(t, "", "gate", "set", "--json", st, "latest", "nine"); !strings.Contains(got, `"bytes": 4`) {
		t.Errorf("%s", got)
	}
	if r := run(t, "", "gate", "set", "--epoch", "8", st, "latest", "zombie"); r.status != kit.ExitFenced || !strings.Contains(r.err, "epoch 9") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
	if got := must(t, "", "gate", "get", "--json", st, "latest"); !strings.Contains(got, `"epoch": 9`) || !strings.Contains(got, "bmluZQ==") {
		t.Errorf("%s", got)
	}
}

// TestGateSetAtOnce: two processes of one epoch set a value at the same time. Neither is a zombie.
func TestGateSetAtOnce(t *testing.T) {
	url := memURL(t)
	st := faultstore.New(openStore(t, url), nil)
	puts := 0
	st.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Kind != faultstore.Put {
			return
		}
		if puts++; puts == 2 { // the first one opens the register
			must(t, "", "gate", "set", "--epoch", "4", url, "latest", "the other's")
		}
	})
	var out, errs buffer
	a := &kit.Kit{In: strings.NewReader(""), Out: &out, Err: &errs, Open: func(context.Context, string) (store.Store, error) { return st, nil }}
	if status := runWith(t.Context(), a, []string{"gate", "set", "--epoch", "4", url, "latest", "mine"}); status != 0 || puts != 4 {
		t.Errorf("status %d after %d writes: %s", status, puts, &errs)
	}
	if got := must(t, "", "gate", "get", url, "latest"); got != "mine" {
		t.Errorf("%q", got)
	}
	puts = 0
	if err := gateverb.Set(t.Context(), st, "latest", 4, []byte("mine"), 0); err == nil || errors.Is(err, fence.ErrFenced) || puts != 2 {
		t.Errorf("much later: %v after %d writes", err, puts)
	}
	if got := must(t, "", "gate", "get", url, "latest"); got != "the other's" {
		t.Errorf("%q", got)
	}
}

// TestGateSetWaits: gate set says that it waits for its input, and a signal ends it.
func TestGateSetWaits(t *testing.T) {
	in, _ := io.Pipe()
	defer in.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	var out, errs buffer
	a := &kit.Kit{In: in, Out: &out, Err: &errs, Open: store.Open, Patience: 10 * time.Millisecond}
	ended := make(chan int)
	go func() { ended <- runWith(ctx, a, []string{"gate", "set", "--epoch", "4", memURL(t), "latest"}) }()
	eventually(t, "it says for what it waits", func() bool { return strings.Contains(errs.String(), "reading the value from standard input") })
	cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
	if got := <-ended; got != 143 {
		t.Errorf("status %d: %s", got, &errs)
	}
}

// TestGateRunLeavesBehind: what a command leaves in the background holds the gate, and people are told.
func TestGateRunLeavesBehind(t *testing.T) {
	dir := t.TempDir()
	file, over := filepath.Join(dir, "gate"), filepath.Join(dir, "over")
	b, err := command(t, "gate", "run", "--epoch", "5", file, "--", "sh", "-c", "(until [ -e "+over+" ]; do sleep 0.02; done) >/dev/null 2>&1 &").CombinedOutput()
	if err != nil || !strings.Contains(string(b), "left in the background holds") {
		t.Errorf("%v: %s", err, b)
	}
	b, err = command(t, "gate", "run", "--epoch", "6", "--wait", "50ms", file, "--", "true").CombinedOutput()
	if got := exitStatus(t, err); got != kit.ExitBusy || !strings.Contains(string(b), "after 50ms") {
		t.Errorf("status %d: %s", got, b)
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := command(t, "gate", "run", "--epoch", "6", file, "--", "true").CombinedOutput(); err != nil || len(b) > 0 {
		t.Errorf("%v: %s", err, b)
	}
}

// TestGateRun: a command of a lower epoch does not run, and the file keeps the highest.
func TestGateRun(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "gate"), filepath.Join(dir, "out")
	gate := func(epoch, script string) int {
		return exitStatus(t, command(t, "gate", "run", "--epoch", epoch, file, "--", "sh", "-c", script).Run())
	}
	for _, c := range []struct {
		epoch  string
		status int
	}{{"5", 0}, {"5", 0}, {"12", 0}, {"11", kit.ExitFenced}, {"5", kit.ExitFenced}, {"12", 0}} {
		if got := gate(c.epoch, "echo "+c.epoch+" >>"+out); got != c.status {
			t.Errorf("epoch %s: status %d, want %d", c.epoch, got, c.status)
		}
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "5\n5\n12\n12\n" {
		t.Errorf("%q, %v", b, err)
	}
	// Who could open it could lock it, and no command would run.
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others may open the file of the gate: %v, %v", info.Mode(), err)
	}
	if got := gate("12", "exit 6"); got != 6 {
		t.Errorf("status %d", got)
	}
	if got := gate("12", "kill -9 $$"); got != 137 {
		t.Errorf("status %d", got)
	}
	if got := exitStatus(t, command(t, "gate", "run", "--epoch", "12", file, "--", "/no/such").Run()); got != kit.ExitNotFound {
		t.Errorf("status %d", got)
	}
	if got := exitStatus(t, command(t, "gate", "run", "--epoch", "12", file, "--", "/etc/passwd").Run()); got != kit.ExitNotRunnable {
		t.Errorf("what is no program: status %d", got)
	}
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := gate("99", "true"); got != 1 {
		t.Errorf("a damaged file: status %d", got)
	}
}

// TestGateRunHoldsTheLock: a gate is killed with -9, and its command goes on. The successor waits
// for the command.
func TestGateRunHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	file, out, stop := filepath.Join(dir, "gate"), filepath.Join(dir, "out"), filepath.Join(dir, "stop")
	c := command(t, "gate", "run", "--epoch", "1", file, "--", "sh", "-c", "echo began >>"+out+"; while [ ! -e "+stop+" ]; do sleep 0.02; done; echo ended >>"+out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs", func() bool { b, _ := os.ReadFile(out); return string(b) == "began\n" })
	_ = c.Process.Kill()
	_ = c.Wait()
	next := command(t, "gate", "run", "--epoch", "2", file, "--", "sh", "-c", "echo next >>"+out)
	if err := next.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, next.Wait()); got != 0 {
		t.Errorf("status %d", got)
	}
	if b, _ := os.ReadFile(out); string(b) != "began\nended\nnext\n" {
		t.Errorf("%q", b)
	}
}

// TestGateRunSignals: SIGTERM reaches the command, although it comes to the gate alone. A gate that waits for another
// command can be ended, and its own command does not run then. A pipe that is closed ends what writes into it.
func TestGateRunSignals(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "gate"), filepath.Join(dir, "out")
	first := command(t, "gate", "run", "--epoch", "1", file, "--", "sh", "-c", `trap 'echo told >>"$0"; exit 9' TERM; trap 'echo hup >>"$0"' HUP; echo runs >>"$0"; while :; do sleep 0.05; done`, out)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { b, _ := os.ReadFile(out); return string(b) == "runs\n" })
	for i := range 2 { // a daemon takes it to read its configuration again
		time.Sleep(1200 * time.Millisecond)
		_ = first.Process.Signal(syscall.SIGHUP)
		eventually(t, "SIGHUP reaches the command", func() bool { b, _ := os.ReadFile(out); return strings.Count(string(b), "hup") == i+1 })
	}
	var errs buffer
	second := command(t, "gate", "run", "--epoch", "2", file, "--", "sh", "-c", `echo second >>"$0"`, out)
	second.Stderr = &errs
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it says for what it waits", func() bool { return strings.Contains(errs.String(), "waiting for another command, which holds "+file) })
	_ = second.Process.Signal(syscall.SIGINT)
	if got := exitStatus(t, second.Wait()); got != 130 {
		t.Errorf("the one that waits: status %d, %s", got, &errs)
	}
	_ = first.Process.Signal(syscall.SIGTERM)
	if got := exitStatus(t, first.Wait()); got != 9 {
		t.Errorf("status %d", got)
	}
	if b, _ := os.ReadFile(out); string(b) != "runs\nhup\nhup\ntold\n" {
		t.Errorf("%q", b)
	}
	if got := exitStatus(t, command(t, "gate", "run", "--epoch", "3", file, "--", "bash", "-c", `while :; do echo x; done | head -1; exit "${PIPESTATUS[0]}"`).Run()); got != 128+int(syscall.SIGPIPE) {
		t.Errorf("a closed pipe: status %d", got)
	}
}

func TestGateUsage(t *testing.T) {
	st := memURL(t)
	t.Setenv("FENCEPOST_EPOCH", "")
	for args, says := range map[string]string{
		"gate":                                "which verb",
		"gate sett":                           "did you mean gate set",
		"gate set " + st + " k v":             "run this under fencepost exec",
		"gate set --epoch 0 " + st + " k v":   "from 1 to",
		"gate set --epoch x " + st + " k v":   "from 1 to",
		"gate set --epoch 1 " + st:            "URL KEY",
		"gate run --epoch 1 /tmp/x true":      "FILE -- COMMAND",
		"gate set --epoch 1 " + st + " /k v":  "key",
		"gate set --epoch 1 http://host/ k v": "no driver",
	} {
		if r := run(t, "", strings.Fields(args)...); r.status == 0 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d, %s", args, r.status, r.err)
		}
	}
	if r := run(t, "", "gate", "get", st, "none"); r.status != 1 || !strings.Contains(r.err, "nobody has set none yet") {
		t.Errorf("status %d, %s", r.status, r.err)
	}
}

// guard:own-names. Gate set refuses each key that is an object of a log, or is in the way of one, wherever the URL begins. The log
// and its election go on.
func TestGateSetSparesLogs(t *testing.T) {
	base := fileURL(t)
	log := base + "/orders"
	must(t, "", "init", "--grace", "1s", log)
	must(t, "a\nb\n", "append", log)
	slot, n := "data/00000000000000000001/00000000000000000003", "00000000000000000003"
	for _, c := range [][2]string{
		{log, slot}, {base, "orders/" + slot}, {log + "/data/00000000000000000001", n}, {log + "/data", "00000000000000000001/" + n}, {log, "lock/" + n + ".json"}, {base, "orders/lock/" + n + ".json"},
		{log + "/lock", n + ".json"}, {log, "compactor-lock"}, {base, "orders/segment/compactor"}, {base, "orders/pin"}, {log, "consumer/billing.json"}, {log + "/consumer", "billing.json"}, {log, "format.json"},
		{log, "manifest/00000000000000000009.json"}, {log, "group/group.json"}, {base, "orders/.fencepost/lock/list"}, {log, "tmp/x"}, {log, "file/_delta_log/00000000000000000000.json"},
	} {
		if r := run(t, "", "gate", "set", "--epoch", "9", c[0], c[1], "x"); r.status == 0 {
			t.Errorf("gate set %v", c)
		}
	}
	must(t, "c\n", "append", log)
	must(t, "", "compact", log)
	if got := must(t, "", "cat", log); got != "a\nb\nc\n" {
		t.Errorf("%q", got)
	}
	if r := run(t, "", "verify", log); r.status != 0 || !strings.Contains(r.out, "nothing is wrong") {
		t.Errorf("%+v", r)
	}
	must(t, "", "gate", "set", "--epoch", "9", log, "latest", "x")
}
